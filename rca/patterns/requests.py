"""Groups of slow requests, by how they differ from healthy ones of the same size.

Features are times divided by the work they were for, as log ratio to the healthy median on the
healthy spread, squeezed by tanh: so a group is a way of being slow and not a size of request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from rca.case import Case, sql_text
from rca.patterns.grouping import Matrix, group
from rca.patterns.record import rows, squeezed

_NAMES = (
    "queue",
    "prefill_per_token",
    "time_per_token",
    "outside_engine",
    "prompt_tokens",
    "output_tokens",
)
_FEWEST = 24
_MOST = 2000
_MOST_MEMBERS = 200
_SPREAD_FLOOR = 0.15
_SEED = 7


def groups(case: Case) -> list[dict[str, Any]]:
    """Rows of `pattern` for the requests of the first incident window; none for too few."""
    window = case.rows(
        "SELECT start_ns, end_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not window:
        return []
    start, end = window[0]
    table = case.sql(sql_text("patterns", "requests"))
    inside = (pl.col("part") == "incident") & pl.col("start_ns").is_between(start, end)
    slow = table.filter(inside)
    healthy = table.filter(pl.col("part") == "baseline")
    if len(healthy) < _FEWEST:
        healthy = table.filter((pl.col("part") == "incident") & (pl.col("start_ns") < start))
    if len(slow) < _FEWEST or len(healthy) < _FEWEST:
        return []
    if len(slow) > _MOST:
        slow = slow.sample(_MOST, seed=_SEED)
    features, names = _features(slow, healthy)
    if not names:
        return []
    ids = slow["request_id"].to_list()
    return rows("request", group(features), features, names, ids, _MOST_MEMBERS)


def _features(slow: pl.DataFrame, healthy: pl.DataFrame) -> tuple[Matrix, list[str]]:
    columns, names = [], []
    for name in _NAMES:
        reference = np.log(
            np.maximum(healthy[name].cast(pl.Float64).drop_nulls().to_numpy(), 1e-6)
        )
        values = slow[name].cast(pl.Float64)
        if len(reference) < _FEWEST // 2 or values.null_count() > len(values) // 2:
            continue
        centre = float(np.median(reference))
        spread = max(1.4826 * float(np.median(np.abs(reference - centre))), _SPREAD_FLOOR)
        filled = np.log(np.maximum(values.fill_null(values.median()).to_numpy(), 1e-6))
        columns.append(squeezed(filled - centre, spread))
        names.append(name)
    return (np.column_stack(columns) if columns else np.empty((len(slow), 0))), names
