"""Why the other causes are out: what each would have done, and what the recordings show instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rca import catalogue
from rca.answer import Answer, Evidence, Hypothesis
from rca.answer.wording import movement
from rca.case import Case
from rca.catalogue import Cause
from rca.plain import role_words

_STILL = {"flat", "event"}
_SIGNS = {"up": 1, "new": 1, "down": -1, "gone": -1}
_WOULD = {1: "raise", -1: "lower"}
_LEFT_OVER = "does not account for "


@dataclass(frozen=True)
class Ruling:
    """A cause that was considered; without evidence it is not ruled out, only less likely.

    Attributes:
        hypothesis: The cause, as it was ranked.
        reason: Why, in words; empty where nothing is to be said.
        evidence: What decides, best first.
    """

    hypothesis: Hypothesis
    reason: str
    evidence: list[Evidence]


def rulings(case: Case, answer: Answer, n: int) -> list[Ruling]:
    """The hypotheses that evidence rules out, each with at most n pieces of it."""
    return [r for r in _all(case, answer, n) if r.evidence]


def still_open(case: Case, answer: Answer) -> list[Ruling]:
    """The hypotheses that nothing rules out, though others fit better."""
    return [r for r in _all(case, answer, 1) if not r.evidence]


def _all(case: Case, answer: Answer, n: int) -> Iterator[Ruling]:
    causes = catalogue.of(case)
    told: set[str] = set()
    for other in answer.hypotheses:
        if other.cause in answer.contributing:
            continue
        if other is answer.leading and answer.verdict.status == "diagnosed":
            continue
        cause = causes.get(other.cause)
        reasons = dict(_reasons(answer, other, cause)) if cause else {}
        # Many causes fail to account for the same movement: each is told by what is new first.
        chosen = sorted(reasons, key=lambda i: (reasons[i].startswith(_LEFT_OVER), i in told))[
            :n
        ]
        told.update(chosen[:1])
        reason = _joined([reasons[i] for i in chosen])
        if not chosen and cause:
            reason = _unrecorded(answer, cause)
        yield Ruling(other, reason, answer.cited(chosen))


def _joined(reasons: list[str]) -> str:
    left = [r.removeprefix(_LEFT_OVER) for r in reasons if r.startswith(_LEFT_OVER)]
    told = [r for r in reasons if not r.startswith(_LEFT_OVER)]
    return "; ".join([*told, *([_LEFT_OVER + ", nor for ".join(left)] if left else [])])


def _reasons(answer: Answer, other: Hypothesis, cause: Cause) -> Iterator[tuple[str, str]]:
    """Ids of evidence and what it says against a cause: its mark first, then the strongest."""
    for role in sorted(
        cause.requires, key=lambda r: (-abs(cause.expected.get(r, (0, 0.0))[1]), r)
    ):
        item = _unmoved(answer, cause, role)
        if item is not None and not _shown(answer, cause):
            yield (
                item.id,
                f"would {_WOULD[cause.expected[role][0]]} {role_words(role)}; here {movement(item)}",
            )
    for item in _telling(answer, other, cause):
        yield item.id, _against(cause.expected, item)
    against = answer.cited([*other.contradicting, *_left_over(answer, cause)])
    for item in sorted(against, key=lambda e: -abs(e.strength)):
        yield item.id, _against(cause.expected, item)


def _shown(answer: Answer, cause: Cause) -> bool:
    """Whether one of the marks of a cause moved as it says."""
    return any(
        cause.expected.get(e.role, (0, 0.0))[0] == _SIGNS.get(e.direction, 0) != 0
        for e in answer.evidence.values()
        if e.role in cause.requires
    )


def _telling(answer: Answer, other: Hypothesis, cause: Cause) -> Iterator[Evidence]:
    """Evidence of the roles that tell a cause from the leading one, where it does not support it."""
    lead = answer.leading
    for role in [x.decided_by for x in cause.lookalikes if lead and x.cause == lead.cause]:
        seen = [e for e in answer.evidence.values() if e.role == role]
        if role in cause.expected and seen and not any(e.id in other.evidence for e in seen):
            yield max(seen, key=lambda e: (abs(e.strength), e.id))


def _unmoved(answer: Answer, cause: Cause, role: str) -> Evidence | None:
    """The strongest evidence of a mark, where none of it moved as the cause says."""
    seen = [e for e in answer.evidence.values() if e.role == role]
    sign = cause.expected.get(role, (0, 0.0))[0]
    if not seen or sign == 0 or any(_SIGNS.get(e.direction, 0) == sign for e in seen):
        return None
    return max(seen, key=lambda e: (abs(e.strength), e.id))


def _left_over(answer: Answer, cause: Cause) -> list[str]:
    """What speaks for the leading cause, moved, and is nothing that the other brings about."""
    lead = answer.leading
    return [
        e.id
        for e in answer.cited(lead.evidence if lead else [])
        if e.direction not in _STILL
        and e.role not in cause.expected
        and e.role not in cause.neutral
    ]


def _against(expected: Mapping[str, tuple[int, float]], item: Evidence) -> str:
    sign = expected.get(item.role or "", (None, 0.0))[0]
    if sign is None:
        return _LEFT_OVER + movement(item)
    name = role_words(item.role or "")
    would = f"would {_WOULD[sign]} {name}" if sign else f"would leave {name} as it was"
    return f"{would}; here {movement(item)}"


def _unrecorded(answer: Answer, cause: Cause) -> str:
    """That no recording shows what would tell, where that is so."""
    recorded = {e.role for e in answer.evidence.values()}
    if not cause.requires or cause.requires & recorded:
        return ""
    return (
        f"its mark is not recorded ({', '.join(role_words(r) for r in sorted(cause.requires))})"
    )
