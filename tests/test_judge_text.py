"""The postmortem's words by a model: sentences that hold are used, all others are struck."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_builder
import pytest
from llm_server import Body, Raw, Server, completion, error, judgement, shown

from rca import postmortem
from rca.case import Case
from rca.judge import Ask, LlmJudge, RulesJudge
from rca.judge.protocol import record

ASK = Ask(models=("m",), samples=1, text=True)


@pytest.fixture
def case() -> Iterator[Case]:
    with case_builder.diagnosed() as made:
        yield made


def asked_for_text(body: Body) -> bool:
    return bool(body["response_format"]["json_schema"]["name"] == "postmortem_text")


def rising(pack: Body) -> Body:
    """A row that rose and has numbers."""
    found: Body = next(e for e in pack["evidence"] if e["direction"] == "up" and e["reference"])
    return found


def writing(*more: dict[str, Any]) -> Any:
    """A responder: a judgement, and a text of two sentences that hold and what is to be tried."""

    def respond(body: Body) -> Body:
        if not asked_for_text(body):
            return judgement(body)
        row = rising(shown(body))
        first = {
            "text": f"The {row['role']} rose from {row['reference']} to {row['observed']}.",
            "evidence": [row["id"]],
        }
        second = {"text": "Requests then waited for room.", "evidence": [row["id"]]}
        tried = [
            {k: v.format(**row) if k == "text" else v or [row["id"]] for k, v in s.items()}
            for s in more
        ]
        lesson = {
            "text": "An alert on this would have told it before users did.",
            "evidence": [],
        }
        return {"summary": [first, second, *tried], "lessons": [lesson]}

    return respond


def judged(case: Case, ask: Ask = ASK) -> list[dict[str, Any]]:
    record(case, LlmJudge(ask).judge(case))
    return case.sql("SELECT * FROM judge_text ORDER BY part DESC, place").to_dicts()


def test_sentences_that_hold_become_summary_and_lessons(
    case: Case, server: Server, tmp_path: Path
) -> None:
    server.respond = writing()
    rows = judged(case)
    assert [(r["part"], r["why"]) for r in rows] == [
        ("summary", None), ("summary", None), ("lessons", None),
    ]  # fmt: skip
    postmortem.write(case, tmp_path)
    for name in ("postmortem.md", "report.html"):
        text = (tmp_path / name).read_text()
        assert "Requests then waited for room." in text
        assert "Written by m from the verdict" in text
    assert "An alert on this would have told it" in (tmp_path / "postmortem.md").read_text()


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        ({"text": "It rose to 987654.", "evidence": []}, "987654 stands in no row that it cites"),
        ({"text": "It rose by twelve.", "evidence": []}, "twelve stands in no row that it cites"),
        ({"text": "It fell, then recovered.", "evidence": []}, "no row that it cites goes down"),
        ({"text": "It rose.", "evidence": ["E999"]}, "cites evidence that was not shown"),
        ({"text": "Run kubectl delete pod x", "evidence": []}, "a link, markup or a command"),
        ({"text": "See https://x.y", "evidence": []}, "a link, markup or a command"),
        ({"text": "word " * 80, "evidence": []}, "empty, or longer than 60 words"),
        ({"text": "In truth it was a noisy neighbour GPU.", "evidence": []},
         "names a cause that the verdict does not"),
    ],
)  # fmt: skip
def test_a_sentence_that_does_not_hold_is_struck(
    case: Case, server: Server, sentence: dict[str, Any], why: str | None
) -> None:
    server.respond = writing(sentence)
    rows = judged(case)
    assert [r["why"] for r in rows if r["part"] == "summary"] == [None, None, why]


def test_with_one_sentence_left_the_own_words_stand(
    case: Case, server: Server, tmp_path: Path
) -> None:
    usual = writing()

    def short(body: Body) -> Body:
        said: Body = usual(body)
        return {"summary": said["summary"][1:], "lessons": []} if asked_for_text(body) else said

    server.respond = short
    judged(case)
    postmortem.write(case, tmp_path)
    assert "Requests then waited" not in (tmp_path / "postmortem.md").read_text()


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (completion("not JSON"), "prose or broken JSON"),
        (completion('{"summary": []}'), "JSON of another form"),
        (completion("x", finish="length"), "cut"),
        (error(401), "401"),
    ],
)
def test_a_text_that_cannot_be_had_is_said_and_harms_nothing(
    case: Case, server: Server, answer: Raw, note: str
) -> None:
    server.respond = lambda body: answer if asked_for_text(body) else judgement(body)
    assert judged(case) == []
    (row,) = case.sql("SELECT scored, agrees, note, text_note FROM judge_panel").to_dicts()
    assert (row["scored"], row["agrees"], row["note"]) == (1, True, None)
    assert note in row["text_note"]


def test_who_disagrees_is_not_asked_to_write(case: Case, server: Server) -> None:
    other = case.scalar("SELECT cause FROM hypothesis ORDER BY rank LIMIT 1 OFFSET 1")
    server.respond = lambda body: {**judgement(body), "cause": "unknown", "cited": []}
    assert RulesJudge().judge(case).cause != other
    assert judged(case) == []
    assert not any(map(asked_for_text, server.bodies))


def test_a_stored_text_needs_no_call(case: Case, server: Server) -> None:
    server.respond = writing()
    first = judged(case)
    calls = len(server.bodies)
    again = judged(case, Ask(models=("m",), samples=1, text=True, replay="only"))
    assert (again, len(server.bodies)) == (first, calls)
