"""The verdict on a hypothesis: right ones hold, wrong ones do not, and the budget is kept."""

from __future__ import annotations

import json
import math
import time

import pytest

from rca.models import experiment, pairing
from rca.models.arms import run_twin
from rca.models.effect import cliffs_delta, is_monotone, of_pairs
from rca.models.experiment import Experiment, run
from rca.models.faults import find
from rca.models.figures import log_ratios
from rca.models.ranking import is_still, rank
from rca.models.settings import Plan
from rca.models.workload import WorkloadSettings

RIVALS = ("overload", "kv_pool_too_small", "batch_window_mismatch", "context_inflation")


def _observed(cause: str, dose: float = 1.2) -> dict[str, float]:
    """Figures of an incident of `cause` with other traffic than the experiment's."""
    plan = find(cause).plan(Plan(), dose, 60.0)
    return log_ratios(run_twin(plan, 77, 60.0), run_twin(Plan(), 78, 60.0))


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
    found = run("gpu_thermal_or_power_throttle", budget_s=5.0)
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
    def missing(**_sizes: int) -> None:
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


def test_a_budget_too_small_for_six_pairs_is_inconclusive() -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    began = time.monotonic()
    found = run("kv_pool_too_small", observed=_observed("kv_pool_too_small"), budget_s=1.2)
    assert found.status == "inconclusive"
    assert "of 6 pairs" in found.reason
    assert time.monotonic() - began < 15  # torch's import cannot be cut short


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
    assert found.spent_ns == pytest.approx(spent_s * 1e9, rel=0.05)
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


def test_settings_shape_the_healthy_arm() -> None:
    settings = WorkloadSettings(shared_share=0.0, utilisation=0.3)
    found = run("overload", settings=settings, observed=_observed("tiny_batch"), budget_s=5.0)
    hits = [
        row.value
        for row in found.arms
        if row.arm == "healthy" and row.figure == "prefix_hit_rate"
    ]
    assert max(hits) < 0.05


def test_effects_need_pairs_and_know_their_sign() -> None:
    logs = [math.log(2.0)] * 6
    found = of_pairs(logs, [2.0] * 6, [1.0] * 6)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (found.cliffs_delta, found.same_sign, found.pairs) == (1.0, True, 6)
    assert of_pairs(logs[:2], [2.0] * 2, [1.0] * 2) is None
    mixed = of_pairs([0.1, -0.1, 0.2, -0.2, 0.0, 0.05], [1.0] * 6, [1.0] * 6)
    assert mixed is not None
    assert not mixed.same_sign
    assert mixed.low < 1 < mixed.high


def test_one_disturbed_run_does_not_decide() -> None:
    found = of_pairs([0.0, 0.01, -0.01, 0.0, 0.02, 3.0], [1.0] * 6, [1.0] * 6)
    assert found is not None
    assert found.ratio < 1.05


def test_cliffs_delta_and_monotone() -> None:
    assert cliffs_delta([1, 2], [1, 2]) == 0
    assert cliffs_delta([3, 4], [1, 2]) == 1
    assert is_monotone([0.0, 0.5, 1.0], 1)
    assert not is_monotone([0.0, 0.5, 0.2], 1)
    assert not is_monotone([0.0, 0.0, 0.0], 1)


def test_ranking_compares_directions_beyond_the_dead_band() -> None:
    observed = {"ttft_p50": 1.0, "preemptions_per_request": 2.0, "arrival_rate": 0.1}
    pool = {"ttft_p50": 0.5, "preemptions_per_request": 1.0, "arrival_rate": 0.0}
    load = {"ttft_p50": 2.0, "preemptions_per_request": 0.0, "arrival_rate": 0.8}
    first, second = rank(observed, {("pool", 1.0): pool, ("load", 1.0): load})
    assert (first.cause, second.cause) == ("pool", "load")
    assert first.likeness == pytest.approx(1.0)
    assert second.worst_figure == "preemptions_per_request"
