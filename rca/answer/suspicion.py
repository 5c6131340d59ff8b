"""Which service moved most, whatever the cause: what a ranking says beyond the verdict."""

from __future__ import annotations

from itertools import groupby

from rca.answer import Answer, Suspect
from rca.plain import number, printable, quantity, role_words

_TELLING = 1.0
"""Score from which on a service has moved: about two of its own spreads for CPU and memory, six for a latency."""
_BESIDE = 1 / 3
"""Share of the first service's score from which on another one counts beside a cause that is known."""
_MOST_SPREADS = 1000
_SPANS = {
    "call_gap": "time before {} answers",
    "span_self": "own time of {}",
    "span_errors": "failed {}",
}


def services(answer: Answer) -> list[list[Suspect]]:
    """The services that moved, best first, each with its metrics in the order of their places."""
    order: dict[str | None, int] = {}
    for one in answer.suspects:
        order.setdefault(one.service, one.rank)
    placed = sorted(answer.suspects, key=lambda s: (order[s.service], s.rank))
    groups = [list(g) for _, g in groupby(placed, key=lambda s: order[s.service])]
    return [g for g in groups if g[0].score >= _TELLING]


def unexplained(answer: Answer) -> list[str]:
    """Services that moved and that the cause does not account for; all that moved, without a cause.

    Beside a cause those count that moved nearly as far as the first, and by more than what users feel.
    """
    moved = [g[0] for g in services(answer)]
    if answer.verdict.status != "diagnosed":
        return [s.service for s in moved if s.service]
    lead = answer.leading
    known = {e.service for e in answer.cited(lead.evidence)} if lead else set()
    return [
        s.service
        for s in moved
        if s.service and s.service not in known and not s.is_symptom
        and s.score >= _BESIDE * answer.suspects[0].score
    ]  # fmt: skip


def named(one: Suspect) -> str:
    """The metric or span that moved."""
    if one.role in _SPANS:
        return printable(_SPANS[one.role].format(one.metric), 90)
    return role_words(one.role) if one.role else printable(one.metric, 90)


def levels(one: Suspect) -> tuple[str, str]:
    """Its healthy value and that of the incident, empty where they were not kept."""
    if one.reference is None or one.observed is None:
        return "", ""
    return quantity(one.reference, one.unit), quantity(one.observed, one.unit)


def spreads(one: Suspect) -> str:
    """How many of its usual spreads it moved by; empty where that was not kept."""
    if one.spreads is None:
        return ""
    return number(one.spreads) if one.spreads <= _MOST_SPREADS else f"over {_MOST_SPREADS:,}"


def most_changed(answer: Answer) -> str:
    """One line on the first suspect; empty where there is none."""
    first = next(iter(answer.suspects), None)
    if first is None:
        return ""
    service = f"service {printable(first.service, 60)}, " if first.service else ""
    text = f"most changed: {service}metric {named(first)}"
    before, after = levels(first)
    if before:
        text += f" {before} → {after}"
    far = spreads(first)
    return f"{text}, {far} of its usual spreads away" if far else text
