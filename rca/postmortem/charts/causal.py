"""Cause and effect as a graph: from the change over the cause and what it moved to what users felt."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rca.answer import Answer
from rca.findings.records import Edge
from rca.plain import confidence, duration, printable

_COLUMNS = ("change", "cause", "mechanism", "symptom")
_GAP, _ROW, _BOX = 84, 58, 44  # px: between columns, from box to box, height of a box
_LINE, _LETTER, _MARGIN = 13, 6.4, 12  # px: from line to line, a letter, free in a box


_Channel = Callable[[str], Any]


class _Node(NamedTuple):
    lines: list[str]
    left: float
    middle: float


def causal_graph(answer: Answer, width: int) -> Any:
    """Boxes and arrows of `causal_edge`; None without a diagnosis or without edges."""
    edges = answer.findings.edges
    if answer.verdict.status != "diagnosed" or not edges:
        return None
    import altair as alt

    columns = _columns(edges)
    box = (width - _GAP * (len(columns) - 1)) / len(columns)
    height = _ROW * max(map(len, columns))
    nodes = _placed(columns, box, height)
    x, y = _scaled("X", width), _scaled("Y", height)
    lines = _layers(_arrows(edges, nodes, box), x, y)
    boxes = [
        {"x": n.left, "x2": n.left + box, "y": n.middle - _BOX / 2, "y2": n.middle + _BOX / 2,
         "middle": n.left + box / 2, "at": n.middle + _LINE / 2 * (len(n.lines) - 1), "label": n.lines}
        for n in nodes.values()
    ]  # fmt: skip
    from rca.postmortem.charts.rows import Rows

    base = alt.Chart(Rows(boxes))
    frames = base.mark_rect(style="node", cornerRadius=4).encode(
        x=x("x"), x2=alt.X2("x2:Q"), y=y("y"), y2=alt.Y2("y2:Q")
    )
    words = base.mark_text(
        style="text", fontSize=11, lineHeight=_LINE, baseline="middle"
    ).encode(x=x("middle"), y=y("at"), text=alt.Text("label:N"))
    bare = alt.ViewBackground(stroke=None)
    return alt.layer(*lines, frames, words, width=width, height=height, view=bare)


def _scaled(name: str, size: float) -> _Channel:
    """Positions in px, from the left or from the bottom, without an axis."""
    import altair as alt

    scale = alt.Scale(domain=[0, size], nice=False, zero=False)
    return lambda field: getattr(alt, name)(f"{field}:Q", scale=scale, axis=None)


def _columns(edges: Sequence[Edge]) -> list[dict[str, str]]:
    """Labels by key for each kind that there is, in the order in which one would tell them."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in _COLUMNS}
    for edge in edges:
        for kind, key, label in (
            (edge.cause_kind, edge.cause, edge.cause_label),
            (edge.effect_kind, edge.effect, edge.effect_label),
        ):
            found.setdefault(kind, {}).setdefault(key, printable(label, 66))
    return [column for column in found.values() if column]


def _placed(columns: list[dict[str, str]], box: float, height: float) -> dict[str, _Node]:
    """Each column down the middle of the picture; the first of it on top, where y is largest."""
    nodes = {}
    letters = max(int((box - _MARGIN) / _LETTER), 8)
    for position, column in enumerate(columns):
        step = height / len(column)
        for row, (key, label) in enumerate(column.items()):
            middle = height - step * (row + 0.5)
            nodes[key] = _Node(
                textwrap.wrap(label, letters)[:3], position * (box + _GAP), middle
            )
    return nodes


def _arrows(edges: Sequence[Edge], nodes: dict[str, _Node], box: float) -> list[dict[str, Any]]:
    """Lines from side to side, with words at their middle."""
    rows = []
    for edge in edges:
        start, end = nodes[edge.cause], nodes[edge.effect]
        left, right = start.left + box, end.left - 5
        said = confidence(edge.confidence)
        if edge.order_seen == "effect first":
            said += ", effect first"
        elif edge.lag_ns is not None:
            said += f", {duration(edge.lag_ns)}"
        rows.append(
            {"x": left, "x2": right, "y": start.middle, "y2": end.middle, "told": said,
             "at": (left + right) / 2, "level": (start.middle + end.middle) / 2,
             "order": edge.order_seen}
        )  # fmt: skip
    return rows


def _layers(rows: list[dict[str, Any]], x: _Channel, y: _Channel) -> list[Any]:
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    layers = []
    for known, dash in ((True, [1, 0]), (False, [4, 3])):
        mine = [r for r in rows if (r["order"] == "cause first") == known]
        if mine:
            layers.append(
                alt.Chart(Rows(mine))
                .mark_rule(style="stem", strokeDash=dash)
                .encode(x=x("x"), x2=alt.X2("x2:Q"), y=y("y"), y2=alt.Y2("y2:Q"))
            )
    base = alt.Chart(Rows(rows))
    heads = base.mark_point(style="incident_fill", filled=True, shape="triangle-right", size=60)
    words = base.mark_text(style="text", fontSize=10, dy=-7)
    return [
        *layers,
        heads.encode(x=x("x2"), y=y("y2")),
        words.encode(x=x("at"), y=y("level"), text=alt.Text("told:N")),
    ]
