"""Under which load and which prompt length the objective held."""

from __future__ import annotations

from typing import Any

from rca.plain import number, percent
from rca.postmortem.charts.data import ChartData, query
from rca.postmortem.charts.style import WIDTH

_FEW = 10  # a cell of fewer requests is hatched by a missing label


def slo_heat_map(data: ChartData, width: int = WIDTH) -> Any:
    """Share of requests within the limit by batch size and arrival rate; None without the table."""
    rows = [
        {"batch": f"{batch:g}–{below:g}", "rate": f"{rate:g}–{rate_below:g}", "within": share,
         "n": n, "order_batch": batch, "order_rate": rate,
         "told": f"{share:.0%}" if n >= _FEW else "",
         "interval": f"{percent(low)} to {percent(high)}"}
        for batch, below, rate, rate_below, n, share, low, high in _rows(data, "60_slo_heat_map.sql", "slo_heat_map")
    ]  # fmt: skip
    if not rows:
        return None
    import altair as alt

    cohort = data.answer.findings.cohort
    bias = "; sampled, biased" if cohort and cohort.is_sampled else ""
    batches = _ordered(rows, "batch", "order_batch")
    rates = _ordered(rows, "rate", "order_rate")
    x = alt.X("batch:N", sort=batches, title="requests running", axis=alt.Axis(labelAngle=0))
    y = alt.Y("rate:N", sort=rates[::-1], title="arrivals a second")
    tip = [
        alt.Tooltip("batch:N", title="requests running"),
        alt.Tooltip("rate:N", title="arrivals a second"),
        alt.Tooltip("within:Q", format=".1%", title="within the limit"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("n:Q", title="requests"),
    ]
    return share_map(
        rows, x, y, tip, title=f"share of requests within the limit{bias}",
        width=min(width - 120, 74 * len(batches)), height=34 * len(rates),
    )  # fmt: skip


def share_map(
    rows: list[dict[str, Any]],
    x: Any,
    y: Any,
    tip: list[Any],
    *,
    title: str,
    width: int,
    height: int,
) -> Any:
    """Boxes coloured by `within`, a share from 0 to 1, with the text `told` in each."""
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    boxes = (
        alt.Chart(Rows(rows), width=width, height=height, title=title)
        .mark_rect()
        .encode(
            x=x,
            y=y,
            tooltip=tip,
            color=alt.Color(
                "within:Q",
                scale=alt.Scale(domain=[0, 1], range="ramp"),
                legend=alt.Legend(title="within", format="%"),
            ),
        )
    )
    labels = [
        alt.Chart(Rows(told))
        .mark_text(style=style)
        .encode(x=x, y=y, text=alt.Text("told:N"), tooltip=tip)
        for dark, style in ((False, "text"), (True, "inverse_text"))
        if (told := [r for r in rows if (r["within"] > 0.6) == dark])
    ]
    return alt.layer(boxes, *labels)


def context_curve(data: ChartData, width: int = WIDTH) -> Any:
    """Time to the first token by prompt length, window against reference; None without the table."""
    rows = [
        {"side": "incident" if side == "window" else "healthy", "tokens": f"{low:g}–{below:g}",
         "order": low, "ms": p50 / 1e6, "told": f"median of {number(n)} requests"}
        for side, low, below, n, p50 in _rows(data, "61_context.sql", "latency_by_context")
        if p50 is not None
    ]  # fmt: skip
    if len({r["order"] for r in rows}) < 2:
        return None
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    lengths = _ordered(rows, "tokens", "order")
    layers = []
    for side, dash in (("healthy", [5, 3]), ("incident", [1, 0])):
        mine = [r for r in rows if r["side"] == side]
        if mine:
            base = alt.Chart(Rows(mine)).encode(
                x=alt.X("tokens:N", sort=lengths, title="prompt tokens", axis=alt.Axis(labelAngle=0)),
                y=alt.Y("ms:Q", title="ms", scale=alt.Scale(type="log", nice=False, padding=10)),
                tooltip=[alt.Tooltip("side:N"), alt.Tooltip("tokens:N"), alt.Tooltip("ms:Q", format=",.3~g"),
                         alt.Tooltip("told:N", title="n")],
            )  # fmt: skip
            layers += [
                base.mark_line(style=side, strokeDash=dash),
                base.mark_point(style=f"{side}_fill", filled=True, size=60),
            ]
    return alt.layer(
        *layers,
        width=width - 120,
        height=150,
        title="median time to the first token; dashed: healthy",
    )


def _rows(data: ChartData, name: str, table: str) -> list[tuple[Any, ...]]:
    return data.case.rows(query(name)) if data.case.has(table) else []


def _ordered(rows: list[dict[str, Any]], name: str, by: str) -> list[str]:
    return [str(n) for _, n in sorted({(r[by], r[name]) for r in rows})]
