"""Where the added time of a request went: steps that add up, the residual last."""

from __future__ import annotations

from typing import Any

from rca.answer import Answer
from rca.plain import duration, percent, printable
from rca.postmortem.charts.style import WIDTH


def attribution(answer: Answer, width: int = WIDTH) -> Any:
    """A waterfall from the healthy mean to the incident's; None when nothing was attributed."""
    if not answer.attribution:
        return None
    import altair as alt

    from rca.postmortem.charts.rows import Rows

    rows = _steps(answer)
    order = [row["part"] for row in rows]
    room = 1.1 * max(row["end_ms"] for row in rows)  # for the last label
    x = alt.X(
        "from_ms:Q",
        title="ms",
        scale=alt.Scale(domainMax=room, nice=False),
        axis=alt.Axis(format=",.4~g", tickCount=6),
    )
    y = alt.Y("part:N", sort=order, title=None, axis=alt.Axis(domain=False, ticks=False))
    tip = [
        alt.Tooltip("part:N", title="part"),
        alt.Tooltip("told:N", title="added"),
        alt.Tooltip("share:N", title="share of the added time"),
        alt.Tooltip("evidence:N", title="evidence"),
    ]
    layers = [
        alt.Chart(Rows(of_kind))
        .mark_bar(style=style, height=16)
        .encode(x=x, x2=alt.X2("to_ms:Q"), y=y, tooltip=tip)
        for kind, style in _STYLES.items()
        if (of_kind := [row for row in rows if row["kind"] == kind])
    ]
    labels = (
        alt.Chart(Rows(rows))
        .mark_text(align="left", dx=5)
        .encode(x=alt.X("end_ms:Q"), y=y, text=alt.Text("told:N"), tooltip=tip)
    )
    return alt.layer(
        *layers,
        labels,
        width=width - 170,
        height=26 * len(rows),
        title="mean time of a request, healthy → incident",
    )


_STYLES = {
    "total": "healthy_fill",
    "added": "incident_fill",
    "saved": "node",
    "residual": "residual_fill",
}


def _steps(answer: Answer) -> list[dict[str, Any]]:
    start = sum(p.reference_ns for p in answer.attribution)
    rows = [_row("healthy", 0.0, start, "total", duration(start), "", "")]
    at = start
    for part in answer.attribution:
        kind = (
            "residual"
            if part.part == "residual"
            else "added"
            if part.delta_ns >= 0
            else "saved"
        )
        sign = "+" if part.delta_ns >= 0.5 else ""
        told = f"{sign}{duration(part.delta_ns)}"
        share = "" if part.share is None else percent(part.share)
        name = printable(part.part, 40).replace("_", " ")
        rows.append(
            _row(name, at, at + part.delta_ns, kind, told, share, printable(part.evidence, 12))
        )
        at += part.delta_ns
    rows.append(_row("incident", 0.0, at, "total", duration(at), "", ""))
    return rows


def _row(
    part: str, low_ns: float, high_ns: float, kind: str, told: str, share: str, evidence: str
) -> dict[str, Any]:
    return {
        "part": part, "from_ms": low_ns / 1e6, "to_ms": high_ns / 1e6, "kind": kind, "told": told,
        "share": share, "evidence": evidence, "end_ms": max(low_ns, high_ns) / 1e6,
    }  # fmt: skip
