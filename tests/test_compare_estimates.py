"""Figures and their intervals against what brute force, tables and simulation give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rca.compare import estimates
from rca.compare.estimates import Completed, Interval


@pytest.mark.parametrize(
    ("n", "p", "index"),
    [(1, 0.5, 0), (20, 0.95, 18), (100, 0.95, 94), (200, 0.99, 197), (3, 0.99, 2), (1000, 0.95, 949)],
)  # fmt: skip
def test_a_quantile_is_the_value_at_place_ceil_pn(n: int, p: float, index: int) -> None:
    assert estimates.rank(n, p) == index
    assert estimates.quantile(np.arange(n) * 1.0, p) == index


def test_quantiles_of_nothing_are_none() -> None:
    empty = np.array([])
    assert estimates.quantile(empty, 0.5) is None
    assert estimates.quantile_interval(empty, 0.5) == Interval(None, None)
    assert estimates.quantile_change(empty, np.array([1.0]), 0.5, "x") == estimates.NONE


def test_the_interval_of_a_quantile_covers_the_truth_19_times_in_20() -> None:
    draws = np.random.default_rng(3)
    truth = -math.log(0.05)
    covered = 0
    for _ in range(1000):
        low, high = estimates.quantile_interval(np.sort(draws.exponential(size=300)), 0.95)
        assert low is not None and high is not None
        covered += low <= truth <= high
    assert 930 <= covered <= 985


def test_the_upper_end_needs_enough_requests() -> None:
    few, many = np.arange(60) * 1.0, np.arange(200) * 1.0
    assert estimates.quantile_interval(few, 0.95).high is None
    assert estimates.quantile_interval(many, 0.95).high == 196


def test_the_change_equals_a_bootstrap_that_draws_every_request() -> None:
    draws = np.random.default_rng(5)
    base = np.sort(draws.lognormal(0, 0.6, 400))
    candidate = np.sort(draws.lognormal(0.2, 0.6, 500))
    found = estimates.quantile_change(base, candidate, 0.95, "e2e_p95")

    def resampled(values: np.ndarray) -> np.ndarray:
        drawn = np.sort(draws.choice(values, (4000, len(values))), axis=1)
        return drawn[:, math.ceil(0.95 * len(values)) - 1]

    ratios = np.log(resampled(candidate) / resampled(base))
    low, high = np.quantile(ratios, (0.025, 0.975))
    assert found.log_ratio == pytest.approx(math.log(candidate[474] / base[379]))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_the_same_data_gives_the_same_interval_and_no_change() -> None:
    values = np.sort(np.random.default_rng(1).exponential(size=500))
    first = estimates.quantile_change(values, values, 0.95, "a")
    assert first == estimates.quantile_change(values, values, 0.95, "a")
    assert first.log_ratio == 0
    assert first.low is not None and first.high is not None and first.low < 0 < first.high


def test_requests_that_resemble_their_neighbours_widen_the_interval() -> None:
    draws = np.random.default_rng(8)
    apart = draws.normal(size=2000)
    waves = apart + 3 * np.repeat(draws.normal(size=20), 100)
    assert estimates.inflation(apart, 0.95) < 2
    assert estimates.inflation(waves, 0.5) > 10
    assert estimates.inflation(waves[:100], 0.5) == 1
    assert estimates.inflation(np.ones(1000), 0.5) == 1
    ordered = np.sort(waves)
    narrow = estimates.quantile_interval(ordered, 0.5)
    wide = estimates.quantile_interval(ordered, 0.5, 9.0)
    assert narrow.low and narrow.high and wide.low and wide.high
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)
    shifted = ordered + 100
    first = estimates.quantile_change(shifted, shifted, 0.5, "w")
    second = estimates.quantile_change(shifted, shifted, 0.5, "w", (9.0, 9.0))
    assert first.high and second.high and second.high > 2.5 * first.high


def test_a_change_has_no_interval_without_a_tail() -> None:
    values = np.sort(np.random.default_rng(1).exponential(size=999))
    change = estimates.quantile_change(values, values, 0.99, "a")
    assert (change.log_ratio, change.low, change.high) == (0, None, None)
    more = np.sort(np.random.default_rng(1).exponential(size=1000))
    assert estimates.quantile_change(more, more, 0.99, "a").low is not None
    assert estimates.quantile_change(np.zeros(100), more, 0.5, "a") == estimates.NONE


@pytest.mark.parametrize(
    ("failed", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (1, 10, 0.0179, 0.4042), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)],
)  # fmt: skip
def test_wilson_bounds_are_those_of_the_tables(
    failed: int, n: int, low: float, high: float
) -> None:
    assert estimates.wilson(failed, n) == pytest.approx((low, high), abs=5e-5)


def test_765_requests_without_an_error_show_half_a_per_cent() -> None:
    assert (estimates.wilson(0, 765).high or 1) <= 0.005 < (estimates.wilson(0, 764).high or 1)


def test_spread_and_its_test() -> None:
    draws = np.random.default_rng(2)
    narrow, wide = np.sort(draws.normal(100, 5, 400)), np.sort(draws.normal(100, 15, 400))
    change = estimates.spread_change(narrow, wide, "s")
    assert change.low is not None and change.high is not None
    assert change.low < math.log(3) < change.high
    assert change.low > 0
    p = estimates.same_spread_p(narrow, wide)
    assert p is not None and p < 1e-10
    assert estimates.spread(narrow[:99]) is None
    assert estimates.same_spread_p(narrow[:99], wide) is None


def completed(ends_s: np.ndarray, dur_s: float) -> Completed:
    return Completed((ends_s * 1e9).astype(np.int64), np.ones(len(ends_s)), 0, int(dur_s * 1e9))


def test_replayed_traffic_has_a_narrower_interval_than_other_traffic() -> None:
    draws = np.random.default_rng(4)
    ends = np.sort(draws.uniform(0, 100, 1000))
    replayed = completed(np.minimum(ends + 0.01, 100), 100)
    other = completed(np.sort(draws.uniform(0, 100, 1000)), 100)
    base = completed(ends, 100)
    assert estimates.rate(base) == 10

    def width(side: Completed) -> float:
        change = estimates.rate_change(base, side, "t")
        assert change.low is not None and change.high is not None
        assert change.low <= 0 <= change.high
        return change.high - change.low

    assert width(replayed) < width(other) / 3


def test_a_slower_rate_is_found() -> None:
    draws = np.random.default_rng(6)
    base = completed(np.sort(draws.uniform(0, 100, 2000)), 100)
    slower = completed(np.sort(draws.uniform(0, 200, 2000)), 200)
    change = estimates.rate_change(base, slower, "t")
    assert change.log_ratio == pytest.approx(-math.log(2))
    assert change.high is not None and change.high < -0.5
    few = completed(np.arange(50.0), 50)
    assert estimates.rate_change(few, few, "t").low is None
    assert estimates.own_spread(few) is None
    assert estimates.own_spread(base) == pytest.approx(1.96 / math.sqrt(2000), rel=0.4)


def test_change_of_a_mean() -> None:
    draws = np.random.default_rng(7)
    old, new = draws.gamma(4, 25, 500), draws.gamma(4, 30, 500)
    change = estimates.mean_change(old, new)
    assert change.low is not None and change.high is not None
    assert change.low < math.log(1.2) < change.high
    assert estimates.mean_change(old[:1], new) == estimates.NONE
