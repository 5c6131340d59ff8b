"""Ratios with their 95 % intervals on a logarithmic axis: evidence, and the runs of the trial."""

from __future__ import annotations

import math
from typing import Any

from rca.answer import Answer, Evidence, wording
from rca.plain import number, printable
from rca.postmortem.charts.style import WIDTH

_FARTHEST = 20.0  # e^20: an axis beyond it shows nothing else
_MOST_FIGURES = 14


def effects(answer: Answer, width: int = WIDTH) -> Any:
    """How far each signal of the leading cause moved; None when none has a ratio."""
    lead = answer.leading
    chosen = answer.cited(lead.evidence + lead.contradicting) if lead else answer.strongest(8)
    rows = [
        _row(f"{wording.label(e)}  {e.id}", e.effect, e.effect_low, e.effect_high, _told(e))
        for e in dict.fromkeys(chosen)
        if e.effect is not None and abs(e.effect) < _FARTHEST
    ]
    return _intervals(rows, "incident / healthy (×)", width) if rows else None


def trial_effects(answer: Answer, width: int = WIDTH) -> Any:
    """What each set-up of the experiment did to each figure; None when nothing was paired."""
    import altair as alt

    found: dict[str, Any] = (answer.trial.details or {}).get("effects", {})
    panels = []
    for arm in sorted(found, key=_arm_order):
        rows = [
            _row(printable(figure, 60).replace("_", " "), *_logs(e), f"{e['pairs']} pairs")
            for figure, e in sorted(found[arm].items())
            if {"ratio", "low", "high", "pairs"} <= set(e) and e["ratio"] > 0
        ]
        rows = sorted(rows, key=lambda r: -abs(math.log(r["times"])))[:_MOST_FIGURES]
        if rows:
            title = f"{printable(arm, 60)}: ratio to healthy"
            panels.append(_intervals(rows, "× healthy", width).properties(title=title))
    return alt.vconcat(*panels, spacing=16).resolve_scale(x="shared") if panels else None


def _arm_order(arm: str) -> tuple[bool, bool, str]:
    return arm != "fault", arm != "fix", arm


def _logs(effect: dict[str, Any]) -> tuple[float, float, float]:
    ratio, low, high = (float(effect[k]) for k in ("ratio", "low", "high"))
    tiny = math.exp(-_FARTHEST)
    return math.log(ratio), math.log(max(low, tiny)), math.log(max(high, tiny))


def _told(item: Evidence) -> str:
    return wording.movement(item)


def _row(
    name: str, effect: float, low: float | None, high: float | None, told: str
) -> dict[str, Any]:
    low = effect if low is None or not math.isfinite(low) else max(low, -_FARTHEST)
    high = effect if high is None or not math.isfinite(high) else min(high, _FARTHEST)
    return {
        "signal": name, "times": math.exp(effect), "low": math.exp(low), "high": math.exp(high),
        "label": f"×{number(math.exp(effect))}", "told": told,
    }  # fmt: skip


def _intervals(rows: list[dict[str, Any]], title: str, width: int) -> Any:
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    base = alt.Chart(Rows(rows), width=max(width - 300, 240), height=24 * len(rows))
    y = alt.Y(
        "signal:N",
        sort=[r["signal"] for r in rows],
        title=None,
        axis=alt.Axis(labelLimit=250, domain=False, ticks=False),
    )
    scale = alt.Scale(type="log", nice=False, padding=12)
    axis = alt.Axis(format="~g", tickCount=6)
    tip = [alt.Tooltip("signal:N", title="figure"), alt.Tooltip("told:N", title="moved")]
    one = (
        alt.Chart(Rows([{"one": 1}]))
        .mark_rule(style="healthy")
        .encode(x=alt.X("one:Q", scale=scale))
    )
    stems = base.mark_rule(style="stem", strokeWidth=2).encode(
        x=alt.X("low:Q", scale=scale, title=title, axis=axis),
        x2=alt.X2("high:Q"),
        y=y,
        tooltip=tip,
    )
    points = base.mark_point(style="incident_fill", filled=True, size=80).encode(
        x=alt.X("times:Q", scale=scale), y=y, tooltip=tip
    )
    labels = base.mark_text(align="left", dx=6, dy=-6).encode(
        x=alt.X("high:Q", scale=scale), y=y, text=alt.Text("label:N")
    )
    return alt.layer(one, stems, points, labels)
