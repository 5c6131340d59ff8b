"""Durations that are none."""

from __future__ import annotations

import polars as pl

WEEK_NS = 604_800_000_000_000


def flaw_of(dur_ns: pl.Expr) -> pl.Expr:
    """Why a duration is none; seven days are longer than any operation."""
    return (
        pl.when(dur_ns.is_null())
        .then(pl.lit("no_duration"))
        .when(dur_ns < 0)
        .then(pl.lit("negative_duration"))
        .when(dur_ns > WEEK_NS)
        .then(pl.lit("absurd_duration"))
    )
