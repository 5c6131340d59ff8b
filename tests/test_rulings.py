"""Why other causes are out: told by what they would have done, and by what is there instead."""

from __future__ import annotations

from dataclasses import replace

import case_builder
import pytest

from rca.answer import Answer, Hypothesis, read
from rca.answer.rulings import rulings, still_open
from rca.case import Case

CASE = case_builder.diagnosed()


def answer_with(cause: str, **fields: object) -> Answer:
    """The case made by hand, with one other hypothesis beside the leading one."""
    answer = read(CASE)
    lead, other = answer.hypotheses[:2]
    plain: dict[str, object] = {"cause": cause, "evidence": [], "contradicting": []}
    return replace(answer, hypotheses=[lead, replace(other, **{**plain, **fields})])


def told(case: Case, answer: Answer, n: int = 1) -> list[tuple[str, str, list[str]]]:
    return [
        (r.hypothesis.cause, r.reason, [e.id for e in r.evidence])
        for r in (*rulings(case, answer, n), *still_open(case, answer))
    ]


@pytest.mark.parametrize(
    ("cause", "fields", "reason", "ids"),
    [
        # its mark was measured and stayed
        ("prefix_cache_pollution", {}, "would lower prefix hit rate; here vllm prefix hit rate steady at 71 %", ["E4"]),
        # the wrong way
        ("overload", {"contradicting": ["E3"]}, "would raise running; here vllm running 14 → 9 (×0.643 [0.582–0.71])", ["E3"]),
        # nothing shows its mark, and nothing speaks against it
        ("kv_transfer", {"evidence": ["E7"]}, "its mark is not recorded (KV transfer time)", []),
    ],
    ids=["mark-unmoved", "wrong-way", "mark-unrecorded"],
)  # fmt: skip
def test_the_reason_is_what_decides(
    cause: str, fields: dict[str, object], reason: str, ids: list[str]
) -> None:
    answer = answer_with(cause, **fields)
    if cause == "kv_transfer":  # all that moved is something it brings about or leaves open
        lead = answer.hypotheses[0]
        answer = replace(
            answer, hypotheses=[replace(lead, evidence=["E1", "E2"]), *answer.hypotheses[1:]]
        )
    assert told(CASE, answer) == [(cause, reason, ids)]


def test_what_is_left_over_is_told_once_and_not_twice_the_same() -> None:
    answer = read(CASE)
    lead, *others = answer.hypotheses
    alike: list[Hypothesis] = [
        replace(h, cause=c, evidence=[], contradicting=[])
        for h, c in zip(others, ("http2_window", "gc_pause"), strict=True)
    ]
    both = replace(answer, hypotheses=[lead, *alike])
    first, second = rulings(CASE, both, 1)
    assert first.evidence != second.evidence
    (most, _) = rulings(CASE, both, 2)
    assert most.reason.startswith("does not account for ")
    assert most.reason.count("does not account for") == 1
    assert ", nor for " in most.reason


def test_leading_and_contributing_causes_are_not_told() -> None:
    answer = answer_with("overload", contradicting=["E3"], contributing=True)
    lead, other = answer.hypotheses
    assert (
        told(CASE, replace(answer, hypotheses=[replace(lead, contributing=True), other])) == []
    )
