"""Everything recorded of an incident on one axis of time: the unified timeline."""

from __future__ import annotations

from typing import Any, Literal

from rca.answer import Answer, Evidence, wording
from rca.plain import moment, printable
from rca.postmortem.charts.data import ChartData
from rca.postmortem.charts.request_rows import band, dots, in_flight
from rca.postmortem.charts.style import WIDTH

_MOST_SIGNALS = 4
_BINS = 120
_CHARACTER_PX = 6
_BESIDE: tuple[tuple[str, Literal["left", "right"], int], ...] = (
    ("right", "left", 8),
    ("left", "right", -8),
)
_LABEL_PX = 330
_THOUSANDS = 10_000  # from here on an axis counts in k and M


def timeline(data: ChartData, width: int = WIDTH) -> Any:
    """Changes and alerts, requests, queue, GPU streams, key signals; None when there is no time.

    Where it is live, all panels move together: dragging shifts them, the wheel zooms while Shift
    is held (alone it scrolls the page), a double click shows all, a click picks a request.
    """
    drawn = _Panels(data, width)
    panels = [
        p for p in (drawn.requests(), drawn.load(), drawn.streams(), *drawn.signals()) if p
    ]
    if not panels:
        return None
    import altair as alt

    marks = drawn.marks()
    whole = alt.vconcat(
        *([marks] if marks else []),
        *panels,
        drawn.clock(),
        spacing=8,
        usermeta={"range": drawn.range},
        resolve=alt.Resolve(
            scale=alt.ScaleResolveMap(
                x="shared", color="independent", shape="independent", strokeDash="independent"
            )
        ),
    )
    _move_together(whole)
    return whole


def _move_together(whole: Any) -> None:
    """One selection for all panels, listed at the first layer of each.

    Altair's own way, `add_params`, copies every panel several times and lists layers that have a
    selection of their own as well.
    """
    import altair as alt

    views = []
    for number, panel in enumerate(whole.vconcat):
        first = panel.layer[0] if isinstance(panel, alt.LayerChart) else panel
        first.name = f"panel_{number}"
        views.append(first.name)
    zoom = alt.TopLevelSelectionParameter(
        name="zoom",
        select=alt.IntervalSelectionConfig(
            type="interval", encodings=["x"], zoom="wheel![event.shiftKey]"
        ),
        bind="scales",
        views=views,
    )
    picks = [] if alt.utils.is_undefined(whole.params) else whole.params
    whole.params = [*picks, zoom]


