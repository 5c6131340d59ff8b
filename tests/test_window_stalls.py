"""Where the incident is when only a few gaps between tokens are long."""

from __future__ import annotations

import numpy as np
from telemetry_builder import SECOND, at

from rca.signals import Points, Signal
from rca.window.scan import find

DAY_NS = 86_400 * SECOND


def stalls(seed: int, since: int) -> Signal:
    """120 scrapes of 100 gaps between tokens; from `since` on three of ten hold four long gaps."""
    random = np.random.default_rng(seed)
    times = np.array([at(second) for second in range(1, 121)])
    long_gaps = np.where((times > at(since)) & (random.random(120) < 0.3), 4.0, 0.0)
    gaps = np.full(120, 100.0)
    today, healthy = Points(times, long_gaps, gaps), Points(times - DAY_NS, 0 * gaps, gaps)
    return Signal("metrics", "itl_stalls", "engine", "", today, healthy)


def test_stalls_now_and_then_are_one_incident_and_the_margin_knows_how_few_they_are() -> None:
    """The healthy service has none: by its calm alone the densest few would be told to the second."""
    held, found = 0, 0
    for seed in range(20):
        scan = find([stalls(seed, 60)])
        assert scan is not None
        for first in scan.found[:1]:
            found += 1
            start, _ = scan.times(first.first, first.last)
            held += abs(start - at(60)) <= (first.margin_bins + 1) * scan.step_ns
    assert found == 20
    assert held >= 15
