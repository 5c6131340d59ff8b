"""Ranks and hosts that others wait for."""

from __future__ import annotations

from typing import Any

from rca.case import Case


def stragglers(case: Case) -> dict[str, list[dict[str, Any]]]:
    """Time of each rank and host, slowest first, and who stands out.

    Returns:
        {'ranks': rows of the view `straggler`, 'hosts': rows of the view `straggling_host`}.
    """
    order = "ORDER BY part, own_ns DESC NULLS LAST"
    return {
        "ranks": case.sql(f"SELECT * FROM straggler {order}, source_id").to_dicts(),
        "hosts": case.sql(f"SELECT * FROM straggling_host {order}, host").to_dicts(),
    }
