"""Two causes at once, confidence that stays below what was seen, and roles read where they are measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rca.catalogue import load
from rca.hypotheses import Facts, Moved, elsewhere, judge, observe
from rca.hypotheses.change_fit import Change
from rca.hypotheses.scoring import Scored
from rca.weights import settings

SLOW_CALLS = {"dependency_time": 0.9, "downstream_latency": 0.9, "outside_engine": 0.9}
LONG_PROMPTS = {
    "prompt_tokens": 0.9, "long_prompts": 0.8, "prefill_time": 0.8, "ttft": 0.8, "prompt_throughput": 0.7,
}  # fmt: skip


def facts(
    strengths: dict[str, float],
    changes: tuple[Change, ...] = (),
    services: dict[str, str] | None = None,
    called: frozenset[str] = frozenset(),
) -> Facts:
    services = services or {}
    moved = [
        Moved(f"E{i}", role, g, "metrics", services.get(role))
        for i, (role, g) in enumerate(sorted(strengths.items(), key=lambda x: -abs(x[1])), 1)
    ]
    return Facts(tuple(moved), frozenset({"engine"}), called, frozenset(), changes, 600.0)


def answer(found: Facts, *without: str) -> list[Scored]:
    return judge(found, [c for c in load().values() if c.id not in without])


def test_two_causes_are_both_named_when_each_has_moves_of_its_own() -> None:
    scored = answer(facts(SLOW_CALLS | LONG_PROMPTS | {"itl": 0.0, "arrival_rate": 0.0}))
    assert {s.cause.id for s in scored[:2]} == {"dependency_slow", "context_inflation"}
    assert [s.contributing for s in scored[:3]] == [True, True, False]
    assert min(s.confidence for s in scored[:2]) > 0.5, "they are no rivals of each other"


def test_clients_that_give_up_make_no_second_cause() -> None:
    """They do so whatever made the service slow; engines that outlive them do not follow from that."""
    gone = LONG_PROMPTS | {
        "abort_rate": 1.0,
        "finish_rate": -0.9,
        "running": 0.9,
        "waiting": 0.9,
        "queue_time": 0.9,
    }
    assert not any(s.contributing for s in answer(facts(gone)))
    both = answer(facts(gone | {"outlived": 0.9}))
    assert {s.cause.id for s in both if s.contributing} == {
        "context_inflation", "zombie_requests_after_disconnect",
    }  # fmt: skip


@pytest.mark.parametrize("moves", [SLOW_CALLS, LONG_PROMPTS], ids=["calls", "prompts"])
def test_one_cause_stays_alone(moves: dict[str, float]) -> None:
    scored = answer(facts(moves | {"itl": 0.0, "arrival_rate": 0.0}))
    assert not any(s.contributing for s in scored)


def test_look_alikes_are_never_said_to_be_at_work_together() -> None:
    causes = load()
    for one in causes.values():
        marks = {r: 0.9 * sign for r, (sign, _) in one.expected.items()}
        together = [s.cause for s in answer(facts(marks)) if s.contributing]
        if together:
            first, second = together
            alike = {x.cause for x in first.lookalikes} | {x.cause for x in second.lookalikes}
            assert not alike & {first.id, second.id}


def test_a_cause_whose_mark_nobody_recorded_stays_a_guess() -> None:
    change = Change(
        "chg-1", "E9", "config", "deployment/llm-engine", "deployment/llm-engine --max-logprobs=400", 5.0,
        frozenset({"sampler_slow_path"}),
    )  # fmt: skip
    scored = answer(facts({"itl": 0.9, "decode_time": 0.9, "prompt_tokens": 0.0}, (change,)))
    assert scored[0].cause.id == "sampler_slow_path"
    assert scored[0].decided is None
    assert scored[0].confidence <= settings()["circumstantial"] < 0.5
    seen = answer(
        facts(
            {"itl": 0.9, "decode_time": 0.9, "op_sorts": 0.9, "prompt_tokens": 0.0}, (change,)
        )
    )
    assert seen[0].cause.id == "sampler_slow_path"
    assert seen[0].confidence > 0.8


def test_a_slower_build_without_a_mark_is_named_but_not_sure() -> None:
    build = Change(
        "chg-1", "E9", "deploy", "deployment/llm-engine", "deployment/llm-engine image: e:1.8 image: e:1.9", 5.0
    )  # fmt: skip
    named = Change(
        "chg-1", "E9", "deploy", "deployment/llm-engine",
        "deployment/llm-engine image: vllm/vllm-openai:v0.11.0 image: vllm/vllm-openai:v0.12.0", 5.0,
    )  # fmt: skip
    slower = {
        "itl": 0.9, "decode_time": 0.9, "prefill_per_token": 0.8, "prompt_tokens": 0.0, "arrival_rate": 0.0,
        "sm_clock": 0.0, "gpu_throttled": 0.0, "output_tokens": 0.0,
    }  # fmt: skip
    unsure, sure = (answer(facts(slower, (change,)))[0] for change in (build, named))
    assert unsure.cause.id == sure.cause.id == "version_upgrade_regression"
    assert unsure.confidence < 0.5 < sure.confidence


def test_an_unsafe_setting_is_evidence_for_what_it_brings_about() -> None:
    def with_window(*unsafe: str) -> float:
        change = Change(
            "chg-1", "E9", "config", "deployment/llm-engine", "deployment/llm-engine --x=1", 5.0, frozenset(unsafe)
        )  # fmt: skip
        scored = answer(facts({"queue_time": 0.9, "ttft": 0.9, "arrival_rate": 0.0}, (change,)))
        return next(s.score for s in scored if s.cause.id == "batch_window_mismatch")

    assert with_window("batch_window_mismatch") > with_window() + 0.3


def test_a_called_service_speaks_of_its_own_time_and_rate() -> None:
    """More requests at a service that others call are no more users: its callers call it more."""
    found = facts(
        {"arrival_rate": 0.9, "gateway_latency": 0.8},
        services={"arrival_rate": "retriever", "gateway_latency": "retriever"},
        called=frozenset({"retriever"}),
    )
    seen = observe(found)
    assert set(seen) == {"downstream_rate", "callee_time"}
    entry = facts({"arrival_rate": 0.9}, services={"arrival_rate": "gateway"})
    assert set(observe(entry)) == {"arrival_rate"}


def test_a_cause_left_out_is_not_replaced_by_a_sure_one() -> None:
    moves = {
        "gc_full": 0.95,
        "itl_stalls": 0.9,
        "itl": 0.5,
        "arrival_rate": 0.0,
        "preemptions": 0.0,
    }
    found = facts(moves, services={"gc_full": "engine"})
    assert answer(found)[0].cause.id == "gc_pause"
    assert answer(found, "gc_pause")[0].confidence < settings()["least_confidence"]


BUILD = Change(
    "chg-1", "E9", "deploy", "deployment/llm-engine", "deployment/llm-engine image: e:1.8 image: e:1.9", 5.0
)  # fmt: skip
SLOWER = {
    "itl": 0.9,
    "decode_time": 0.9,
    "prefill_per_token": 0.8,
    "prompt_tokens": 0.0,
    "arrival_rate": 0.0,
}


@pytest.mark.parametrize(
    ("mark", "cause"),
    [
        ({"op_sorts": 0.9}, "sampler_slow_path"),
        ({"text_cost": 0.7, "host_gap": 0.9, "op_sorts": 0.0}, "detokenize_quadratic"),
        ({"op_copies": 0.9, "op_converts": 0.9, "op_allocations": 0.9}, "dtype_or_layout_copy"),
        ({"op_copies": 0.9, "op_converts": 0.0}, "version_upgrade_regression"),
    ],
)
def test_a_slower_build_is_named_only_where_no_mark_is_seen(
    mark: dict[str, float], cause: str
) -> None:
    """Each comes with a new build that is slower all over; copies alone are another mix of operators."""
    scored = answer(facts(SLOWER | mark, (BUILD,)))
    assert scored[0].cause.id == cause


def test_a_build_that_runs_other_operators_is_more_than_a_guess() -> None:
    """Without a capture nothing tells a slower build from any other slowness after a rollout."""
    scored = answer(facts(SLOWER, (BUILD,)))
    assert scored[0].confidence <= settings()["circumstantial"]
    scored = answer(facts(SLOWER | {"new_ops": 0.7, "op_copies": 0.9}, (BUILD,)))
    assert scored[0].cause.id == "version_upgrade_regression"
    assert scored[0].confidence > 0.87


def test_other_operators_that_belong_to_a_known_cause_are_no_mark_of_a_slower_build() -> None:
    found = facts(SLOWER | {"new_ops": 0.7, "op_sorts": 0.9}, (BUILD,))
    assert answer(found)[0].cause.id == "sampler_slow_path"
    relative = answer(found, "sampler_slow_path")[0]
    assert relative.confidence <= settings()["circumstantial"]


GRAMMARS = {"frontend_time": 0.9, "ttft": 0.4, "itl": 0.0, "queue_time": 0.0}


@pytest.mark.parametrize(
    ("mark", "cause"),
    [
        ({"schema_frontend": 0.9, "tokenise_time": 0.0}, "structured_output_compile"),
        ({"schema_frontend": 0.0, "tokenise_time": 0.9}, "tokenizer_cold_load"),
    ],
)
def test_who_waits_tells_grammars_from_a_tokenizer(mark: dict[str, float], cause: str) -> None:
    """Both are time in the frontend: one that only requests for a structured answer spend."""
    found = facts(GRAMMARS | mark, (BUILD,))
    assert answer(found)[0].cause.id == cause
    assert answer(found)[0].confidence > 0.87
    assert answer(found, cause)[0].confidence < 0.5


def test_a_near_relative_of_the_cause_stays_a_guess() -> None:
    """Calls that are made again tell a storm of retries from a slow service, which shares all else."""
    storm = SLOW_CALLS | {"downstream_errors": 0.9, "calls_per_request": 0.9, "itl": 0.0}
    found = facts(storm)
    assert answer(found)[0].cause.id == "retry_storm"
    relative = answer(found, "retry_storm")[0]
    assert relative.cause.id == "dependency_slow"
    assert relative.confidence <= settings()["circumstantial"] < 0.5
    assert answer(facts(storm | {"calls_per_request": 0.0}))[0].confidence > 0.8


def test_what_leaves_a_strong_move_over_stays_a_guess() -> None:
    scored = answer(facts(SLOW_CALLS | {"itl": 0.0, "op_syncs": 0.95, "gpu_throttled": 0.95}))
    assert scored[0].cause.id == "dependency_slow"
    assert scored[0].confidence <= settings()["circumstantial"]


def test_a_cause_told_by_shared_symptoms_alone_stays_a_guess() -> None:
    """A full cache and a queue are what many causes bring about; blocks without requests are a leak's."""
    full = {
        "kv_usage": 0.9,
        "waiting": 0.9,
        "queue_time": 0.9,
        "ttft": 0.9,
        "running": -0.6,
        "arrival_rate": 0.0,
    }
    assert all(s.confidence <= settings()["circumstantial"] for s in answer(facts(full)))
    leak = answer(facts(full | {"kv_without_work": 0.8, "preemptions": 0.6}, (BUILD,)))
    assert leak[0].cause.id == "kv_object_leak"
    assert leak[0].confidence > 0.8