class _Panels:
    """The panels of the timeline; each None when there is nothing to draw."""

    def __init__(self, data: ChartData, width: int) -> None:
        self._data, self._answer, self._width = data, data.answer, width
        self._key = _key_signals(data.answer)
        self._points = data.signals(self._key)
        self._first, self._last = self.range = self._range()
        self._x = self._time_axis(labels=False, ticks=False, domain=False)

    def _time_axis(self, **axis: Any) -> Any:
        import altair as alt

        scale = alt.Scale(type="utc", nice=False)
        return alt.X("at:T", title=None, scale=scale, axis=alt.Axis(**axis))

    def clock(self) -> Any:
        """The axis of time below all panels."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        base = alt.Chart(Rows([{"at": self._first}, {"at": self._last}]))
        return base.mark_rule(opacity=0).encode(
            x=self._time_axis(format="%H:%M:%S", labelOverlap=True, grid=False, offset=-8)
        ).properties(width=self._width, height=1)  # fmt: skip

    def marks(self) -> Any:
        """Changes and alerts, each with its name, on levels so that names keep apart."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        rows = self._visible_marks()
        if not rows:
            return None
        base = alt.Chart(Rows(rows))
        y = alt.Y("level:O", axis=None)
        tip = [
            alt.Tooltip("time:N", title="UTC"),
            alt.Tooltip("kind:N"),
            alt.Tooltip("text:N", title="what"),
        ]
        points = base.mark_point(style="mark_point", filled=True, size=70).encode(
            x=self._x,
            y=y,
            tooltip=tip,
            shape=alt.Shape(
                "kind:N",
                scale=alt.Scale(domain=["change", "alert"], range=["diamond", "triangle-up"]),
                legend=None,
            ),
        )
        names = [
            alt.Chart(Rows(beside))
            .mark_text(align=align, dx=dx, limit=_LABEL_PX)
            .encode(x=self._x, y=y, text=alt.Text("text:N"), tooltip=tip)
            for side, align, dx in _BESIDE
            if (beside := [r for r in rows if r["side"] == side])
        ]
        height = 18 * len({r["level"] for r in rows})
        return self._layer("changes ◆ and alerts ▲", [points, *names], height, ruled=False)

    def _visible_marks(self) -> list[dict[str, Any]]:
        """Marks in the range of time, each on the first level where its name is free of others."""
        per_ms = self._width / max(self._last - self._first, 1.0)
        free_from: list[float] = []
        rows: list[dict[str, Any]] = []
        for mark in self._data.marks:
            at = mark.ts_ns / 1e6
            if not self._first <= at <= self._last:
                continue
            text = printable(mark.text, 120)
            long, place = (
                min(_LABEL_PX, _CHARACTER_PX * len(text)) + 24,
                (at - self._first) * per_ms,
            )
            side = "right" if place + long < self._width else "left"
            begin = place - 8 if side == "right" else place - long
            level = next((i for i, x in enumerate(free_from) if x <= begin), len(free_from))
            free_from[level : level + 1] = [begin + long]
            rows.append({"at": at, "kind": mark.kind, "text": text, "time": moment(mark.ts_ns),
                         "level": level, "side": side})  # fmt: skip
        return rows

    def requests(self) -> Any:
        """Latency of the requests by arrival: a band of all of them, single ones as marks."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        rows = self._data.recorded
        if rows.is_empty():
            return None
        y = alt.Scale(type="log", nice=False, padding=4)
        spread = alt.Chart(Rows(band(rows, _BINS)))
        tip = [
            alt.Tooltip(f"{name}:N", title=title)
            for name, title in (
                ("time", "arrival, UTC"), ("e2e", "end to end"), ("ttft", "first token"),
                ("queue", "queue"), ("status", "status"), ("tenant", "tenant"),
                ("replica", "replica"), ("trace", "trace"),
            )
        ]  # fmt: skip
        shape = alt.Shape(
            "status:N",
            scale=alt.Scale(domain=["ok", "error"], range=["circle", "cross"]),
            legend=alt.Legend(title=None, orient="top-right", direction="horizontal")
            if "error" in rows["status"].to_list()
            else None,
        )
        single = alt.Chart(Rows(dots(rows))).mark_point(style="dots", filled=True)
        title = "end to end (s)"
        single = single.encode(
            x=self._x, y=alt.Y("e2e_s:Q", scale=y, title=None), shape=shape, tooltip=tip
        )
        pick = alt.selection_point(name="pick", fields=["trace"], on="click", empty=False)
        single = single.add_params(pick).encode(
            size=alt.condition(pick, alt.value(160), alt.value(22))
        )
        layers = [
            spread.mark_area(style="band").encode(
                x=self._x, y=alt.Y("p50_s:Q", scale=y, title=None), y2=alt.Y2("p99_s:Q")
            ),
            single,
            spread.mark_line(style="middle").encode(x=self._x, y=alt.Y("p50_s:Q", scale=y)),
        ]
        return self._layer(
            f"requests, {title}: each one, and median to p99 of all", layers, 130
        )

    def load(self) -> Any:
        """Requests that run and that wait, counted from their spans."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        rows = in_flight(self._data.recorded, _BINS)
        if not rows:
            return None
        base = alt.Chart(Rows(rows))
        lines = base.mark_line(interpolate="step-after", style="stem").encode(
            x=self._x,
            y=alt.Y("n:Q", title=None),
            color=alt.Color("what:N", legend=None),
            strokeDash=alt.StrokeDash(
                "what:N",
                scale=alt.Scale(domain=["in flight", "waiting"], range=[[1, 0], [5, 3]]),
                legend=alt.Legend(title=None, orient="top-left", direction="horizontal"),
            ),
            tooltip=[
                alt.Tooltip("time:N", title="UTC"), alt.Tooltip("what:N"),
                alt.Tooltip("n:Q", format=".2f", title="requests"),
            ],
        )  # fmt: skip
        return self._layer("requests in flight, and of them waiting in a queue", [lines], 70)

    def streams(self) -> Any:
        """How busy GPU streams were while they were captured."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        rows = self._data.streams
        if rows.is_empty():
            return None
        values = [
            {"at": (zero + a) / 1e6, "end": (zero + b) / 1e6, "lane": lane, "busy": float(busy),
             "n": n, "time": moment(zero + a), "longest": printable(longest, 80)}
            for zero, a, b, lane, busy, n, longest in rows.select(
                "zero_ns", "start_ns", "end_ns", "lane", "busy", "n", "longest"
            ).iter_rows()
        ]  # fmt: skip
        boxes = (
            alt.Chart(Rows(values))
            .mark_rect()
            .encode(
                x=self._x,
                x2=alt.X2("end:T"),
                y=alt.Y("lane:N", title=None),
                color=alt.Color(
                    "busy:Q",
                    scale=alt.Scale(domain=[0, 1], range="ramp"),
                    legend=alt.Legend(title="busy", format="%", orient="right"),
                ),
                tooltip=[
                    alt.Tooltip("time:N", title="UTC"),
                    alt.Tooltip("busy:Q", format=".0%"),
                    alt.Tooltip("n:Q", title="operations"),
                    alt.Tooltip("longest:N", title="longest"),
                ],
            )
        )
        lanes = len({v["lane"] for v in values})
        return self._layer("GPU streams, share of time busy", [boxes], 18 * lanes)

    def signals(self) -> list[Any]:
        """One panel each for the signals that tell of the cause."""
        return [
            self._signal(item, points)
            for item, points in zip(self._key, self._points, strict=True)
            if len(points) > 1
        ]

    def _signal(self, item: Evidence, points: list[tuple[int, float]]) -> Any:
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        unit, scale = item.unit, 1.0
        if unit == "s" and max(abs(value) for _, value in points) < 2:
            unit, scale = "ms", 1e3
        rows: list[dict[str, Any]] = [
            {"at": ts / 1e6, "value": value * scale, "time": moment(ts)} for ts, value in points
        ]
        line = alt.Chart(Rows(rows)).mark_line(style="stem", strokeWidth=1.4)
        largest = max(abs(row["value"]) for row in rows)
        form = "~%" if unit == "share" else "~s" if largest >= _THOUSANDS else ",.6~g"
        tip = [alt.Tooltip("time:N", title="UTC"), alt.Tooltip("value:Q", format=".4~g")]
        layers = [
            line.encode(x=self._x, y=alt.Y("value:Q", title=None, axis=alt.Axis(tickCount=4, format=form)), tooltip=tip)
        ]  # fmt: skip
        if item.reference is not None:
            healthy = alt.Chart(Rows([{"value": item.reference * scale}]))
            layers.append(healthy.mark_rule(style="healthy").encode(y=alt.Y("value:Q")))
        name = wording.label(item)
        title = (
            f"{name} ({unit})  {item.id}" if unit not in {"", "share"} else f"{name}  {item.id}"
        )
        return self._layer(title, layers, 64)

    def _layer(self, title: str, layers: list[Any], height: int, *, ruled: bool = True) -> Any:
        """Layers over the window and, where they cross no words, the lines of changes, under a title."""
        import altair as alt

        from rca.postmortem.charts.rows import Rows

        under: list[Any] = []
        window = self._answer.window
        if window.start_ns is not None and window.end_ns is not None:
            shade = [{"at": window.start_ns / 1e6, "end": window.end_ns / 1e6}]
            under.append(
                alt.Chart(Rows(shade))
                .mark_rect(style="window")
                .encode(x=self._x, x2=alt.X2("end:T"))
            )
        rules = [{"at": m["at"]} for m in self._visible_marks()]
        if rules and ruled:
            under.append(alt.Chart(Rows(rules)).mark_rule(style="change").encode(x=self._x))
        return alt.layer(
            *under,
            *layers,
            title=alt.TitleParams(
                title, fontSize=11, fontWeight="normal", offset=3, frame="group"
            ),
            width=self._width,
            height=max(height, 18),
        )

    def _range(self) -> tuple[float, float]:
        """First and last moment that any panel draws, ms since the Unix epoch."""
        rows = self._data.recorded
        times = [ts for points in self._points for ts, _ in points]
        if not rows.is_empty():
            times += [rows["start_ns"].min(), rows["end_ns"].max()]  # type: ignore[list-item]
        if not self._data.streams.is_empty():
            times += (self._data.streams["zero_ns"] + self._data.streams["end_ns"]).to_list()
            times += self._data.streams["zero_ns"].to_list()
        window = self._answer.window
        times += [t for t in (window.start_ns, window.end_ns) if t is not None]
        return (min(times) / 1e6, max(times) / 1e6) if times else (0.0, 1.0)


def _key_signals(answer: Answer) -> list[Evidence]:
    lead = answer.leading
    chosen = answer.cited(lead.evidence) if lead else answer.strongest(9)
    timed = [
        e
        for e in chosen
        if e.role and e.source in {"metrics", "trace"} and e.direction != "event"
    ]
    timed.sort(key=lambda e: not e.is_symptom)
    return timed[:_MOST_SIGNALS]
