"""Charts of a case: one message each, readable without colour, as Altair and as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca import wording
from rca.answer import Answer, Evidence, read
from rca.case import Case, sql_files
from rca.plain import printable

_INK, _GREY, _SHADE, _ACCENT = "#222222", "#8a8a8a", "#f3dede", "#b3261e"
_WIDTH = 640
_MAX_SIGNALS = 5
_MINUTES_SUFFICE_NS = 600_000_000_000


@dataclass(frozen=True)
class Chart:
    """One chart of the document, its file below the output folder."""

    title: str
    message: str
    path: str
    svg: str


class Charts:
    """The charts of a case for notebooks, Altair's; None where the case has nothing to show."""

    def __init__(self, case: Case) -> None:
        self._case, self._answer = case, read(case)

    def attribution(self) -> Any:
        """Which parts of a request became longer."""
        return attribution(self._answer)

    def timeline(self) -> Any:
        """Key signals around the incident window."""
        return signals(self._case, self._answer)

    def effects(self) -> Any:
        """How far each signal moved against the healthy reference."""
        return effects(self._answer)


def draw(case: Case, answer: Answer, folder: Path | None) -> list[Chart]:
    """All charts that the case has data for, written to FOLDER/*.svg unless it is None."""
    makers: list[tuple[str, str, str, Callable[[], Any]]] = [
        ("attribution", "Added latency by part", "Where the added time of a request went; the parts add up.", lambda: attribution(answer)),
        ("signals", "Key signals over time", "Shaded: the incident window. Grey line: the healthy value. Dashes: a change.", lambda: signals(case, answer)),
        ("effects", "Before and after", "Each signal in the window against its healthy value, with its 95 % interval.", lambda: effects(answer)),
    ]  # fmt: skip
    from altair.utils.schemapi import debug_mode

    drawn = []
    for name, title, message, make in makers:
        with debug_mode(False):  # as above: no checks against the schema while it is built
            chart = make()
        if chart is not None:
            drawn.append(Chart(title, message, f"charts/{name}.svg", svg(chart, name)))
    if folder is not None and drawn:
        folder.mkdir(parents=True, exist_ok=True)
        for chart in drawn:
            (folder / Path(chart.path).name).write_text(
                chart.svg, encoding="utf-8", newline="\n"
            )
    return drawn


def svg(chart: Any, name: str) -> str:
    """The chart as SVG text whose ids depend on its content only."""
    import altair as alt
    import vl_convert

    # Straight to the converter: the charts are made here, so checking them against the schema
    # of Vega-Lite each time would only take longer than drawing them.
    version = alt.SCHEMA_VERSION.rpartition(".")[0]
    text = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=version)
    for number, found in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', text))):
        text = re.sub(
            rf'(\bid="|url\(#|href="#){re.escape(found)}(?=["\)])',
            rf"\g<1>{name}-{number}",
            text,
        )
    return text.strip() + "\n"


def attribution(answer: Answer) -> Any:
    """Bars of the added milliseconds, one a part, the residual last."""
    if not answer.attribution:
        return None
    import altair as alt

    rows = [
        {"part": printable(p.part, 40).replace("_", " "), "added_ms": p.delta_ns / 1e6,
         "kind": "residual" if p.part == "residual" else "explained"}
        for p in answer.attribution
    ]  # fmt: skip
    order = [str(row["part"]) for row in rows]
    bars = alt.Chart(
        alt.InlineData(values=rows), width=_WIDTH - 120, height=24 * len(rows)
    ).mark_bar(stroke=_INK)
    return bars.encode(
        x=alt.X("added_ms:Q", title="added time of a request (ms)"),
        y=alt.Y("part:N", sort=order, title=None),
        fill=alt.Fill(
            "kind:N",
            scale=alt.Scale(domain=["explained", "residual"], range=[_ACCENT, "#ffffff"]),
            legend=None,
        ),
    )


def effects(answer: Answer) -> Any:
    """Points of observed / healthy on a logarithmic axis, with intervals."""
    lead = answer.leading
    chosen = answer.cited(lead.evidence + lead.contradicting) if lead else answer.strongest(8)
    rows = [_effect_row(e) for e in chosen if e.effect is not None and abs(e.effect) < 20]
    if not rows:
        return None
    import altair as alt

    base = alt.Chart(alt.InlineData(values=rows), width=_WIDTH - 220, height=26 * len(rows))
    order = [row["signal"] for row in rows]
    y = alt.Y("signal:N", sort=order, title=None, axis=alt.Axis(labelLimit=220))
    scale = alt.Scale(type="log")
    one = (
        alt.Chart(alt.InlineData(values=[{"one": 1}]))
        .mark_rule(stroke=_GREY)
        .encode(x=alt.X("one:Q", scale=scale))
    )
    bars = base.mark_rule(stroke=_INK).encode(
        x=alt.X("low:Q", scale=scale, title="incident / healthy (×)"), x2="high:Q", y=y
    )
    points = base.mark_point(filled=True, size=70, color=_ACCENT).encode(
        x=alt.X("times:Q", scale=scale), y=y
    )
    return alt.layer(one, bars, points)