def test_a_pool_does_not_shrink_by_itself() -> None:
    """Blocks run out: by a setting that was changed, or by a build that holds them."""
    full = {
        "kv_usage": 0.9,
        "preemptions": 0.9,
        "kv_per_request": 0.9,
        "waiting": 0.6,
        "arrival_rate": 0.0,
    }
    smaller = Change(
        "chg-1", "E9", "config", "deployment/llm-engine", "deployment/llm-engine --num-gpu-blocks=64", 5.0
    )  # fmt: skip
    of = {c: answer(facts(full, (c,)))[0] for c in (smaller, BUILD)}
    assert of[smaller].cause.id == "kv_pool_too_small"
    assert of[smaller].confidence > 0.8 > of[BUILD].confidence


def test_any_build_may_hold_what_is_said_to_come_with_one() -> None:
    causes = load()
    held = {c.id for c in causes.values() if c.change.build}
    assert held == {c.id for c in causes.values() if c.cls == "code-regression"} | {
        "structured_output_compile"
    }
    asked = {
        "schema_share": 0.9,
        "schema_cost": 0.9,
        "frontend_time": 0.9,
        "ttft": 0.6,
        "arrival_rate": 0.0,
    }
    first = answer(facts(asked, (BUILD,)))[0]
    assert (first.cause.id, first.change) == ("structured_output_compile", BUILD)


