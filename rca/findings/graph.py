"""The causal graph as a definition that others draw (Mermaid's flowchart)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rca.findings.records import Edge
from rca.plain import confidence, duration, printable

_SHAPES = {
    "change": ("[/", "/]"),
    "cause": ("([", "])"),
    "mechanism": ("[", "]"),
    "symptom": ("{{", "}}"),
}


def mermaid(edges: Sequence[Edge]) -> str:
    """The definition; empty without edges. Names are written so that none can be markup."""
    if not edges:
        return ""
    nodes: dict[str, str] = {}
    lines = []
    for edge in edges:
        ends = []
        for key, label, kind in (
            (edge.cause, edge.cause_label, edge.cause_kind),
            (edge.effect, edge.effect_label, edge.effect_kind),
        ):
            if key not in nodes:
                nodes[key] = f"n{len(nodes)}"
                opened, closed = _SHAPES.get(kind, ("[", "]"))
                lines.append(f'    {nodes[key]}{opened}"{_escaped(label)}"{closed}')
            ends.append(nodes[key])
        lines.append(f'    {ends[0]} -->|"{_escaped(_told(edge))}"| {ends[1]}')
    return "\n".join(["flowchart LR", *lines])


def _told(edge: Edge) -> str:
    said = confidence(edge.confidence)
    if edge.lag_ns is None:
        return said
    if edge.order_seen == "effect first":
        return f"{said}, effect seen {duration(abs(edge.lag_ns))} earlier"
    return f"{said}, after {duration(edge.lag_ns)}"


def _escaped(text: str) -> str:
    """Everything but letters, digits and plain punctuation by its number."""
    return re.sub(r"[^\w .,:/%()+-]", lambda m: f"#{ord(m[0])};", printable(text, 100))
