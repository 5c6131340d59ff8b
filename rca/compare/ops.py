"""Kernels and operators side by side: gone, new, called more often, slower."""

from __future__ import annotations

from typing import Any

import polars as pl

_KEPT = 50
_COLUMNS = ("n", "total_ns")


def difference(base: pl.DataFrame, candidate: pl.DataFrame) -> dict[str, Any] | None:
    """What changed between two captures; None unless both sides have one of the same kind.

    Kernels where both sides have kernels, else operators. Lists are cut to the 50 names that weigh
    most; `counts` holds how many there are.
    """
    for kind in ("kernel", "op"):
        old = base.filter((pl.col("kind") == kind) & (pl.col("n") > 0))
        new = candidate.filter((pl.col("kind") == kind) & (pl.col("n") > 0))
        if len(old) and len(new):
            return {"kind": kind, **_compared(old, new)}
    return None


def _compared(old: pl.DataFrame, new: pl.DataFrame) -> dict[str, Any]:
    both = old.select("name", *_COLUMNS).join(
        new.select("name", *_COLUMNS), on="name", how="full", coalesce=True, suffix="_new"
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
    kept = rows.filter(pl.col("n").is_not_null() & pl.col("n_new").is_not_null())
    shown = (
        "name", "n", "n_new", "count_ratio", "mean_base_ns", "mean_candidate_ns", "mean_ratio",
        "share_base", "share_candidate",
    )  # fmt: skip
    return {
        "counts": {"gone": len(gone), "new": len(came), "kept": len(kept)},
        "gone": _records(gone, ("name", "n", "mean_base_ns", "share_base")),
        "new": _records(came, ("name", "n_new", "mean_candidate_ns", "share_candidate")),
        "kept": _records(kept, shown),
    }


def _records(rows: pl.DataFrame, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    ordered = rows.sort(["moved", "name"], descending=[True, False]).head(_KEPT)
    return ordered.select(
        pl.col(c).alias({"n": "n_base", "n_new": "n_candidate"}.get(c, c)) for c in columns
    ).to_dicts()
