"""Groups of slow requests, by how they differ from healthy ones of the same size.

Features are times divided by the work they were for, as log ratio to the healthy median on the
healthy spread, squeezed by tanh: so a group is a way of being slow and not a size of request.
Ward's clustering, 2 to 6 groups by silhouette; one group unless two are clearly better.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case

Matrix = npt.NDArray[np.float64]

_FEATURES = """
SELECT request_id, part, start_ns,
    queue_ns / 1e9 AS queue,
    prefill_ns / nullif(input_tokens, 0) AS prefill_per_token,
    itl_ns AS time_per_token,
    greatest(e2e_ns - engine_ns, 1) / 1e9 AS outside_engine,
    input_tokens AS prompt_tokens,
    output_tokens AS output_tokens
FROM request
WHERE engine_ns IS NOT NULL
ORDER BY part, start_ns, request_id
"""
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
_ONE_GROUP_BELOW = 0.35
_SPREAD_FLOOR = 0.15
_SEED = 7


def cluster(case: Case) -> None:
    """Write pattern for the requests of the first incident window."""
    case.clear(["pattern"])
    rows = case.rows(
        "SELECT start_ns, end_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not rows:
        return
    start, end = rows[0]
    table = case.sql(_FEATURES)
    inside = (pl.col("part") == "incident") & pl.col("start_ns").is_between(start, end)
    slow = table.filter(inside)
    healthy = table.filter(pl.col("part") == "baseline")
    if len(healthy) < _FEWEST:
        healthy = table.filter((pl.col("part") == "incident") & (pl.col("start_ns") < start))
    if len(slow) < _FEWEST or len(healthy) < _FEWEST:
        return
    if len(slow) > _MOST:
        slow = slow.sample(_MOST, seed=_SEED)
    features, names = _features(slow, healthy)
    if not names:
        return
    labels, silhouette, stability = _groups(features)
    outliers = _outliers(features)
    case.insert(
        "pattern",
        pl.DataFrame(_rows(slow, features, names, labels, silhouette, stability, outliers)),
    )


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
        columns.append(np.tanh((filled - centre) / spread / 4.0))
        names.append(name)
    return (np.column_stack(columns) if columns else np.empty((len(slow), 0))), names


def _groups(features: Matrix) -> tuple[npt.NDArray[np.int64], float | None, float | None]:
    """Labels, silhouette and stability; a single group has neither of the latter."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    best: tuple[float, npt.NDArray[np.int64]] | None = None
    for k in range(2, min(6, len(features) // 8) + 1):
        labels = AgglomerativeClustering(k).fit_predict(features)
        if np.bincount(labels).min() < max(3, len(features) // 50):
            continue
        value = float(silhouette_score(features, labels))
        if best is None or value > best[0]:
            best = (value, labels)
    if best is None or best[0] < _ONE_GROUP_BELOW:
        return np.zeros(len(features), np.int64), None, None
    k = int(best[1].max()) + 1
    random = np.random.default_rng(_SEED)
    agreement = []
    for _ in range(5):
        pick = random.choice(len(features), len(features) * 4 // 5, replace=False)
        again = AgglomerativeClustering(k).fit_predict(features[pick])
        agreement.append(adjusted_rand_score(best[1][pick], again))
    return best[1], best[0], float(np.mean(agreement))


def _outliers(features: Matrix) -> int:
    from sklearn.cluster import HDBSCAN

    size = max(5, len(features) // 6)
    labels = HDBSCAN(min_cluster_size=size, min_samples=5, copy=True).fit_predict(features)
    return int((labels < 0).sum()) if (labels >= 0).any() else 0


def _rows(
    slow: pl.DataFrame,
    features: Matrix,
    names: list[str],
    labels: npt.NDArray[np.int64],
    silhouette: float | None,
    stability: float | None,
    outliers: int,
) -> list[dict[str, Any]]:
    order = np.argsort(-np.bincount(labels), kind="stable")
    rows = []
    for number, label in enumerate(order, start=1):
        member = labels == label
        centre = features[member].mean(axis=0)
        ids = slow["request_id"].filter(pl.Series(member)).to_list()
        rows.append(
            {
                "id": number,
                "kind": "request",
                "name": _name(names, centre),
                "size": int(member.sum()),
                "outliers": outliers,
                "silhouette": silhouette,
                "stability": stability,
                "centre": json.dumps(
                    dict(zip(names, (round(float(c), 4) for c in centre), strict=True))
                ),
                "members": json.dumps(ids[:200]),
            }
        )
    return rows


def _name(names: list[str], centre: Matrix) -> str:
    """The two strongest components with their direction."""
    strongest = np.argsort(-np.abs(centre), kind="stable")[:2]
    told = [
        f"{names[i].replace('_', ' ')} {'up' if centre[i] > 0 else 'down'}"
        for i in strongest
        if abs(centre[i]) > 0.2
    ]
    return ", ".join(told) or "as healthy"
