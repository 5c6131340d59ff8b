"""Incidents beside the shape of the day: a rise that comes every morning, and what comes on top of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from telemetry_builder import SECOND, T0, at

from rca.signals import Points, Signal, Values
from rca.window.daily import flattened
from rca.window.scan import find

DAY = 86_400
HOUR = 3600


def by_the_day(
    seconds: Values, seed: int, *, ramp: bool = True, slower: float = 1.0
) -> tuple[Points, Points]:
    """Latency (a mean each minute) that doubles from 06:00 to 08:00 UTC, and a share of errors that does so."""
    random = np.random.default_rng(seed)
    of_day = (T0 // SECOND + seconds) % DAY
    rise = 1.0 + np.clip((of_day - 6 * HOUR) / (2 * HOUR), 0, 1) * (of_day < 20 * HOUR) * ramp
    clock = of_day - 6 * HOUR
    hurt = np.where((clock > 2.0 * HOUR) & (clock < 2.5 * HOUR), slower, 1.0)
    latency = 0.4 * rise * hurt * np.exp(random.normal(0, 0.06, len(seconds)))
    failed = random.binomial(200, 0.01 * rise)
    ts = T0 + (seconds * 1e9).astype(np.int64)
    return Points(ts, latency * 50, np.full(len(ts), 50.0)), Points(
        ts, failed.astype(float), np.full(len(ts), 200.0)
    )


def morning(*, ramp: bool = True, slower: float = 1.0) -> list[Signal]:
    """05:30 to 09:00 of a day, and two whole days before it."""
    begin = -(T0 // SECOND % DAY) + 5.5 * HOUR
    today = by_the_day(begin + np.arange(0, 3.5 * HOUR, 60.0), 1, slower=slower)
    before = by_the_day(begin - 3 * DAY + np.arange(0, 2 * DAY, 60.0), 2, ramp=ramp)
    roles = ("e2e_latency", "error_share")
    return [
        Signal("metrics", role, "gateway", "", now, then)
        for role, now, then in zip(roles, today, before, strict=True)
    ]


def test_the_morning_ramp_is_no_incident() -> None:
    scan = find(morning())
    assert scan is not None
    assert scan.found == []
    # Beside days without it the same ramp is one.
    assert (other := find(morning(ramp=False))) is not None
    assert other.found


def test_an_incident_on_the_ramp_is_found_where_it_is() -> None:
    scan = find(morning(slower=1.5))
    assert scan is not None
    (one,) = scan.found
    start, end = scan.times(one.first, one.last)
    begin = -(T0 // SECOND % DAY)
    assert abs(start - at(begin + 8.0 * HOUR)) <= 180 * SECOND
    assert abs(end - at(begin + 8.5 * HOUR)) <= 180 * SECOND


def test_a_baseline_of_hours_tells_no_shape_of_the_day() -> None:
    (latency, _) = morning()
    short = replace(latency, baseline=latency.baseline.pick(np.arange(2880) < 600))
    assert flattened(short) is short
    night = latency.baseline.pick(latency.baseline.ts_ns % (DAY * SECOND) < 5 * HOUR * SECOND)
    other = replace(latency, baseline=night)
    assert flattened(other) is other


def test_what_is_left_of_a_day_is_level_on_both_sides() -> None:
    for signal in morning():
        left = flattened(signal)
        half = len(left.incident.ts_ns) // 2
        within = 0.03 if signal.role == "e2e_latency" else 0.2
        early, late = left.incident.values[:half], left.incident.values[half:]
        assert np.mean(late) == pytest.approx(np.mean(early), rel=within)
        assert np.mean(left.incident.values) == pytest.approx(
            np.mean(left.baseline.values), rel=within
        )


def rarely(points: Points) -> Points:
    """One error among 200 every tenth minute by night, every other minute from 08:00 on."""
    minutes = points.ts_ns // (60 * SECOND)
    every = np.where(points.ts_ns % (DAY * SECOND) >= 8 * HOUR * SECOND, 2, 10)
    return points._replace(num=(minutes % every == 0).astype(float))


def test_the_shape_of_a_share_that_is_mostly_nothing_is_taken_away() -> None:
    (_, errors) = morning()
    left = flattened(
        replace(errors, incident=rarely(errors.incident), baseline=rarely(errors.baseline))
    )
    late = left.incident.ts_ns % (DAY * SECOND) >= 8.5 * HOUR * SECOND
    early = left.incident.ts_ns % (DAY * SECOND) < 7.5 * HOUR * SECOND
    values = left.incident.values
    assert np.mean(values[late]) == pytest.approx(np.mean(values[early]), abs=0.0002)
