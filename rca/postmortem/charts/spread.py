"""How latencies are spread, healthy against incident: the share of requests that were faster."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from rca.plain import number
from rca.postmortem.charts.data import ChartData
from rca.postmortem.charts.style import WIDTH

_FIGURES = (
    ("e2e_ns", "end to end"),
    ("ttft_ns", "time to first token"),
    ("queue_ns", "time in the queue"),
    ("itl_ns", "time between tokens"),
)
_SIDES: tuple[tuple[str, list[int], Literal["left", "right"], int], ...] = (
    ("healthy", [5, 3], "right", -8),
    ("incident", [1, 0], "left", 8),
)
_FEWEST = 10
_STEPS = 100
_SHORTEST_NS = 1e5  # a logarithmic axis has no zero


def distributions(data: ChartData, width: int = WIDTH) -> Any:
    """One panel a latency, two curves each; None unless both sides have ten requests."""
    panels = [
        panel
        for column, title in _FIGURES
        if (panel := _panel(data.requests, column, title, width)) is not None
    ]
    if not panels:
        return None
    import altair as alt

    columns = 2 if len(panels) > 1 else 1
    return alt.concat(*panels, columns=columns, spacing=24).resolve_scale(x="independent")


def _panel(requests: pl.DataFrame, column: str, title: str, width: int) -> Any:
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    sides = {
        side: requests.filter(pl.col("side") == side)[column].drop_nulls()
        for side in ("healthy", "incident")
    }
    if min(len(v) for v in sides.values()) < _FEWEST:
        return None
    counts = ", ".join(f"{side} n = {number(len(v))}" for side, v in sides.items())
    x = alt.X("ms:Q", scale=alt.Scale(type="log", nice=False), title="ms",
              axis=alt.Axis(format=",~g", tickCount=5, labelOverlap=True))  # fmt: skip
    y = alt.Y("share:Q", title="faster", axis=alt.Axis(format="%", tickCount=4))
    tip = [
        alt.Tooltip("side:N"),
        alt.Tooltip("share:Q", format=".0%", title="requests faster"),
        alt.Tooltip("ms:Q", format=".3~s", title="than ms"),
    ]
    layers = []
    for side, dash, align, dx in _SIDES:
        curve = alt.Chart(Rows(_curve(side, sides[side])))
        layers.append(
            curve.mark_line(style=side, strokeDash=dash).encode(x=x, y=y, tooltip=tip)
        )
        name = _name(side, sides[side])
        if name:
            beside = alt.Chart(Rows([name]))
            layers.append(
                beside.mark_text(align=align, dx=dx).encode(
                    x=alt.X("ms:Q"), y=alt.Y("share:Q"), text=alt.Text("side:N")
                )
            )
    return alt.layer(
        *layers,
        width=width // 2 - 50,
        height=150,
        title=alt.TitleParams(title, subtitle=counts, subtitleFontSize=10),
    )


def _curve(side: str, values: pl.Series) -> list[dict[str, Any]]:
    return [
        {"side": side, "share": step / _STEPS, "ms": max(_quantile(values, step / _STEPS), _SHORTEST_NS) / 1e6}
        for step in range(_STEPS + 1)
    ]  # fmt: skip


def _name(side: str, values: pl.Series) -> dict[str, Any] | None:
    """A curve's name beside it, apart in height from the other's; None where the curve is at 0."""
    at = {"healthy": 0.7, "incident": 0.35}[side]
    value = _quantile(values, at)
    return {"side": side, "share": at, "ms": value / 1e6} if value > _SHORTEST_NS else None


def _quantile(values: pl.Series, share: float) -> float:
    return float(values.quantile(share, "linear") or 0.0)
