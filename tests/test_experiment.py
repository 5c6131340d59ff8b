"""The verdict on a hypothesis: right ones hold, wrong ones do not, and the budget is kept."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
from noisy_machine import Machine

from rca.models import experiment, pairing
from rca.models.arms import run_twin
from rca.models.conclusion import leaves_hallmark
from rca.models.experiment import Experiment, run
from rca.models.fault import Remedy, beside
from rca.models.faults import FAULTS, PLACEBO, find
from rca.models.figures import log_ratios
from rca.models.own_fix import parse, remedy
from rca.models.ranking import is_still, rank
from rca.models.screening import Screening
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig

RIVALS = ("overload", "kv_pool_too_small", "batch_window_mismatch", "context_inflation")


def _observed(cause: str, dose: float = 1.2) -> dict[str, float]:
    """Figures of an incident of `cause` with other traffic than the experiment's."""
    plan = find(cause).plan(Plan(), dose, 60.0)
    return log_ratios(run_twin(plan, 77, 60.0), run_twin(Plan(), 78, 60.0))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let experiments run on a noisy twin, its noise drawn from the seed given."""

    def use(seed: int, spread: float = 0.3) -> None:
        made = Machine(seed, spread)
        monkeypatch.setattr(experiment, "torch_runtime", lambda _sizes: nullcontext(made))

    use(0)
    return use


def _mended_by(monkeypatch: pytest.MonkeyPatch, cause: str, fix: Remedy) -> None:
    monkeypatch.setitem(FAULTS, cause, replace(FAULTS[cause], fix=fix))  # type: ignore[misc]


def _refused(found: Experiment) -> None:
    assert found.status in ("refuted", "ambiguous"), found.reason
    assert found.pairs == 0


@pytest.mark.parametrize(
    ("truth", "claim"),
    [
        ("kv_pool_too_small", "overload"),
        ("kv_pool_too_small", "batch_window_mismatch"),
        ("overload", "kv_pool_too_small"),
        ("batch_window_mismatch", "overload"),
        ("logits_processor_leak", "context_inflation"),
        ("context_inflation", "stale_tokenizer_cache_key"),
        ("prefill_starves_decode", "tiny_batch"),
    ],
)
def test_a_wrong_hypothesis_is_refuted(truth: str, claim: str) -> None:
    found = run(claim, observed=_observed(truth), rivals=[truth, *RIVALS], budget_s=60.0)
    _refused(found)
    assert found.details["ranks"]
    json.dumps(found.details, allow_nan=False)


@pytest.mark.parametrize("cause", ["overload", "kv_pool_too_small", "logits_processor_leak"])
def test_no_incident_validates_nothing(cause: str) -> None:
    calm = log_ratios(run_twin(Plan(), 77, 60.0), run_twin(Plan(), 77, 60.0))
    assert is_still(calm)
    _refused(run(cause, observed=calm, rivals=RIVALS, budget_s=60.0))


def test_unknown_figures_and_wild_values_do_no_harm() -> None:
    observed = _observed("kv_pool_too_small") | {"nonsense": 9.0, "ttft_p50": math.inf}
    observed["queue_mean"] = 99.0
    _refused(run("overload", observed=observed, rivals=["kv_pool_too_small"], budget_s=60.0))


def test_what_cannot_run_is_not_run() -> None:
    found = run("collective_straggler", budget_s=5.0)
    assert found.status == "not_reproducible_on_device"
    assert "GPU" in found.reason
    assert (found.device, found.arms, found.pairs) == (None, [], 0)
    assert run("healthy").status == "not_run"
    assert run("overload", budget_s=0).status == "not_run"


def test_a_rival_that_cannot_be_tried_is_named() -> None:
    found = run(
        "overload",
        observed=_observed("kv_pool_too_small"),
        rivals=["numa_misbind", "no_such_cause", "kv_pool_too_small"],
        budget_s=60.0,
    )
    left = found.details["left_out"]
    assert isinstance(left, list)
    assert any("numa_misbind" in line for line in left)
    assert any("no_such_cause" in line for line in left)


def test_the_twin_alone_never_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_sizes: DecoderConfig) -> None:
        raise experiment.MissingExtra("torch", "torch")

    monkeypatch.setattr(experiment, "torch_runtime", missing)
    found = run(
        "kv_pool_too_small",
        observed=_observed("kv_pool_too_small"),
        rivals=RIVALS,
        budget_s=60.0,
    )
    assert found.status == "mechanism_only"
    assert "torch is not installed" in found.reason
    assert {row.engine for row in found.arms} == {"twin"}


@pytest.mark.usefixtures("machine")
def test_a_placebo_as_the_fix_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = "batch_window_mismatch"
    _mended_by(monkeypatch, cause, PLACEBO)
    found = run(cause, observed=_observed(cause), budget_s=60.0)
    assert found.status == "mechanism_only"
    assert "does not mend" in found.reason


def test_a_fix_that_does_too_much_is_reported_with_its_price(
    monkeypatch: pytest.MonkeyPatch, machine: Callable[..., None]
) -> None:
    machine(0, spread=0.02)
    cause = "prefill_starves_decode"
    crumbs = Remedy(
        "one prompt gets at most 2 tokens a step",
        "long_prefill_token_threshold",
        lambda plan: plan.with_args(long_prefill_token_threshold=2),
    )
    _mended_by(monkeypatch, cause, crumbs)
    found = run(cause, observed=_observed(cause), budget_s=60.0)
    assert found.pairs == pairing.PAIRS
    assert "side effect of the fix: ttft_p50" in found.reason


def test_a_fix_of_ones_own_that_turns_requests_away_says_so(
    machine: Callable[..., None],
) -> None:
    machine(0, spread=0.02)
    cause = "prefix_cache_pollution"
    quota = remedy(parse(["tenant_token_quota=150"]), {})
    found = run(cause, observed=_observed(cause), fix=quota, budget_s=60.0)
    assert found.status in ("validated", "partial_fix"), found.reason
    assert found.fix == "tenant_token_quota=150"
    assert re.search(
        r"side effect of the fix: \d\d(\.\d)? % of the requests are turned away", found.reason
    )
    assert found.details["side_effects"]
    json.dumps(found.details, allow_nan=False)


def test_turning_the_faults_own_knob_back_proves_nothing(machine: Callable[..., None]) -> None:
    machine(0, spread=0.02)
    back = remedy(parse(["max_num_seqs=16"]), {})
    found = run("tiny_batch", observed=_observed("tiny_batch"), fix=back, budget_s=60.0)
    assert found.status == "mechanism_only"
    assert "proves nothing of the cause" in found.reason


@pytest.mark.slow
def test_a_noisy_machine_does_not_change_the_status(machine: Callable[..., None]) -> None:
    cause = "batch_window_mismatch"
    observed = _observed(cause)
    statuses = set()
    for seed in range(20):
        machine(seed)
        statuses.add(run(cause, observed=observed, budget_s=30.0).status)
    assert statuses == {"validated"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_equal_services_validate_nothing_in_200_trials(machine: Callable[..., None]) -> None:
    """Each pair claims what it looks most like, on a machine that would show the fault."""
    screening = Screening(Plan())
    for fault in FAULTS.values():
        if fault.reproducible and fault.cause != "healthy":
            screening.add(fault, fault.cause)
    statuses = Counter()
    for pair in range(200):
        machine(pair)
        before, after = (run_twin(Plan(), 9000 + 2 * pair + n, 30.0) for n in (0, 1))
        observed = log_ratios(after, before)
        claims = [found.cause for found in rank(observed, screening.shown)[:4]]
        found = run(claims[0], observed=observed, rivals=claims[1:], budget_s=60.0)
        statuses[found.status] += 1
    assert statuses["validated"] == statuses["partial_fix"] == 0, statuses


def test_a_budget_too_small_for_six_pairs_is_inconclusive() -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    began = time.monotonic()
    found = run("kv_pool_too_small", observed=_observed("kv_pool_too_small"), budget_s=1.2)
    assert found.status == "inconclusive"
    assert "the budget of 1.2 s was spent" in found.reason
    assert time.monotonic() - began < 15  # torch's import cannot be cut short


def test_torch_is_not_started_when_its_start_alone_would_break_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(_sizes: DecoderConfig) -> None:
        raise AssertionError("torch was started")

    monkeypatch.setattr(experiment, "torch_runtime", started)
    monkeypatch.setattr(experiment, "_START_CPU_S", 60.0)
    found = run("kv_pool_too_small", observed=_observed("kv_pool_too_small"), budget_s=60.0)
    assert found.status == "inconclusive"
    assert "before torch could start" in found.reason


def test_when_the_budget_is_gone_the_twin_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cheap still refutes; runs that only say how far equal services differ are left out."""

    def more(*_: object) -> float:
        raise AssertionError("the twin was run again")

    monkeypatch.setattr(Screening, "noise", more)
    late = time.monotonic() - 100.0
    observed = _observed("kv_pool_too_small")
    found = run("kv_pool_too_small", observed=observed, budget_s=60.0, began=late)
    assert (found.status, found.pairs) == ("inconclusive", 0)
    assert "before torch could start" in found.reason
    _refused(run("overload", observed=observed, budget_s=60.0, began=late))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cause", ["logits_processor_leak", "kv_pool_too_small", "batch_window_mismatch"]
)
def test_a_right_hypothesis_holds_within_the_budget(cause: str) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    began = time.monotonic()
    found = run(cause, observed=_observed(cause), rivals=RIVALS, budget_s=20.0)
    spent_s = time.monotonic() - began
    assert spent_s < 22.0
    assert found.spent_ns == pytest.approx(spent_s * 1e9, rel=0.15)
    if found.status == "inconclusive":
        pytest.skip(f"the machine is too busy: {found.reason}")
    noise = found.details["noise"]
    assert isinstance(noise, dict)
    if found.status == "mechanism_only" and max(noise.values()) > 1.15:
        pytest.skip(f"two equal arms differ by {max(noise.values()):.2f}: the machine is busy")
    assert found.status in ("validated", "partial_fix"), found.reason
    assert found.pairs == pairing.PAIRS
    arms = {row.arm for row in found.arms if row.engine == "torch"}
    assert arms == {"healthy", "control", "fault", "fix", "placebo"}
    json.dumps(found.details, allow_nan=False)


