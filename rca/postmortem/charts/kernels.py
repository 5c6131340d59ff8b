"""What the captures hold: kernels side by side, and streams over the time of a capture."""

from __future__ import annotations

from typing import Any

import polars as pl

from rca.plain import duration, number, percent, printable
from rca.postmortem.charts.data import ChartData
from rca.postmortem.charts.style import WIDTH

_MOST = 14
_NAME = 44


def kernel_difference(data: ChartData, width: int = WIDTH) -> Any:
    """Share of the summed time that each kernel (else operator) had, baseline and incident."""
    for kind in ("kernel", "op"):
        rows = _compared(data.ops.filter(pl.col("kind") == kind))
        if rows:
            return _dumbbells(rows, "kernels" if kind == "kernel" else "operators", width)
    return None


def _compared(ops: pl.DataFrame) -> list[dict[str, Any]]:
    sides = [ops.filter(pl.col("part") == part) for part in ("baseline", "incident")]
    if any(side["total_ns"].sum() <= 0 for side in sides):
        return []
    shares = [
        side.select("name", "n", "total_ns", share=pl.col("total_ns") / side["total_ns"].sum())
        for side in sides
    ]
    both = shares[0].join(shares[1], on="name", how="full", coalesce=True, suffix="_now")
    both = both.with_columns(
        pl.col("share", "share_now", "n", "n_now", "total_ns", "total_ns_now").fill_null(0)
    )
    moved = (pl.col("share_now") - pl.col("share")).abs()
    both = both.sort([moved, "name"], descending=[True, False]).head(_MOST)
    return [_told(row) for row in both.iter_rows(named=True)]


def _told(row: dict[str, Any]) -> dict[str, Any]:
    name = printable(row["name"], 400)
    return {
        "name": name if len(name) <= _NAME else f"{name[: _NAME - 14]}…{name[-13:]}",
        "whole": name, "before": row["share"], "after": row["share_now"],
        "calls": f"{number(row['n'])} → {number(row['n_now'])}",
        "mean": f"{_mean(row['total_ns'], row['n'])} → {_mean(row['total_ns_now'], row['n_now'])}",
        "shares": f"{percent(row['share'])} → {percent(row['share_now'])}",
    }  # fmt: skip


def _mean(total_ns: int, n: int) -> str:
    return duration(total_ns / n) if n else "–"


def _dumbbells(rows: list[dict[str, Any]], what: str, width: int) -> Any:
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    base = alt.Chart(
        Rows(rows),
        width=max(width - 330, 240),
        height=21 * len(rows),
        title=f"share of the summed time of {what}: ○ baseline → ◆ incident",
    )
    y = alt.Y(
        "name:N",
        sort=[r["name"] for r in rows],
        title=None,
        axis=alt.Axis(labelLimit=320, domain=False, ticks=False),
    )
    axis = alt.Axis(format="%", tickCount=6)
    tip = [
        alt.Tooltip("whole:N", title="name"),
        alt.Tooltip("shares:N", title="share"),
        alt.Tooltip("calls:N", title="calls"),
        alt.Tooltip("mean:N", title="mean of a call"),
    ]
    line = base.mark_rule(style="stem").encode(
        x=alt.X("before:Q", title=None, axis=axis), x2=alt.X2("after:Q"), y=y, tooltip=tip
    )
    before = base.mark_point(style="node", filled=True, shape="circle", size=60).encode(
        x=alt.X("before:Q"), y=y, tooltip=tip
    )
    after = base.mark_point(
        style="incident_fill", filled=True, shape="diamond", size=80
    ).encode(x=alt.X("after:Q"), y=y, tooltip=tip)
    return alt.layer(line, before, after)


def gpu_streams(data: ChartData, width: int = WIDTH) -> Any:
    """Streams over the time of each capture, since captures last seconds and incidents hours."""
    rows = data.streams
    if rows.is_empty():
        return None
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    panels = []
    for (source, path), capture in sorted(
        rows.group_by("source_id", "path"), key=lambda item: str(item[0])
    ):
        values = [
            {"from_ms": a / 1e6, "to_ms": b / 1e6, "lane": lane, "busy": float(busy), "n": n,
             "longest": printable(longest, 120)}
            for a, b, lane, busy, n, longest in capture.sort("lane", "start_ns").select(
                "start_ns", "end_ns", "lane", "busy", "n", "longest"
            ).iter_rows()
        ]  # fmt: skip
        lanes = capture["lane"].n_unique()
        panels.append(
            alt.Chart(
                Rows(values),
                width=width,
                height=20 * lanes,
                title=f"capture {source}: {printable(path, 80)}",
            )
            .mark_rect()
            .encode(
                x=alt.X("from_ms:Q", title="ms since the capture began", scale=alt.Scale(nice=False)),
                x2=alt.X2("to_ms:Q"),
                y=alt.Y("lane:N", title=None),
                color=alt.Color("busy:Q", scale=alt.Scale(domain=[0, 1], range="ramp"),
                                legend=alt.Legend(title="busy", format="%")),
                tooltip=[
                    alt.Tooltip("busy:Q", format=".0%"),
                    alt.Tooltip("n:Q", title="operations"),
                    alt.Tooltip("longest:N", title="longest"),
                ],
            )
        )  # fmt: skip
    return alt.vconcat(*panels, spacing=14) if panels else None
