"""What brought what about: edges from change to cause, mechanism and symptom.

Which ends belong together is what the catalogue says of a cause, and the evidence that the
hypothesis rests on. The order is never inferred from correlation: a lag is told only where both
onsets were measured and lie further apart than two of their steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from rca.case import Case
from rca.plain import printable, role_words
from rca.signals import load, meanings

_TOLD = 0.1
"""Confidence from which on a second hypothesis has a graph of its own."""
_MECHANISMS = 5
_SYMPTOMS = 3
_CLEAR_STEPS = 2
_FIRST = ("resource", "code", "dependency", "demand", "lifecycle")


@dataclass(frozen=True)
class Node:
    """An end of an edge; `strength` is how strongly it moved, `step_ns` how exactly its onset is known."""

    key: str
    label: str
    kind: str
    strength: float
    onset_ns: int | None
    step_ns: int
    clock: str
    layer: str = ""


@dataclass(frozen=True)
class Lag:
    """From onset to onset, ns; nothing but the order 'unknown' where it cannot be told."""

    order: str = "unknown"
    ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None


def draw(case: Case) -> None:
    """Write causal_edge for the hypotheses that are believed."""
    case.clear(["causal_edge"])
    rows: list[dict[str, object]] = []
    steps = _steps(case)
    clocks_agree = not case.scalar(
        "SELECT count(*) FROM ingest_note WHERE code = 'clock_skew_unknown'"
    )
    for cause, confidence, evidence, change in case.rows(
        "SELECT cause, confidence, evidence, change_id FROM hypothesis ORDER BY rank"
    ):
        if rows and confidence < _TOLD:
            break
        for begin, end in _pairs(case, cause, json.loads(evidence), change, steps):
            lag = lag_of(begin, end, clocks_agree=clocks_agree)
            rows.append(_row(len(rows) + 1, cause, confidence, begin, end, lag))
    if rows:
        case.insert("causal_edge", pl.DataFrame(rows, infer_schema_length=None))


def lag_of(begin: Node, end: Node, *, clocks_agree: bool) -> Lag:
    """The lag between two onsets, where their order is beyond doubt.

    An onset is the first point out of range, so it happened within a step before that point.
    """
    if begin.onset_ns is None or end.onset_ns is None:
        return Lag()
    if begin.clock != end.clock and not clocks_agree:
        return Lag()
    low = end.onset_ns - end.step_ns - begin.onset_ns
    high = end.onset_ns - (begin.onset_ns - begin.step_ns)
    clear = _CLEAR_STEPS * max(begin.step_ns, end.step_ns, 1)
    middle = (low + high) // 2
    if low >= clear:
        return Lag("cause first", middle, low, high)
    if high <= -clear:
        return Lag("effect first", middle, low, high)
    return Lag()


def _row(
    number: int, hypothesis: str, confidence: float, begin: Node, end: Node, lag: Lag
) -> dict[str, object]:
    sure = confidence * min(begin.strength, end.strength)
    return {
        "id": number, "hypothesis": hypothesis,
        "cause": begin.key, "cause_label": begin.label, "cause_kind": begin.kind,
        "effect": end.key, "effect_label": end.label, "effect_kind": end.kind,
        "confidence": sure / 2 if lag.order == "effect first" else sure,
        "order_seen": lag.order, "lag_ns": lag.ns, "lag_low_ns": lag.low_ns, "lag_high_ns": lag.high_ns,
    }  # fmt: skip


def _pairs(
    case: Case, cause: str, evidence: list[str], change: str | None, steps: dict[str, int]
) -> Iterator[tuple[Node, Node]]:
    """Ends of the edges of one hypothesis: change → cause → first movers → states → symptoms."""
    moved = _moved(case, evidence, steps)
    symptoms = [n for n in moved if n.kind == "symptom"][:_SYMPTOMS]
    mechanisms = [n for n in moved if n.kind == "mechanism"][:_MECHANISMS]
    first = [n for n in mechanisms if n.layer in _FIRST]
    states = [n for n in mechanisms if n.layer not in _FIRST]
    onsets = [n for n in (*mechanisms, *symptoms) if n.onset_ns is not None]
    begin = min(onsets, key=lambda n: n.onset_ns or 0, default=None)
    root = Node(
        f"cause:{cause}", printable(cause, 60).replace("_", " "), "cause", 1.0,
        begin.onset_ns if begin else None, begin.step_ns if begin else 0,
        begin.clock if begin else "",
    )  # fmt: skip
    changed = _change(case, change)
    if changed:
        yield changed, root
    # The cause itself has no onset but that of the first thing it moved: no lag to tell.
    quiet = Node(root.key, root.label, root.kind, 1.0, None, 0, "")
    for node in first or states or symptoms:
        yield quiet, node
    for begin_nodes, end_nodes in ((first, states), (states or first, symptoms)):
        yield from ((a, b) for a in begin_nodes for b in end_nodes)


def _moved(case: Case, evidence: Iterable[str], steps: dict[str, int]) -> list[Node]:
    wanted = list(evidence)
    rows = case.rows(
        "SELECT id, source, role, coalesce(service, ''), subject, strength, onset_ns FROM evidence "
        "WHERE direction NOT IN ('flat', 'event') AND list_contains(?, id) AND role IS NOT NULL "
        "ORDER BY abs(strength) DESC, id",
        (wanted,),
    )
    nodes = []
    for key, source, role, service, _, strength, onset in rows:
        layer = meanings()[role].layer if role in meanings() else "state"
        label = f"{role_words(role)} {'up' if strength > 0 else 'down'}"
        if service:
            label = f"{printable(service, 40)}: {label}"
        kind = "symptom" if layer == "symptom" else "mechanism"
        step = steps.get(f"{source}/{role}/{service}", 0)
        nodes.append(Node(key, label, kind, abs(strength), onset, step, source, layer))
    return nodes


def _change(case: Case, change: str | None) -> Node | None:
    rows = case.rows(
        "SELECT c.subject, c.ts_ns + s.shift_ns FROM change AS c JOIN source AS s ON s.id = c.source_id "
        "WHERE c.id = ? AND s.part = 'incident' ORDER BY 2 LIMIT 1",
        (change,),
    )
    if not rows:
        return None
    subject, ts_ns = rows[0]
    return Node(
        f"change:{change}",
        f"change of {printable(subject, 60)}",
        "change",
        1.0,
        ts_ns,
        0,
        "change",
    )


def _steps(case: Case) -> dict[str, int]:
    """Usual distance of the points of each signal, ns."""
    return {
        f"{s.source}/{s.role}/{s.service}": int(np.median(np.diff(s.incident.ts_ns)))
        for s in load(case)
        if len(s.incident.ts_ns) > 1
    }
