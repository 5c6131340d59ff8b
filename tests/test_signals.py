"""Points, evidence strength, and the scan, on values made here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry_builder import add_source, add_span

from rca import case as case_module
from rca.case import Case
from rca.errors import QueryError
from rca.evidence.moves import (
    Span,
    block_sums,
    cliffs_delta,
    interval,
    measure,
    poisson_z,
    strength,
)
from rca.signals import EMPTY, Points, Signal, limit_of
from rca.views import computed_once
from rca.window.scan import find

SECOND = 1_000_000_000
START = 1_780_000_000 * SECOND


def points(
    values: list[float], step_s: int = 15, den: float = 1.0, start: int = START
) -> Points:
    ts = start + np.arange(len(values), dtype=np.int64) * step_s * SECOND
    return Points(ts, np.array(values) * den, np.full(len(values), den))


def latency(incident: list[float], baseline: list[float], role: str = "ttft") -> Signal:
    day = 86_400 * SECOND
    return Signal(
        "metrics",
        role,
        "engine",
        "",
        points(incident, den=30),
        points(baseline, den=30, start=START - day),
    )


def noisy(level: float, n: int, seed: int) -> list[float]:
    return list(level * np.exp(np.random.default_rng(seed).normal(0, 0.08, n)))


@given(st.lists(st.integers(-5, 5), min_size=1), st.lists(st.integers(-5, 5), min_size=1))
def test_cliffs_delta_is_what_counting_pairs_gives(before: list[int], after: list[int]) -> None:
    pairs = [np.sign(b - a) for a in before for b in after]
    assert cliffs_delta(np.array(before, float), np.array(after, float)) == pytest.approx(
        np.mean(pairs)
    )


@given(st.integers(1, 7), st.integers(1, 40))
def test_blocks_keep_the_pooled_value_of_whole_blocks(size: int, n: int) -> None:
    whole = points([float(i) for i in range(n)])
    blocks = whole.blocks(size)
    used = (n // size) * size if size > 1 else n
    if used == n:
        assert blocks.pooled() == pytest.approx(whole.pooled())
    assert len(blocks.ts_ns) == (n if size == 1 else len(range(0, n - size + 1, size)))


def test_strength_needs_a_shift_and_little_overlap() -> None:
    same = latency(noisy(1.0, 40, 1), noisy(1.0, 40, 2))
    doubled = latency(noisy(2.0, 40, 1), noisy(1.0, 40, 2))
    halved = latency(noisy(0.5, 40, 1), noisy(1.0, 40, 2))
    assert abs(strength(same, same.baseline, same.incident)) < 0.1
    assert strength(doubled, doubled.baseline, doubled.incident) > 0.8
    assert strength(halved, halved.baseline, halved.incident) < -0.7


def test_a_signal_that_only_differs_between_days_has_not_moved() -> None:
    level = noisy(1.0, 20, 3)
    signal = latency([3 * v for v in noisy(1.0, 80, 4)], level)
    span = Span(START + 40 * 15 * SECOND, START + 80 * 15 * SECOND, 15 * SECOND)
    move = measure(signal, span)
    assert move is not None
    assert move.side == "lead-in"
    assert move.direction == "flat"


def test_rare_events_are_judged_by_their_number() -> None:
    none, some = points([0.0] * 40), points([0.0] * 10 + [1.0] * 10)
    assert poisson_z(none, none) == 0.0
    assert poisson_z(none, some) > 4


def test_of_what_is_counted_the_number_must_have_moved_too() -> None:
    few = latency([1.5] * 10, [1.0] * 10)  # 30 calls a point
    rare = Signal("trace", "call_rate", "shop", "pay", points([1.5] * 10), points([1.0] * 10))
    many = Signal("trace", "call_rate", "shop", "pay", few.incident, few.baseline)
    assert strength(few, few.baseline, few.incident) > 0.9
    assert strength(rare, rare.baseline, rare.incident) == pytest.approx(
        np.tanh(poisson_z(rare.baseline, rare.incident) / 4)
    )
    assert strength(rare, rare.baseline, rare.incident) < 0.25
    assert strength(many, many.baseline, many.incident) > 0.8


def test_intervals_hold_the_true_ratio_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(100):
        ends = interval(
            points(noisy(1.0, 60, 2 * seed)), points(noisy(2.0, 60, 2 * seed + 1)), seed
        )
        assert ends is not None
        held += ends[0] < np.log(2.0) < ends[1]
    assert 86 <= held <= 100


def test_intervals_come_again_from_their_seed() -> None:
    before, after = points(noisy(1.0, 60, 5)), points(noisy(2.0, 60, 6))
    assert interval(before, after, seed=11) == interval(before, after, seed=11)
    assert interval(points([1.0, 1.0]), after, seed=11) is None


def stretches(signals: list[Signal]) -> list[tuple[int, int]]:
    """First and last point of each stretch that the scan of 15 s points finds."""
    scan = find(signals)
    assert scan is not None
    begin = (START - scan.start_ns) // scan.step_ns - 1
    return [(f.first - begin, f.last - begin) for f in scan.found]


def test_scan_finds_the_stretch() -> None:
    values = noisy(1.0, 40, 7) + noisy(3.0, 30, 8) + noisy(1.0, 20, 9)
    ((first, last),) = stretches([latency(values, noisy(1.0, 80, 10))])
    assert abs(first - 40) <= 1
    assert abs(last - 69) <= 1


def test_scan_finds_it_without_a_baseline() -> None:
    values = noisy(1.0, 40, 7) + noisy(3.0, 30, 8) + noisy(1.0, 20, 9)
    signal = latency(values, [])
    ((first, last),) = stretches(
        [Signal(signal.source, signal.role, "engine", "", signal.incident, EMPTY)]
    )
    assert (abs(first - 40) <= 2, abs(last - 69) <= 2) == (True, True)


@pytest.mark.parametrize("seed", range(20))
def test_scan_is_silent_on_healthy_noise(seed: int) -> None:
    roles = ("ttft", "itl", "e2e_latency", "gateway_latency")
    signals = [
        latency(noisy(1.0, 120, 100 * seed + i), noisy(1.0, 80, 100 * seed + 50 + i), role)
        for i, role in enumerate(roles)
    ]
    assert stretches(signals) == []


def test_unrest_that_could_lie_anywhere_does_not_widen_an_incident() -> None:
    """The lead-in would be swallowed, and nothing healthy left to compare with."""
    drift = np.cumsum(np.random.default_rng(6).normal(0, 0.05, 110))
    symptoms = []
    for number, role in enumerate(("ttft", "e2e_latency", "itl")):
        values = np.exp(drift + np.random.default_rng(600 + number).normal(0, 0.1, 110))
        values[45:85] *= 6
        symptoms.append(replace(latency(list(values), [], role), baseline=EMPTY))
    ((first, last),) = stretches(symptoms)
    assert (abs(first - 45) <= 2, abs(last - 84) <= 2) == (True, True)


def test_two_stretches_that_nearly_touch_are_one_incident() -> None:
    values = noisy(1.0, 30, 1) + noisy(4.0, 20, 2) + noisy(1.0, 3, 3) + noisy(4.0, 20, 4)
    first, last = stretches([latency(values, noisy(1.0, 80, 5))])[0]
    assert (abs(first - 30) <= 1, abs(last - 72) <= 1) == (True, True)


def test_the_limit_of_an_alert_is_told_in_its_unit() -> None:
    assert limit_of("itl", 0.0373, is_slope=False) == ("ITL", "37.3 ms")
    assert limit_of("host_memory", 200_000.0, is_slope=True) == (
        "host memory growth",
        "200 kB/s",
    )
    assert limit_of("waiting", 1.0, is_slope=False) == ("waiting", "1")


def test_rows_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_module, "_BATCH_ROWS", 2048)
    with Case.create() as case:
        parts = list(
            case.batches("SELECT i FROM range(5000) t(i) WHERE i >= ? ORDER BY i", [10])
        )
        assert len(parts) > 1
        assert [i for part in parts for i in part["i"]] == list(range(10, 5000))
        with pytest.raises(QueryError):
            list(case.batches("SELECT nothing"))


@pytest.mark.parametrize(("n", "block"), [(4, 2), (7, 3), (9, 3), (50, 4)])
def test_sums_of_blocks_are_those_of_the_points_in_them(n: int, block: int) -> None:
    random = np.random.default_rng(n)
    values = random.exponential(size=n)
    starts = random.integers(0, n, (20, -(-n // block)))
    picked = [
        [(start + i) % n for start in row for i in range(block)][:n] for row in starts.tolist()
    ]
    plain = [sum(values[i] for i in row) for row in picked]
    assert block_sums(values, starts, block) == pytest.approx(plain)


def test_a_block_within_another_uses_its_tables_and_leaves_them() -> None:
    with Case.create() as case:
        source = add_source(case, "trace")
        add_span(case, source, "t", "engine", "llm_request", 1, 0.5)
        with computed_once(case, ("request",)):
            case.execute("DELETE FROM span")
            with computed_once(case, ("request", "span_self")):
                assert case.scalar("SELECT count(*) FROM request") == 1
                assert case.scalar("SELECT count(*) FROM span_self") == 0
            assert case.scalar("SELECT count(*) FROM request") == 1
        assert case.scalar("SELECT count(*) FROM request") == 0


def test_views_computed_once_are_the_views_and_leave_no_trace() -> None:
    signals = "SELECT * FROM signal_value ORDER BY ALL"
    with Case.create() as case:
        source = add_source(case, "trace")
        for i in range(20):
            add_span(case, source, f"t{i}", "gateway", "POST", i, 1.0 + i / 7, span="root")
            add_span(case, source, f"t{i}", "engine", "llm_request", i, 0.5, parent="root")
        before, tables = case.rows(signals), case.recorded_tables()
        assert before
        with (
            pytest.raises(QueryError, match="nowhere"),
            computed_once(case),
        ):
            assert case.rows(signals) == before
            assert case.recorded_tables() == tables
            case.execute("DELETE FROM span")
            assert case.scalar("SELECT count(*) FROM span_value") > 0, (
                "span_self was asked again"
            )
            case.rows("FROM nowhere")
        assert case.rows(signals) == []
        assert case.rows("SELECT table_type FROM information_schema.tables WHERE table_name = 'request'") == [
            ("VIEW",)
        ]  # fmt: skip
