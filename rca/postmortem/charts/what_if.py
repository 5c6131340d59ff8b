"""Other settings tried on the model: where the objective held, and speed against exactness."""

from __future__ import annotations

from typing import Any

from rca.plain import duration, number, percent, printable
from rca.postmortem.charts.data import ChartData, query
from rca.postmortem.charts.loads import share_map
from rca.postmortem.charts.style import WIDTH

_MOST_SETTINGS = 24


def batch_map(data: ChartData, width: int = WIDTH) -> Any:
    """Share of requests within the objective by setting and load; None when it was not tried."""
    rows = [
        {"setting": _short(setting), "load": f"×{number(load)}", "order": load, "within": share,
         "told": f"{'★ ' if is_best else ''}{share:.0%}", "interval": f"{percent(low)} to {percent(high)}"}
        for setting, load, share, low, high, is_best in data.case.rows(query("70_what_if_batch.sql"))
    ]  # fmt: skip
    settings = list(dict.fromkeys(r["setting"] for r in rows))[:_MOST_SETTINGS]
    rows = [r for r in rows if r["setting"] in settings]
    if not rows:
        return None
    import altair as alt

    loads = [name for _, name in sorted({(r["order"], r["load"]) for r in rows})]
    x = alt.X("load:N", sort=loads, title="arrivals, × healthy", axis=alt.Axis(labelAngle=0))
    y = alt.Y("setting:N", sort=settings, title=None)
    tip = [
        alt.Tooltip("setting:N"),
        alt.Tooltip("load:N", title="arrivals"),
        alt.Tooltip("within:Q", format=".1%", title="within the objective"),
        alt.Tooltip("interval:N", title="95 % interval"),
    ]
    return share_map(
        rows, x, y, tip, title="share of requests within the objective; ★ recommended",
        width=min(width - 260, 80 * len(loads)), height=22 * len(settings),
    )  # fmt: skip


def quantisation_front(data: ChartData, width: int = WIDTH) -> Any:
    """Time of a decode step against what the answers lose; None when it was not tried."""
    rows = [
        {"setting": _short(setting), "ms": value / 1e6, "low": low / 1e6, "high": high / 1e6, "kl": kl,
         "best": is_best, "told": f"{duration(value)}, {percent(same)} of the tokens the same"}
        for setting, value, low, high, kl, same, is_best in data.case.rows(query("71_what_if_quant.sql"))
    ]  # fmt: skip
    if not rows:
        return None
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    scale = alt.Scale(zero=False, padding=20)
    x = alt.X(
        "ms:Q",
        title="decode step (ms), less is faster",
        scale=scale,
        axis=alt.Axis(tickCount=6),
    )
    y = alt.Y("kl:Q", title="KL divergence (nat), less is truer", axis=alt.Axis(format="~g"))
    tip = [alt.Tooltip("setting:N"), alt.Tooltip("told:N", title="decode step")]
    base = alt.Chart(Rows(rows), width=width - 160, height=200)
    stems = base.mark_rule(style="stem").encode(
        x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"), y=y, tooltip=tip
    )
    names = base.mark_text(style="text", align="left", dx=8, dy=-8).encode(
        x=x, y=y, text=alt.Text("setting:N")
    )
    points = [
        alt.Chart(Rows(mine))
        .mark_point(style=style, filled=True, size=90, shape=shape)
        .encode(x=x, y=y, tooltip=tip)
        for is_best, style, shape in (
            (True, "incident_fill", "diamond"),
            (False, "healthy_fill", "circle"),
        )
        if (mine := [r for r in rows if r["best"] == is_best])
    ]
    return alt.layer(stems, *points, names)


def _short(setting: str) -> str:
    """The values that differ, without the common names in front of them."""
    words = printable(setting, 80).replace("max_num_seqs=", "seqs ")
    return words.replace("max_num_batched_tokens=", "tokens ").replace("format=", "")
