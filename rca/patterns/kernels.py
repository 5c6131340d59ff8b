"""Groups of kernels, by how they changed against the baseline; without one, by what they are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from rca.case import Case, sql_text
from rca.patterns.grouping import Matrix, Sizes, group
from rca.patterns.record import rows, squeezed

_FEWEST, _MOST = 12, 600
"""Kernels that there must be, and those that are looked at: of the rest each takes hardly any time."""
_MOST_MEMBERS = 200
_SIZES = Sizes(mean=4, least=3)
_SPREAD = 0.15
"""Natural logarithm by which kernels differ between two captures without any cause: 15 %.

The same floor that latencies of requests have; from a single capture a side no spread can be measured.
"""
_CHANGED = {
    "time_per_call": ("slower", "faster"),
    "calls": ("run more often", "run less often"),
    "share": ("of a larger share", "of a smaller share"),
    "grid": ("of larger grids", "of smaller grids"),
    "presence": ("new", "gone"),
}
_ALIKE = {
    "time_per_call": ("long", "short"),
    "calls": ("run often", "run seldom"),
    "share": ("of a large share", "of a small share"),
    "grid": ("of large grids", "of small grids"),
}


def groups(case: Case) -> list[dict[str, Any]]:
    """Rows of `pattern` for the kernels of the captures, whatever the window; none for too few.

    Without a baseline features are distances from the middle of all kernels, on the kernels' own
    spread, and names say so.
    """
    if not case.scalar("SELECT EXISTS (FROM gpu_op WHERE kind = 'kernel' AND flaw IS NULL)"):
        return []
    table = case.sql(sql_text("patterns", "kernels"), [_MOST])
    if len(table) < _FEWEST:
        return []
    is_compared = bool(table["is_compared"][0])
    words = _CHANGED if is_compared else _ALIKE
    known = [name for name in words if table[name].null_count() < len(table)]
    features = _features(table.select(pl.col(known).cast(pl.Float64)).to_numpy(), is_compared)
    found = rows(
        "kernel", group(features, _SIZES), features, known, table["name"].to_list(), _MOST_MEMBERS,
        lambda name, is_up: words[name][0 if is_up else 1],
        "as in the baseline" if is_compared else "like most",
    )  # fmt: skip
    return (
        found
        if is_compared
        else [{**row, "name": f"{row['name']} (no baseline)"} for row in found]
    )


def _features(values: Matrix, is_compared: bool) -> Matrix:
    """Features from -1 to 1 (kernels, features); what is not known lies in the middle."""
    if is_compared:
        return squeezed(np.nan_to_num(values), _SPREAD)
    shift = np.nan_to_num(values - np.nanmedian(values, axis=0))
    return squeezed(shift, np.maximum(1.4826 * np.median(np.abs(shift), axis=0), _SPREAD))
