"""How two sets of paired runs differ, and which candidate looks most like an incident."""

from __future__ import annotations

import math

import pytest

from rca.models.effect import cliffs_delta, is_monotone, of_pairs
from rca.models.ranking import rank


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