def signals(case: Case, answer: Answer) -> Any:
    """Lines of the strongest signals, one below the other on one time axis."""
    chosen = _key_signals(answer)
    if not chosen or not case.has("signal_value"):
        return None
    points = _points(case, chosen)
    panels = [
        _panel(answer, item, points[place])
        for place, item in enumerate(chosen)
        if len(points[place]) > 1
    ]
    if not panels:
        return None
    import altair as alt

    return alt.vconcat(*panels, spacing=12).resolve_scale(x="shared")


def _key_signals(answer: Answer) -> list[Evidence]:
    lead = answer.leading
    chosen = answer.cited(lead.evidence) if lead else answer.strongest(9)
    timed = [
        e
        for e in chosen
        if e.role and e.source in {"metrics", "trace"} and e.direction != "event"
    ]
    timed.sort(key=lambda e: not e.is_symptom)
    return timed[:_MAX_SIGNALS]


def _points(case: Case, chosen: list[Evidence]) -> list[list[tuple[int, float]]]:
    """Time and value of each signal, in the order of `chosen`."""
    query = dict(sql_files("postmortem"))["80_signals.sql"].strip().removesuffix(";")
    asked = [
        [e.role for e in chosen],
        [e.service or "" for e in chosen],
        [e.source for e in chosen],
    ]
    found: list[list[tuple[int, float]]] = [[] for _ in chosen]
    for place, ts_ns, value in case.rows(query, asked):
        if value is not None and math.isfinite(value):
            found[place].append((ts_ns, value))
    return found


def _panel(answer: Answer, item: Evidence, points: list[tuple[int, float]]) -> Any:
    import altair as alt

    rows = [{"at": ts // 1_000_000, "value": value} for ts, value in points]
    clock = "%H:%M" if points[-1][0] - points[0][0] > _MINUTES_SUFFICE_NS else "%H:%M:%S"
    x = alt.X("at:T", scale=alt.Scale(type="utc"), title=None, axis=alt.Axis(format=clock))
    title = f"{wording.label(item)} ({item.unit})" if item.unit else wording.label(item)
    line = alt.Chart(alt.InlineData(values=rows)).mark_line(color=_INK, strokeWidth=1.3)
    layers = [
        *_marks(answer, points[0][0], points[-1][0]),
        line.encode(x=x, y=alt.Y("value:Q", title=None)),
    ]
    if item.reference is not None:
        healthy = alt.Chart(alt.InlineData(values=[{"value": item.reference}]))
        layers.append(healthy.mark_rule(color=_GREY, strokeWidth=2).encode(y="value:Q"))
    anchor = alt.TitleParams(f"{title}  {item.id}", anchor="start", fontSize=11, color=_INK)
    return alt.layer(*layers, title=anchor, width=_WIDTH, height=80)


def _marks(answer: Answer, first_ns: int, last_ns: int) -> list[Any]:
    import altair as alt

    marks: list[Any] = []
    window = answer.window
    if window.start_ns is not None and window.end_ns is not None:
        shade = [{"at": window.start_ns // 1_000_000, "end": window.end_ns // 1_000_000}]
        marks.append(
            alt.Chart(alt.InlineData(values=shade))
            .mark_rect(color=_SHADE)
            .encode(x="at:T", x2="end:T")
        )
    changes = [
        {"at": c.ts_ns // 1_000_000}
        for c in answer.changes.values()
        if first_ns <= c.ts_ns <= last_ns
    ]
    if changes:
        rule = alt.Chart(alt.InlineData(values=changes)).mark_rule(
            color=_INK, strokeDash=[4, 3]
        )
        marks.append(rule.encode(x="at:T"))
    return marks


def _effect_row(item: Evidence) -> dict[str, Any]:
    effect = item.effect or 0.0
    low = effect if item.effect_low is None else item.effect_low
    high = effect if item.effect_high is None else item.effect_high
    return {
        "signal": f"{wording.label(item)}  {item.id}",
        "times": math.exp(effect),
        "low": math.exp(max(low, -20)),
        "high": math.exp(min(high, 20)),
    }
