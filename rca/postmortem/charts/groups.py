"""Groups of slow requests: how each differs from healthy requests of the same size."""

from __future__ import annotations

import json
from typing import Any

from rca.plain import number, printable
from rca.postmortem.charts.data import ChartData, query
from rca.postmortem.charts.style import WIDTH

_STRONG = 0.75  # from here on the box is too dark for dark text


def cluster_map(data: ChartData, width: int = WIDTH) -> Any:
    """Groups down, features across, coloured and labelled by their distance; None without groups."""
    found = data.case.rows(query("50_patterns.sql"))
    rows: list[dict[str, Any]] = [
        {"group": f"{printable(name, 60)} (n = {number(size)})",
         "feature": printable(feature, 40).replace("_", " "), "distance": float(value),
         "told": f"{value:+.2f}"}
        for _, name, size, centre in found
        for feature, value in json.loads(centre).items()
    ]  # fmt: skip
    if not rows:
        return None
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    groups = list(dict.fromkeys(r["group"] for r in rows))
    base = alt.Chart(
        Rows(rows),
        width=max(width - 270, 300),
        height=34 * len(groups),
        title="distance from healthy requests, −1 to 1",
    )
    x = alt.X(
        "feature:N",
        title=None,
        sort=None,
        axis=alt.Axis(labelAngle=0, labelLimit=110, orient="top", domain=False, ticks=False),
    )
    y = alt.Y(
        "group:N",
        title=None,
        sort=groups,
        axis=alt.Axis(labelLimit=280, domain=False, ticks=False),
    )
    tip = [
        alt.Tooltip("group:N"),
        alt.Tooltip("feature:N"),
        alt.Tooltip("told:N", title="distance"),
    ]
    boxes = base.mark_rect().encode(
        x=x,
        y=y,
        tooltip=tip,
        color=alt.Color(
            "distance:Q",
            scale=alt.Scale(domain=[-1, -0.5, 0, 0.5, 1], range="diverging", interpolate="rgb"),
            legend=None,
        ),
    )
    labels = [
        alt.Chart(Rows(told))
        .mark_text(style=style, fontSize=11)
        .encode(x=x, y=y, text=alt.Text("told:N"), tooltip=tip)
        for strong, style in ((False, "text"), (True, "inverse_text"))
        if (told := [row for row in rows if (abs(row["distance"]) > _STRONG) == strong])
    ]
    return alt.layer(boxes, *labels)
