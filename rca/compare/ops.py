"""Kernels and operators side by side: gone, new, other shapes, called more often, slower."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

_KEPT = 50
_COLUMNS = ("n", "total_ns")
_OTHER_SHAPES = 0.2
"""Share of the calls with shapes of one side only from which on the shapes are what changed."""
_COUNT = math.log(1.2)
_TIME = math.log(1.1)


def difference(base: pl.DataFrame, candidate: pl.DataFrame) -> dict[str, Any] | None:
    """What changed between two captures; None unless both sides have one of the same kind.

    Kernels where both sides have kernels, else operators. Lists are cut to the 50 names that weigh
    most; `counts` holds how many there are. `change` of what both have is the first that holds of
    'shape', 'count' (against the usual ratio of counts, since captures differ in length), 'time'
    (at shapes of both sides) and 'same'.

    Args:
        base: kind, name, shape, n and total_ns of one side.
        candidate: The same of the other.
    """
    for kind in ("kernel", "op"):
        old = base.filter((pl.col("kind") == kind) & (pl.col("n") > 0))
        new = candidate.filter((pl.col("kind") == kind) & (pl.col("n") > 0))
        if len(old) and len(new):
            return {"kind": kind, **_compared(old, new)}
    return None


def gpu_states(base: pl.DataFrame, candidate: pl.DataFrame) -> list[dict[str, Any]] | None:
    """Shares of the devices' time by what they did, those that moved most first; None without GPUs."""
    if base.is_empty() or candidate.is_empty():
        return None
    both = base.join(candidate, on="state", how="full", coalesce=True, suffix="_new").fill_null(
        0.0
    )
    rows = both.select(
        "state", base=pl.col("share"), candidate=pl.col("share_new"),
        moved=(pl.col("share_new") - pl.col("share")).abs(),
    )  # fmt: skip
    return rows.sort(["moved", "state"], descending=[True, False]).drop("moved").to_dicts()


def _compared(old: pl.DataFrame, new: pl.DataFrame) -> dict[str, Any]:
    both = _by_name(old).join(
        _by_name(new), on="name", how="full", coalesce=True, suffix="_new"
    )
    rows = both.with_columns(
        share_base=pl.col("total_ns").fill_null(0) / max(old["total_ns"].sum(), 1),
        share_candidate=pl.col("total_ns_new").fill_null(0) / max(new["total_ns"].sum(), 1),
        mean_base_ns=pl.col("total_ns") / pl.col("n"),
        mean_candidate_ns=pl.col("total_ns_new") / pl.col("n_new"),
    ).with_columns(
        count_ratio=pl.col("n_new") / pl.col("n"),
        mean_ratio=pl.when(pl.col("mean_base_ns") > 0).then(
            pl.col("mean_candidate_ns") / pl.col("mean_base_ns")
        ),
        moved=(pl.col("share_candidate") - pl.col("share_base")).abs(),
    )
    gone = rows.filter(pl.col("n_new").is_null())
    came = rows.filter(pl.col("n").is_null())
    kept = _explained(
        rows.filter(pl.col("n").is_not_null() & pl.col("n_new").is_not_null()),
        _by_shape(old, new),
    )
    shown = (
        "name", "n", "n_new", "count_ratio", "mean_base_ns", "mean_candidate_ns", "mean_ratio",
        "same_shape_ratio", "change", "share_base", "share_candidate",
    )  # fmt: skip
    changes = kept["change"].value_counts().sort("change").rows()
    return {
        "counts": {"gone": len(gone), "new": len(came), "kept": len(kept)},
        "changes": dict(changes),
        "gone": _records(gone, ("name", "n", "mean_base_ns", "share_base")),
        "new": _records(came, ("name", "n_new", "mean_candidate_ns", "share_candidate")),
        "kept": _records(kept, shown),
    }


def _by_name(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("name", maintain_order=True).agg(pl.col(*_COLUMNS).sum())


def _by_shape(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """name, other_shapes (share of the new calls), same_shape_ratio (of mean times)."""
    both = new.join(old, on=["name", "shape"], how="left", suffix="_old")
    expected = pl.col("n") * pl.col("total_ns_old") / pl.col("n_old")
    met = pl.col("n_old").is_not_null()
    return both.group_by("name").agg(
        other_shapes=pl.col("n").filter(~met).sum() / pl.col("n").sum(),
        same_shape_ratio=pl.col("total_ns").filter(met).sum() / expected.filter(met).sum(),
    )


def _explained(kept: pl.DataFrame, shapes: pl.DataFrame) -> pl.DataFrame:
    usual = kept["count_ratio"].median() if len(kept) else None
    rows = kept.join(shapes, on="name", how="left").with_columns(
        same_shape_ratio=pl.col("same_shape_ratio").fill_nan(None)
    )
    counts = (pl.col("count_ratio") / pl.lit(usual, pl.Float64)).log().abs()
    change = (
        pl.when(pl.col("other_shapes") > _OTHER_SHAPES).then(pl.lit("shape"))
        .when(counts > _COUNT).then(pl.lit("count"))
        .when(pl.col("same_shape_ratio").log().abs() > _TIME).then(pl.lit("time"))
        .otherwise(pl.lit("same"))
    )  # fmt: skip
    return rows.with_columns(change=change)


def _records(rows: pl.DataFrame, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    ordered = rows.sort(["moved", "name"], descending=[True, False]).head(_KEPT)
    return ordered.select(
        pl.col(c).alias({"n": "n_base", "n_new": "n_candidate"}.get(c, c)) for c in columns
    ).to_dicts()
