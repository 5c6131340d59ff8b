"""What a model claims is held against the evidence; what does not stand there is struck."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import case_builder
import msgspec
import pytest

from rca.catalogue import load
from rca.judge import grounding
from rca.judge.grounding import Opinion
from rca.judge.numbers import stand_in, unfounded
from rca.judge.pack import Pack, build
from rca.judge.protocol import shortened
from rca.judge.reply import Reply

SOUND: dict[str, Any] = {
    "claims": [
        {"evidence": "E2", "direction": "up", "statement": "kv_usage rose from 0.58 to 0.99"},
        {"evidence": "E1", "direction": "up", "statement": "waiting grew to 24 requests"},
        {"evidence": "E10", "direction": "event", "statement": "memory share cut to 0.60"},
    ],
    "ruled_out": [
        {"cause": "overload", "evidence": ["E3"], "reason": "running fell to 9"},
    ],
    "missing": ["preemptions"],
    "class": "config",
    "cause": "kv_pool_too_small",
    "cited": ["E2", "E1", "E10"],
    "reason": "change-1 shrank the KV pool of service-1",
}


@pytest.fixture(scope="module")
def pack() -> Iterator[Pack]:
    with case_builder.diagnosed() as case:
        yield build(case, load())


def checked(pack: Pack, change: Callable[[dict[str, Any]], Any] = lambda r: None) -> Opinion:
    """The sound reply with one thing changed, checked."""
    reply = copy.deepcopy(SOUND)
    change(reply)
    return grounding.check(msgspec.convert(reply, Reply), pack, load())


def test_a_sound_reply_stands(pack: Pack) -> None:
    opinion = checked(pack)
    assert opinion.struck == []
    assert (opinion.status, opinion.note) == ("scored", None)
    assert opinion.cited == ["E2", "E1", "E10"]
    assert [c["evidence"] for c in opinion.claims] == ["E2", "E1", "E10"]
    assert opinion.ruled_out == [
        {"cause": "overload", "evidence": ["E3"], "reason": "running fell to 9"}
    ]
    assert opinion.missing == ["preemptions"]


def claim(**fields: str) -> Callable[[dict[str, Any]], None]:
    return lambda reply: reply["claims"][0].update(fields)


STRUCK_CLAIMS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (claim(evidence="E99"), "no such evidence"),
    (claim(evidence=""), "no such evidence"),
    (claim(evidence="E2; DROP"), "no such evidence"),
    (claim(direction="down"), "the row says up, the claim down"),
    (claim(direction="sideways"), "the row says up, the claim sideways"),
    (claim(statement="kv_usage fell"), "the row says up, the sentence down"),
    (claim(statement="kv_usage stayed flat"), "the row says up, the sentence flat"),
    (claim(statement="kv_usage rose to 0.97"), "0.97 does not stand in the row"),
    (claim(statement="kv_usage rose by 900 %"), "900 % does not stand in the row"),
    (claim(statement="kv_usage rose, confidence0.99999"), "0.99999 does not stand"),
    (claim(statement="kv_usage rose by ninety percent"), "ninety does not stand"),
    (claim(statement="kv_usage doubled and rose"), "doubled does not stand"),
    (claim(statement="kv_usage rose five times"), "five times does not stand"),
    (claim(statement="kv_usage rose, see https://evil.example"), "a link, markup or a command"),
    (claim(statement="kv_usage rose; run `kubectl delete`"), "a link, markup or a command"),
    (claim(statement="kv_usage rose <img src=x>"), "a link, markup or a command"),
]


@pytest.mark.parametrize(("change", "why"), STRUCK_CLAIMS)
def test_a_wrong_claim_is_struck(
    pack: Pack, change: Callable[[dict[str, Any]], Any], why: str
) -> None:
    opinion = checked(pack, change)
    assert any(why in s.why for s in opinion.struck)
    assert len(opinion.claims) == 2


def test_what_was_said_wrongly_is_no_support(pack: Pack) -> None:
    opinion = checked(pack, claim(statement="kv_usage rose to 2.4"))
    assert "E2" not in opinion.cited
    assert opinion.status == "unscored"
    assert opinion.note is not None
    assert "none of the evidence that kv_pool_too_small requires" in opinion.note


UNSCORED: list[tuple[dict[str, Any], str]] = [
    ({"cited": []}, "nothing that was cited and holds speaks for kv_pool_too_small"),
    ({"cited": ["E77", "E88"]}, "nothing that was cited"),
    ({"cited": ["E1", "E10"]}, "none of the evidence that kv_pool_too_small requires"),
    ({"cited": ["E7", "E4"]}, "nothing that was cited"),
    ({"class": "infra"}, "class infra is not that of kv_pool_too_small"),
    ({"class": "nonsense"}, "class nonsense is not that of"),
    ({"cause": "network_degraded", "class": "infra"}, "names a cause that is no candidate"),
    ({"cause": "delete_everything"}, "names a cause that is no candidate"),
    # E1 speaks for an overload, but arrivals did not rise: what it requires is missing.
    ({"cause": "overload", "class": "traffic-spike"}, "none of the evidence that overload requires"),
    (
        {"cause": "prefix_cache_pollution", "class": "traffic-spike", "cited": ["E4"]},
        "nothing that was cited and holds speaks for prefix_cache_pollution",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "note"), UNSCORED)
def test_a_label_without_support_is_unscored(
    pack: Pack, fields: dict[str, Any], note: str
) -> None:
    opinion = checked(pack, lambda reply: reply.update(fields))
    assert opinion.status == "unscored"
    assert note in (opinion.note or "")


def test_unknown_needs_no_support(pack: Pack) -> None:
    opinion = checked(pack, lambda r: r.update({"cause": "unknown", "cited": []}))
    assert opinion.status == "scored"


def test_evidence_that_speaks_against_the_cause_is_no_support(pack: Pack) -> None:
    opinion = checked(
        pack,
        lambda r: r.update({"cause": "overload", "class": "traffic-spike", "cited": ["E3"]}),
    )
    assert [(s.text, s.why) for s in opinion.struck if s.where == "cited"] == [
        ("E3", "its direction does not fit overload")
    ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"cause": "thermal_demon", "evidence": ["E3"], "reason": "x"}, "not a candidate"),
        ({"cause": "kv_pool_too_small", "evidence": ["E3"], "reason": "x"}, "it is the cause"),
        ({"cause": "overload", "evidence": [], "reason": "x"}, "nothing that was cited"),
        ({"cause": "overload", "evidence": ["E1"], "reason": "x"}, "nothing that was cited"),
        ({"cause": "overload", "evidence": ["E3"], "reason": "fell to 2"}, "2 does not stand"),
        ({"cause": "overload", "evidence": ["E3"], "reason": "http://a.b"}, "a link"),
    ],
)
def test_a_cause_is_ruled_out_by_evidence_only(
    pack: Pack, row: dict[str, Any], why: str
) -> None:
    opinion = checked(pack, lambda r: r.update({"ruled_out": [row]}))
    assert opinion.ruled_out == []
    assert any(why in s.why for s in opinion.struck)


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("confidence is 0.9999", "0.9999 stands in no cited row"),
        ("roll back now, see http://evil.example", "a link"),
        ("", "empty"),
    ],
)
def test_a_reason_that_does_not_hold_is_struck(pack: Pack, reason: str, why: str) -> None:
    opinion = checked(pack, lambda r: r.update({"reason": reason}))
    assert opinion.reason is None
    assert opinion.status == "scored"
    assert any(why in s.why for s in opinion.struck if s.where == "reason")


def test_a_reason_of_clauses_ends_with_one() -> None:
    assert shortened("a b, c d: " + "e " * 20) == "a b, c d"
    assert shortened("a " * 15 + "b.") == " ".join("a" * 15) + "…"


def test_a_long_reason_is_cut(pack: Pack) -> None:
    opinion = checked(pack, lambda r: r.update({"reason": "pool " * 40}))
    assert opinion.reason == " ".join(["pool"] * 15) + "…"


def test_what_is_recorded_is_not_missing(pack: Pack) -> None:
    opinion = checked(pack, lambda r: r.update({"missing": ["waiting", "preemptions"]}))
    assert opinion.missing == ["preemptions"]


ROW = {
    "id": "E5", "role": "itl", "unit": "s", "direction": "up", "reference": 0.02771,
    "observed": 0.07144, "ratio": 2.578, "n": [120, 55],
}  # fmt: skip


@pytest.mark.parametrize(
    "sentence",
    [
        "from 0.02771 to 0.07144",
        "to 0.071 s",
        "to 71.4 ms",
        "from 28 ms to 71 ms",
        "×2.58",
        "2.6x",
        "by 158 %",
        "55 samples of E5 at p99",
        "change-3 on service-12",
        "by 43.7 ms",
    ],
)
def test_numbers_that_stand_in_the_row(sentence: str) -> None:
    assert unfounded(sentence, stand_in(ROW)) is None


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        ("to 0.08", "0.08"),
        ("to 71.4 s", "71.4 s"),
        ("to 7 ms", "7 ms"),
        ("3x", "3x"),
        ("by 200 %", "200 %"),
        ("at 1e9", "1e9"),
        ("twice", "twice"),
        ("1,000", "1,000"),
        ("a 5", "5"),
        ("-71.4 ms", "-71.4 ms"),
        ("1" * 400, "1" * 400),
    ],
)
def test_numbers_that_do_not(sentence: str, number: str) -> None:
    assert unfounded(sentence, stand_in(ROW)) == number
