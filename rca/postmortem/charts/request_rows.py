"""Requests as rows of the timeline: their spread, single ones, and how many are there at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from rca.plain import duration, moment, printable
from rca.postmortem.charts.data import DOTS


def band(rows: pl.DataFrame, n: int) -> list[dict[str, Any]]:
    """Median and p99 of the end-to-end time in at most n steps of time."""
    first, last = int(rows["start_ns"].min()), int(rows["start_ns"].max())  # type: ignore[arg-type]
    width = (last - first) // n + 1
    steps = (
        rows.group_by(place=(pl.col("start_ns") - first) // width)
        .agg(
            p50=pl.col("e2e_ns").quantile(0.5, "linear") / 1e9,
            p99=pl.col("e2e_ns").quantile(0.99, "linear") / 1e9,
        )
        .sort("place")
    )
    return [
        {"at": (first + place * width + width // 2) / 1e6, "p50_s": p50, "p99_s": p99}
        for place, p50, p99 in steps.iter_rows()
    ]


def dots(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """At most DOTS requests: failed ones, the slowest, and the others evenly in time."""
    if rows.height > DOTS:
        failed = rows.filter(pl.col("status") == "error").head(DOTS // 4)
        slowest = rows.sort("e2e_ns", "trace_id", descending=True).head(DOTS // 4)
        left = DOTS - failed.height - slowest.height
        even = rows.gather_every(-(-rows.height // left))
        rows = pl.concat([failed, slowest, even]).unique(maintain_order=True).sort("start_ns")
    return [
        {
            "at": row["start_ns"] / 1e6, "e2e_s": row["e2e_ns"] / 1e9,
            "time": moment(row["start_ns"]), "e2e": _seconds(row["e2e_ns"]),
            "ttft": _seconds(row["ttft_ns"]), "queue": _seconds(row["queue_ns"]),
            "status": "error" if row["status"] == "error" else "ok",
            "tenant": printable(row["tenant"] or "–", 60),
            "replica": printable(row["replica"] or "–", 60),
            "trace": printable(row["trace_id"], 64),
        }
        for row in rows.iter_rows(named=True)
        if row["e2e_ns"] > 0
    ]  # fmt: skip


def _seconds(value: int | None) -> str:
    return "–" if value is None else duration(value)


def in_flight(rows: pl.DataFrame, n: int) -> list[dict[str, Any]]:
    """Mean number of requests in flight and in a queue in each of n steps of time."""
    if rows.height < 2:
        return []
    first, last = int(rows["start_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]
    width = (last - first) // n + 1
    queued = rows.filter(pl.col("queue_ns").is_not_null())
    kinds = [("in flight", rows["start_ns"], rows["end_ns"])]
    if not queued.is_empty():
        kinds.append(("waiting", queued["start_ns"], queued["start_ns"] + queued["queue_ns"]))
    return [
        {"at": (first + place * width) / 1e6, "n": mean, "what": what,
         "time": moment(first + place * width)}
        for what, starts, ends in kinds
        for place, mean in enumerate(_mean_present(starts, ends, first, width, n))
    ]  # fmt: skip


def _mean_present(
    starts: pl.Series, ends: pl.Series, first: int, width: int, n: int
) -> list[float]:
    """Mean number of intervals that hold in each step: the gain of the integral over the step.

    The integral up to t is the sum over intervals of min(t, end) - start for those begun; with
    sorted ends it needs two cumulated sums only.
    """
    begun = np.sort(starts.to_numpy() - first)
    over = np.sort(ends.to_numpy() - first)
    edges = np.arange(n + 1, dtype=np.int64) * width
    total_begun = np.concatenate([[0], np.cumsum(begun)])
    total_over = np.concatenate([[0], np.cumsum(over)])
    n_begun = np.searchsorted(begun, edges, side="right")
    n_over = np.searchsorted(over, edges, side="right")
    integral = n_begun * edges - total_begun[n_begun] - (n_over * edges - total_over[n_over])
    return [round(float(v), 4) for v in np.diff(integral) / width]