def test_a_called_service_that_waits_for_connections_is_not_the_slow_one() -> None:
    """Its callers see it slow, and so does its own server; what it calls answers as fast as ever."""
    moves = (
        Moved("E1", "dependency_time", 1.0, "trace", "retriever"),
        Moved("E2", "downstream_latency", 1.0, "metrics", "retriever"),
        Moved("E3", "gateway_latency", 1.0, "metrics", "retriever"),
        Moved("E4", "call_wait", 1.0, "trace", "database"),
        Moved("E5", "outside_engine", 1.0, "trace", "gateway"),
        Moved("E6", "dependency_time", 0.05, "trace", "database"),
    )
    called = frozenset({"retriever", "database"})
    waits = Moved("E7", "pool_waiters", 1.0, "metrics", "retriever")
    busy = Facts(moves, frozenset({"engine"}), called, frozenset(), (), 600.0)
    assert answer(busy)[0].cause.id == "dependency_slow"
    exhausted = replace(busy, moved=(*moves, waits))
    assert answer(exhausted)[0].cause.id == "connection_pool_exhausted"
    slow = Moved("E8", "dependency_time", 0.9, "trace", "database")
    assert answer(replace(exhausted, moved=(slow, *exhausted.moved)))[0].decided


@pytest.mark.parametrize(
    ("calls", "decode", "blamed"),
    [(0.01, 0.9, False), (0.6, 0.3, True), (0.01, 0.1, True)],
    ids=["engine", "calls", "unknown"],
)
def test_calls_that_hold_none_of_the_added_latency_are_not_to_blame(
    calls: float, decode: float, blamed: bool
) -> None:
    shares = (("decode", decode), ("calls of retriever", calls))
    found = replace(facts(SLOW_CALLS), shares=shares)
    first = answer(found)[0]
    assert (first.cause.id == "dependency_slow" and first.confidence > 0.5) == blamed
    causes = load()
    assert not elsewhere(causes["tiny_batch"], shares), "it makes the queue longer"
    assert not elsewhere(causes["cold_start"], shares), "no part is known to be its own"
    assert not elsewhere(causes["dependency_slow"], ()), "no trace tells"


@pytest.mark.parametrize("role", ["arrival_rate", "prompt_tokens", "output_tokens"])
def test_demand_that_fell_is_held_against_no_cause(role: str) -> None:
    """Callers get fewer answers while it is slow; more demand would be another cause."""
    causes = [c for c in load().values() if c.expected.get(role, (1, 0.0))[0] == 0]
    assert causes
    for cause in causes:
        required = min(cause.requires)
        mark = {required: 0.9 * cause.expected[required][0]}
        alone, fell, rose = (
            judge(facts(mark | more), [cause])[0].score
            for more in ({}, {role: -0.9}, {role: 0.9})
        )
        assert fell == pytest.approx(alone)
        assert rose < alone
