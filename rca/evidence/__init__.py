"""What moved between the healthy reference and the incident window, as rows with their own query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rca.case import Case
from rca.evidence.devices import worst
from rca.evidence.moves import FLAT, Move, incident_span, measure, whole_span
from rca.evidence.rows import quoted, row
from rca.plain import printable
from rca.signals import load

KEPT_UNKNOWN = 20


def gather(case: Case) -> None:
    """Write evidence for the first incident window; changes are evidence too.

    Without an incident the whole of the incident's recordings is compared with the baseline:
    what moved most is worth knowing whatever the status.
    """
    case.clear(["evidence"])
    span = incident_span(case) or whole_span(case)
    if span is None:
        return
    moves = worst(case, span, (m for s in load(case) if (m := measure(s, span))))
    rows = [row(m, span) for m in _kept(moves)] + _change_rows(case)
    rows.sort(
        key=lambda r: (
            -abs(r["strength"]),
            r["source"],
            r["role"] or "",
            r["subject"],
            r["service"] or "",
        )
    )
    for number, one in enumerate(rows, start=1):
        one["id"] = f"E{number}"
    if rows:
        case.insert("evidence", pl.DataFrame(rows, infer_schema_length=None))


def _kept(moves: Sequence[Move]) -> list[Move]:
    """All moves of roles that causes speak of, and the strongest others."""
    known = [m for m in moves if m.signal.known]
    others = sorted((m for m in moves if not m.signal.known), key=lambda m: -abs(m.strength))
    return known + [m for m in others[:KEPT_UNKNOWN] if abs(m.strength) >= FLAT]


def _change_rows(case: Case) -> list[dict[str, Any]]:
    rows = []
    for key, subject, kind, before, after, ts_ns in case.rows(
        "SELECT id, subject, kind, before, after, ts_ns FROM change ORDER BY ts_ns, id"
    ):
        what = " → ".join(printable(x, 80) for x in (before, after) if x)
        rows.append(
            {
                "source": "change",
                "role": "change",
                "service": None,
                "device": None,
                "subject": key,
                "statement": f"{printable(kind, 20)} of {printable(subject, 80)}: {what or 'no detail'}",
                "unit": "event",
                "direction": "event",
                "reference": None,
                "observed": None,
                "effect": None,
                "effect_low": None,
                "effect_high": None,
                "strength": 0.0,
                "n_reference": 0,
                "n_observed": 1,
                "onset_ns": ts_ns,
                "seed": None,
                "sql": "SELECT NULL AS reference, NULL AS observed, 0 AS n_reference, count(*) AS n_observed\n"
                f"FROM change\nWHERE id = {quoted(key)} AND ts_ns = {ts_ns}",
            }
        )
    return rows
