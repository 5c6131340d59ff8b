"""Groups of anomalies: slow requests, phases of the incident, kernels, and what alarmed or moved together.

A group gathers evidence; it is not a cause, and no verdict rests on it.
"""

from __future__ import annotations

import polars as pl

from rca.case import Case
from rca.patterns import events, kernels, requests, windows

__all__ = ["cluster"]

_KINDS = (requests.groups, windows.groups, kernels.groups, events.groups)


def cluster(case: Case) -> None:
    """Write pattern for the first incident window; kernels are grouped without a window too."""
    case.clear(["pattern"])
    rows = [row for groups in _KINDS for row in groups(case)]
    numbered = [{"id": number, **row} for number, row in enumerate(rows, start=1)]
    if numbered:
        case.insert("pattern", pl.DataFrame(numbered, infer_schema_length=None))