@pytest.mark.slow
def test_two_equal_services_are_never_a_validated_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    observed = _observed("batch_window_mismatch")
    monkeypatch.setattr(experiment._Trial, "_faulty", lambda trial, _seconds: trial.healthy)
    found = run("batch_window_mismatch", observed=observed, budget_s=20.0)
    assert found.status in ("refuted", "inconclusive", "mechanism_only")


def test_the_healthy_arm_is_the_one_given() -> None:
    healthy = Plan().with_traffic(prefix_tokens=0, unique_tokens=200)
    found = run("overload", healthy=healthy, observed=_observed("tiny_batch"), budget_s=5.0)
    hits = [
        row.value
        for row in found.arms
        if row.arm == "healthy" and row.figure == "prefix_hit_rate"
    ]
    assert max(hits) < 0.05


def test_what_marks_the_cause_rules_out_a_rival_that_looks_alike() -> None:
    """A flushed cache looks the same whoever flushed it; one tenant's share does not."""
    pollution, rival = find("prefix_cache_pollution"), "stale_tokenizer_cache_key"
    shown = {
        (cause, 1.0): log_ratios(
            run_twin(find(cause).plan(Plan(), 1.0, 30.0), 5, 30.0), run_twin(Plan(), 5, 30.0)
        )
        for cause in (pollution.cause, rival)
    }
    observed = _observed("prefix_cache_pollution")
    assert leaves_hallmark(rival, pollution, observed, shown) is not None
    assert leaves_hallmark(pollution.cause, pollution, observed, shown) is None
    assert leaves_hallmark(rival, pollution, {**observed, "grown_tenants": 0.1}, shown) is None


def test_a_cause_is_tried_beside_another_that_is_at_work(machine: Callable[..., None]) -> None:
    both = beside(find("dependency_slow"), find("tiny_batch")).plan(Plan(), 1.0, 60.0)
    observed = log_ratios(run_twin(both, 77, 60.0), run_twin(Plan(), 78, 60.0))
    alone = run("dependency_slow", observed=observed, rivals=["tiny_batch"], budget_s=60.0)
    assert alone.status in ("refuted", "ambiguous")
    found = run(
        "dependency_slow",
        observed=observed,
        rivals=["tiny_batch"],
        other="tiny_batch",
        budget_s=60.0,
    )
    assert found.status in ("validated", "partial_fix"), found.reason
    assert found.reason.endswith("; beside tiny_batch")
    assert found.details["beside"] == "tiny_batch"
    assert "max_num_seqs" not in (found.fault or "")
