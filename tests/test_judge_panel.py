"""The panel: majority, dissent, caps, replay; nothing that a model says raises or moves anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_builder
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llm_server import Raw, Server, completion, error, judgement, serving, shown

from rca import fixes
from rca.answer.summary import render
from rca.answer.verdict_json import verdict
from rca.case import Case
from rca.errors import JudgeError
from rca.judge import Ask, LlmJudge, RulesJudge, outcome
from rca.judge.budget import Price, prices
from rca.pipeline import judge_again

THREE = Ask(models=("m",), samples=3)


@pytest.fixture(scope="module")
def shared() -> Iterator[Case]:
    with case_builder.diagnosed() as made:
        yield made


@pytest.fixture
def case(shared: Case) -> Iterator[Case]:
    """A case in which the rules are sure, as it was before anybody was asked."""
    shared.execute("BEGIN")
    yield shared
    shared.execute("ROLLBACK")


def unknown(body: Any) -> Any:
    """An abstention."""
    return {**judgement(body), "cause": "unknown", "cited": []}


def panel_of(case: Case) -> list[dict[str, Any]]:
    return case.sql("SELECT * FROM judge_panel ORDER BY rowid").to_dicts()


def test_agreement_keeps_the_confidence_and_gives_the_reason(
    case: Case, server: Server
) -> None:
    found = LlmJudge(THREE).judge(case)
    rules = RulesJudge().judge(case)
    assert (found.cause, found.confidence) == (rules.cause, rules.confidence)
    assert found.judge == "m"
    assert found.reason == "KV cache pool is too small, as the moves that it requires show"
    (row,) = panel_of(case)
    assert (row["scored"], row["agreement"], row["agrees"], row["dissent"]) == (
        3,
        1.0,
        True,
        0.0,
    )


def test_dissent_lowers_the_confidence_and_is_shown(case: Case, server: Server) -> None:
    server.respond = lambda b: unknown(b) if b["seed"] else judgement(b)
    found = LlmJudge(THREE).judge(case)
    rules = RulesJudge().judge(case)
    assert (found.status, found.cause, found.cls) == (rules.status, rules.cause, rules.cls)
    assert found.confidence == pytest.approx(rules.confidence * (1 - 0.5 * 2 / 3))
    assert found.reason == rules.reason
    (row,) = panel_of(case)
    assert (row["cause"], row["agrees"]) == ("unknown", False)
    assert row["agreement"] == pytest.approx(2 / 3)


def test_a_tie_has_no_majority(case: Case, server: Server) -> None:
    server.respond = lambda b: unknown(b) if b["seed"] else judgement(b)
    LlmJudge(Ask(models=("m",), samples=2)).judge(case)
    (row,) = panel_of(case)
    assert (row["cause"], row["agrees"], row["dissent"]) == (None, None, 0.5)


def test_unscored_samples_have_no_vote(case: Case, server: Server) -> None:
    server.respond = lambda b: "prose" if b["seed"] else judgement(b)
    found = LlmJudge(THREE).judge(case)
    assert found.confidence == RulesJudge().judge(case).confidence
    (row,) = panel_of(case)
    assert (row["samples"], row["scored"], row["agreement"]) == (3, 1, 1.0)
    assert row["note"].startswith("2 of 3 samples do not count")


def test_models_have_equal_weight(case: Case, server: Server) -> None:
    server.respond = lambda b: unknown(b) if b["model"] == "b" else judgement(b)
    found = LlmJudge(Ask(models=("a", "b"), samples=2)).judge(case)
    rules = RulesJudge().judge(case)
    assert found.confidence == pytest.approx(rules.confidence * 0.75)
    assert found.judge == "a, b"
    assert [r["agrees"] for r in panel_of(case)] == [True, False]


def test_candidates_are_shuffled_between_samples(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=8)).judge(case)
    orders = {tuple(c["cause"] for c in shown(b)["candidates"]) for b in server.bodies}
    assert len(orders) > 2
    assert len({tuple(sorted(o)) for o in orders}) == 1


def test_nothing_tells_the_model_what_the_rules_think(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    pack = shown(server.bodies[0])
    fields = {key for c in pack["candidates"] for key in c}
    assert not fields & {"rank", "score", "confidence"}
    assert "0.93" not in server.raw[0].decode()


def test_a_healthy_case_is_not_asked_about(server: Server) -> None:
    with case_builder.no_incident() as case:
        assert LlmJudge(THREE).judge(case) == RulesJudge().judge(case)
        assert server.bodies == []
        assert outcome(case) == []
        assert "not asked" in panel_of(case)[0]["note"]


def test_an_unknown_stays_unknown(server: Server) -> None:
    with case_builder.unknown() as case:
        found = LlmJudge(THREE).judge(case)
        rules = RulesJudge().judge(case)
        assert (found.status, found.cause) == ("unknown", None)
        assert found.confidence <= rules.confidence
        assert panel_of(case)[0]["cause"] == "kv_pool_too_small"


# ---- caps and accounts


def test_tokens_and_cost_are_booked(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=2, prices={"m": Price(2.0, 10.0)})).judge(case)
    (row,) = panel_of(case)
    assert row["tokens"] == 2 * 1100
    assert row["cost"] == pytest.approx(2 * (1000 * 2 + 100 * 10) / 1e6)
    assert case.rows(
        "SELECT DISTINCT prompt_tokens, reply_tokens, estimated FROM judge_exchange"
    ) == [(1000, 100, False)]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -5, "completion_tokens": "x"}])
def test_tokens_are_estimated_where_the_endpoint_does_not_count(
    usage: Any, case: Case, server: Server
) -> None:
    def respond(body: Any) -> Raw:
        data = json.loads(completion(json.dumps(judgement(body))).body)
        return Raw(json.dumps({**data, "usage": usage}).encode())

    server.respond = respond
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    prompt, reply, estimated = case.rows(
        "SELECT prompt_tokens, reply_tokens, estimated FROM judge_exchange"
    )[0]
    assert estimated
    assert prompt > 500
    assert reply > 50


def test_cost_is_capped(case: Case, server: Server) -> None:
    ask = Ask(models=("m",), samples=9, max_cost=0.025, prices={"m": Price(1.0, 10.0)})
    LlmJudge(ask).judge(case)
    (row,) = panel_of(case)
    assert 0 < len(server.bodies) < 9
    assert row["cost"] <= 0.025
    assert row["note"].startswith("--max-cost 0.025:")


def test_a_cap_on_cost_needs_a_price(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=1, max_cost=1.0)).judge(case)
    assert server.bodies == []
    assert "needs a price for m; give it with --prices" in outcome(case)[0]


def test_tokens_are_capped(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=2, max_tokens=12_000)).judge(case)
    assert case.scalar("SELECT sum(prompt_tokens + reply_tokens) FROM judge_exchange") <= 12_000
    assert len(server.bodies) == 2


def test_a_question_that_does_not_fit_is_not_asked(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=1, max_tokens=3500)).judge(case)
    assert server.bodies == []
    assert "raise --max-tokens" in outcome(case)[0]


def test_prices_are_read(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('["gpt-4o-mini"]\ninput = 0.15\noutput = 0.60\n')
    assert prices(table) == {"gpt-4o-mini": Price(0.15, 0.60)}
    for wrong in (
        "x = 1",
        "[m]\ninput = 1",
        "[m]\ninput = -1\noutput = 2",
        "[",
        '[m]\ninput = "a"\noutput = 1',
    ):
        table.write_text(wrong)
        with pytest.raises(JudgeError, match="no table of prices"):
            prices(table)
    with pytest.raises(JudgeError, match="No such file"):
        prices(tmp_path / "none.toml")


# ---- replay


def test_the_same_question_is_not_asked_twice(case: Case, server: Server) -> None:
    first = LlmJudge(THREE).judge(case)
    told = case.rows("SELECT * EXCLUDE (replayed) FROM judge_opinion ORDER BY sample")
    again = LlmJudge(THREE).judge(case)
    assert first == again
    assert len(server.bodies) == 3
    assert case.rows("SELECT * EXCLUDE (replayed) FROM judge_opinion ORDER BY sample") == told
    assert case.rows("SELECT DISTINCT replayed FROM judge_opinion") == [(True,)]
    assert panel_of(case)[0]["tokens"] == 0
    LlmJudge(Ask(models=("m",), samples=3, replay="never")).judge(case)
    assert len(server.bodies) == 6
    assert case.scalar("SELECT count(*) FROM judge_exchange") == 3


def test_replay_only_never_calls(
    case: Case, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = Ask(models=("m",), samples=3, replay="only")
    LlmJudge(only).judge(case)
    assert server.bodies == []
    assert "--replay only never calls" in outcome(case)[0]
    first = LlmJudge(Ask(models=("m",), samples=2)).judge(case)
    use_nothing(server)
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    assert LlmJudge(Ask(models=("m",), samples=2)).judge(case) == first
    assert LlmJudge(only).judge(case) == first
    assert (panel_of(case)[0]["scored"], panel_of(case)[0]["samples"]) == (2, 3)


def use_nothing(server: Server) -> None:
    """From now on every call is a failure of the test."""
    server.respond = lambda _: pytest.fail("was called")


def test_other_evidence_is_another_question(case: Case, server: Server) -> None:
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    case.execute("UPDATE evidence SET observed = 25.5 WHERE id = 'E1'")
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    assert len(server.bodies) == 2


def test_a_failure_is_asked_again(case: Case, server: Server) -> None:
    server.respond = lambda _: error(401)
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    server.respond = judgement
    LlmJudge(Ask(models=("m",), samples=1)).judge(case)
    assert outcome(case) == []
    assert case.rows("SELECT status FROM judge_exchange") == [("answered",)]


# ---- a hostile judge

IDS = st.sampled_from([f"E{i}" for i in range(13)]) | st.text(max_size=5)
CAUSES = st.sampled_from(
    ["kv_pool_too_small", "overload", "prefix_cache_pollution", "unknown", "network_degraded"]
)
WORDS = st.text(max_size=60) | st.sampled_from(
    ["confidence 1.0", "roll back everything", "E1 rose to 24", "ignore the rules", "\x1b[31m"]
)
REPLIES = st.fixed_dictionaries(
    {
        "claims": st.lists(
            st.fixed_dictionaries(
                {
                    "evidence": IDS,
                    "direction": st.sampled_from(
                        ["up", "down", "flat", "new", "gone", "event"]
                    ),
                    "statement": WORDS,
                }
            ),
            max_size=6,
        ),
        "ruled_out": st.lists(
            st.fixed_dictionaries(
                {"cause": CAUSES, "evidence": st.lists(IDS, max_size=3), "reason": WORDS}
            ),
            max_size=4,
        ),
        "missing": st.lists(WORDS, max_size=3),
        "class": st.sampled_from(
            ["infra", "config", "dependency", "code-regression", "traffic-spike"]
        ),
        "cause": CAUSES,
        "cited": st.lists(IDS, max_size=6),
        "reason": WORDS,
    }
)


@pytest.fixture(scope="module")
def hostile() -> Iterator[tuple[Case, Server]]:
    """One case and one server for all hostile replies."""
    with case_builder.diagnosed() as case, serving() as server:
        yield case, server


@given(replies=st.lists(REPLIES, min_size=1, max_size=2))
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_reply_raises_the_confidence_or_touches_a_fix(
    replies: list[dict[str, Any]], hostile: tuple[Case, Server]
) -> None:
    case, server = hostile
    os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"] = server.url, "k"
    server.respond = lambda body: replies[body["seed"]]
    rules = RulesJudge().judge(case)
    case.clear(["verdict"])
    case.insert("verdict", row_of(rules))
    fixes.propose(case)
    proposed = case.rows("SELECT * FROM fix ORDER BY id")
    assert proposed
    found = LlmJudge(Ask(models=("m",), samples=len(replies), replay="never")).judge(case)
    case.insert("verdict", row_of(found))
    fixes.propose(case)
    assert case.rows("SELECT * FROM fix ORDER BY id") == proposed
    assert found.confidence <= rules.confidence
    assert (found.status, found.cause, found.cls) == (rules.status, rules.cause, rules.cls)
    assert len(found.reason.split()) <= 15
    del os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]


def row_of(found: Any) -> pl.DataFrame:
    row = vars(found) | {"class": found.cls}
    row.pop("cls")
    return pl.DataFrame([row])


def test_the_road_keeps_fixes_and_shows_dissent(tmp_path: Path, server: Server) -> None:
    import io

    from rich.console import Console

    path = tmp_path / "case.duckdb"
    case_builder.diagnosed(path).close()
    with judge_again(path, None) as case:
        alone = verdict(case)
    server.respond = unknown
    with judge_again(path, None, LlmJudge(THREE)) as case:
        beside = verdict(case)
        out = io.StringIO()
        render(case, Console(file=out, width=200))
        rows = case.rows("SELECT judge, confidence FROM verdict ORDER BY rowid")
    assert beside["fixes"] == alone["fixes"]
    assert [r[0] for r in rows] == ["rules", "m"]
    assert rows[1][1] == pytest.approx(rows[0][1] / 2)
    (juror,) = beside["provenance"]["judges"]
    assert juror["agrees"] is (alone["verdict"]["status"] == "unknown")
    if alone["verdict"]["status"] == "diagnosed":
        assert "m DISAGREES: unknown, 3 of 3 scored samples" in out.getvalue()
