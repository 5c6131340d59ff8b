"""The twin: what each fault moves, in which direction, and the same in every run."""

from __future__ import annotations

import pytest

from rca.errors import CauseError
from rca.models.arms import run_twin
from rca.models.effect import is_monotone
from rca.models.fault import Fault
from rca.models.faults import FAULTS, find
from rca.models.figures import FLOORS, LARGEST, log_ratios
from rca.models.screening import OP_FIGURES, still
from rca.models.settings import Plan

SECONDS = 30.0
HEALTHY = run_twin(Plan(), 5, SECONDS)
REPRODUCIBLE = [f for f in FAULTS.values() if f.reproducible and f.cause != "healthy"]


def _shown(fault: Fault, dose: float) -> dict[str, float]:
    return log_ratios(run_twin(fault.plan(Plan(), dose, SECONDS), 5, SECONDS), HEALTHY)


def test_two_runs_are_bit_identical() -> None:
    plan = find("kv_pool_too_small").plan(Plan(), 1.0, SECONDS)
    assert run_twin(plan, 5, SECONDS) == run_twin(plan, 5, SECONDS)


def test_the_healthy_service_is_half_loaded_and_calm() -> None:
    assert HEALTHY["preemptions_per_request"] == 0
    assert HEALTHY["waiting"] < 0.5
    assert 0.55 < HEALTHY["prefix_hit_rate"] < 0.8
    twice = run_twin(Plan().with_traffic(rate_per_s=2.2 * Plan().traffic.rate_per_s), 5, 60.0)
    assert twice["waiting"] > 5  # so its capacity is less than 2.2 times its load


@pytest.mark.parametrize("fault", REPRODUCIBLE, ids=lambda fault: fault.cause)
def test_a_fault_moves_its_counters_and_its_latencies(fault: Fault) -> None:
    shown = _shown(fault, 1.0)
    assert still(fault.moves, shown) == []
    assert set(fault.moves) <= set(FLOORS)
    assert max(shown[figure] for figure in fault.timing) > 0.2


@pytest.mark.parametrize("fault", REPRODUCIBLE, ids=lambda fault: fault.cause)
def test_a_larger_dose_does_more(fault: Fault) -> None:
    figures = [f for f in (*fault.moves, *fault.timing) if f not in OP_FIGURES]
    if not figures:
        pytest.skip("only operator counts move; the twin has none")
    values = [0.0, *(_shown(fault, dose)[figures[0]] for dose in (0.5, 1.0, 2.0))]
    assert is_monotone(values, fault.moves.get(figures[0], 1))


@pytest.mark.parametrize("fault", REPRODUCIBLE, ids=lambda fault: fault.cause)
def test_no_dose_is_no_fault(fault: Fault) -> None:
    assert fault.plan(Plan(), 0.0, SECONDS) == Plan()


@pytest.mark.parametrize(
    "fault", [f for f in REPRODUCIBLE if f.fix], ids=lambda fault: fault.cause
)
def test_the_fix_turns_another_knob_and_helps(fault: Fault) -> None:
    assert fault.fix is not None
    assert fault.fix.knob != fault.knob
    plan = fault.plan(Plan(), 1.0, SECONDS)
    fixed = log_ratios(run_twin(fault.fix.apply(plan), 5, SECONDS), HEALTHY)
    shown = _shown(fault, 1.0)
    figure = max(fault.timing, key=lambda name: shown[name])
    assert fixed[figure] < 0.5 * shown[figure]


def test_faults_that_confuse_differ_where_they_must() -> None:
    pool, flush = (
        _shown(find("kv_pool_too_small"), 1.0),
        _shown(find("position_gap_kv_flush"), 1.0),
    )
    assert pool["preemptions_per_request"] > 1 > flush["preemptions_per_request"] == 0
    churn = _shown(find("stale_tokenizer_cache_key"), 1.0)
    pollution = _shown(find("prefix_cache_pollution"), 1.0)
    assert churn["prefix_hit_rate"] < pollution["prefix_hit_rate"] < -0.2
    window, overload = _shown(find("batch_window_mismatch"), 1.0), _shown(find("overload"), 1.0)
    assert window["running"] < 0.2 < overload["running"]


def test_every_cause_is_reproducible_or_says_why_not() -> None:
    for fault in FAULTS.values():
        assert fault.reproducible or fault.device.startswith("needs ")


def test_aliases_and_unknown_causes() -> None:
    assert find("preemption_thrash") is find("kv_pool_too_small")
    with pytest.raises(CauseError, match="no cause is called nonsense"):
        find("nonsense")


def test_log_ratios_are_clipped_and_keep_zero_finite() -> None:
    before = {"ttft_p50": 10.0, "preemptions_per_request": 0.0, "queue_mean": 0.0}
    after = {"ttft_p50": 20.0, "preemptions_per_request": 5.0, "queue_mean": float("nan")}
    shown = log_ratios(after, before)
    assert shown["ttft_p50"] == pytest.approx(0.6931, abs=1e-4)
    assert shown["preemptions_per_request"] == LARGEST
    assert "queue_mean" not in shown
