"""How full memories are, and whether they grow as a leak does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.findings.cohort import query

_FEWEST = 8
_BREAKS = 40
_COLUMNS = (
    "kind", "service", "replica", "device", "devices", "part", "n", "first_bytes", "last_bytes",
    "most_bytes", "total_bytes", "used_share",
)  # fmt: skip

Floats = npt.NDArray[np.float64]


class Growth(NamedTuple):
    """A level that grows from a point on; slope in units a second, R² None when nothing moved."""

    since: int | None
    slope: float
    r_squared: float | None


def fit(case: Case) -> None:
    """Write memory_use."""
    case.clear(["memory_use"])
    rows = []
    for row in case.sql(query("memory_use")).to_dicts():
        times, level = np.array(row["times"], np.int64), np.array(row["level"], np.float64)
        found = growth(times, level) if len(level) >= _FEWEST else None
        rows.append({c: row[c] for c in _COLUMNS} | {
            "since_ns": int(times[found.since]) if found and found.since is not None else None,
            "growth_bytes_per_s": found.slope if found else None,
            "r_squared": found.r_squared if found else None,
        })  # fmt: skip
    if rows:
        case.insert("memory_use", pl.DataFrame(rows, infer_schema_length=None))


def growth(times: npt.NDArray[np.int64], level: Floats) -> Growth:
    """The hinge that fits best: flat up to some point, a straight line from there on.

    Args:
        times: ns, ascending. level: as many values.
    """
    moved = level - level.mean()
    whole = float(moved @ moved)
    if whole <= 1e-12 * float(level @ level):
        return Growth(None, 0.0, None)
    seconds = (times - times[0]) / 1e9
    last = len(level) - _FEWEST // 2
    best = Growth(None, 0.0, 0.0)
    for start in np.unique(np.linspace(0, last, min(_BREAKS, last + 1)).astype(int)):
        line = np.maximum(seconds - seconds[start], 0.0)
        centred = line - line.mean()
        size = float(centred @ centred)
        if size <= 0:
            continue
        slope = float(centred @ moved) / size
        r_squared = slope * slope * size / whole
        if r_squared > (best.r_squared or 0.0):
            best = Growth(int(start), slope, min(r_squared, 1.0))
    return best
