"""What each service did: those that moved most, whatever the cause, and the golden signals."""

from __future__ import annotations

from collections.abc import Iterator

from rca.answer import Answer, suspicion
from rca.case import Case
from rca.plain import number, printable
from rca.postmortem.golden import tell as tell_golden
from rca.postmortem.section import Section

_SERVICES = 8


def tell(case: Case, answer: Answer) -> list[Section]:
    """Sections about services; none where they say nothing beyond the verdict."""
    return [*_suspects(answer), *tell_golden(case, answer)]


def _suspects(answer: Answer) -> Iterator[Section]:
    beyond = suspicion.unexplained(answer)
    if not beyond:
        return
    lines = [
        "Services by how far they left their own range, whatever the cause; no verdict rests on it."
    ]
    if answer.verdict.status == "diagnosed":
        names = ", ".join(printable(name, 60) for name in beyond[:_SERVICES])
        lines.append(f"Not in the evidence for the cause: {names}.")
    rows = []
    for moved in suspicion.services(answer)[:_SERVICES]:
        first = moved[0]
        then = suspicion.named(moved[1]) if len(moved) > 1 else ""
        service = printable(first.service or "not named", 60)
        rows.append(
            (
                service,
                number(first.score),
                suspicion.named(first),
                *suspicion.levels(first),
                suspicion.spreads(first),
                then,
            )
        )
    yield Section(
        "Suspects", lines,
        ("Service", "Score", "Moved most", "Healthy", "Incident", "In its own spreads", "Then"), rows,
        "SELECT * FROM suspect ORDER BY rank",
    )  # fmt: skip
