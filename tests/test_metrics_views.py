"""Aligned samples, counter rates, and Prometheus' functions on samples made by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl
import pytest

from rca.case import Case

_SECOND = 1_000_000_000


@pytest.fixture
def case() -> Iterator[Case]:
    """A source that is 2 s behind, with a counter that restarts and has a stale marker."""
    with Case.create() as made:
        made.execute(
            "INSERT INTO source (id, part, kind, format, path, bytes, sha256, status, shift_ns)"
            " VALUES (1, 'incident', 'metrics', 'x', 'x', 1, 'x', 'ok', 2000000000)"
        )
        made.execute("INSERT INTO series VALUES (0, 1, 'c_total', MAP {}, 'counter', NULL)")
        made.execute("INSERT INTO series VALUES (1, 1, 'g', MAP {}, 'gauge', NULL)")
        points = [(0, 10.0), (10, 20.0), (20, 3.0), (25, math.nan), (50, 6.0)]
        frame = pl.DataFrame(
            [(0, t * _SECOND, v) for t, v in points] + [(1, 0, 5.0), (1, _SECOND, 1.0)],
            schema=["series_id", "ts_ns", "value"],
            orient="row",
        )
        made.insert("sample", frame)
        yield made


def test_samples_are_aligned(case: Case) -> None:
    assert case.scalar("SELECT min(ts_ns) FROM sample_aligned") == 2 * _SECOND


def test_counter_rate_knows_restarts_and_passes_over_nan(case: Case) -> None:
    rows = case.rows(
        "SELECT series_id, ts_ns, dt_ns, delta, rate, restarted FROM counter_rate ORDER BY ts_ns"
    )
    assert rows == [
        (0, 12 * _SECOND, 10 * _SECOND, 10.0, 1.0, False),
        (0, 22 * _SECOND, 10 * _SECOND, 3.0, 0.3, True),
        (0, 52 * _SECOND, 30 * _SECOND, 3.0, 0.1, False),
    ]


@pytest.mark.parametrize(
    ("at_s", "window_s", "increase"),
    [
        # Samples at 2, 12, 22 (values 10, 20, 3): gain 13 over 20 s, at both ends of the window.
        (22, 20, 13.0),
        # 12 and 22 in a window of 14 s: gain 3 over 10 s; 4 s ahead are less than 1.1 distances.
        (22, 14, 3.0 * 14 / 10),
        # One sample only: no rate.
        (22, 5, None),
        # None at all.
        (500, 5, None),
        # 22 and 52: 30 s apart; 3 s behind.
        (55, 40, 3.0 * (30 + 7 + 3) / 30),
    ],
)
def test_increase(case: Case, at_s: int, window_s: int, increase: float | None) -> None:
    query = f"SELECT prom_increase(0, {at_s * _SECOND}, {window_s * _SECOND}), prom_rate(0, {at_s * _SECOND}, {window_s * _SECOND})"
    [(found, rate)] = case.rows(query)
    if increase is None:
        assert (found, rate) == (None, None)
    else:
        assert found == pytest.approx(increase, rel=1e-12)
        assert rate == pytest.approx(increase / window_s, rel=1e-12)


def test_increase_does_not_reach_below_zero(case: Case) -> None:
    """A young counter: extrapolation stops where it would have been zero."""
    case.execute("INSERT INTO sample VALUES (1, 10, 0)")  # a gauge does not matter here
    rows = pl.DataFrame(
        {"series_id": [2, 2], "ts_ns": [8 * _SECOND, 18 * _SECOND], "value": [1.0, 11.0]}
    )
    case.execute("INSERT INTO series VALUES (2, 1, 'young_total', MAP {}, 'counter', NULL)")
    case.insert("sample", rows)
    # Window 0..20 s aligned: 10 s ahead of the first sample, but zero was 1 s before it.
    assert case.scalar(
        f"SELECT prom_increase(2, {20 * _SECOND}, {20 * _SECOND})"
    ) == pytest.approx(11.0)


@pytest.mark.parametrize(
    ("q", "buckets", "expected"),
    [
        (0.5, {"0.1": 0, "0.2": 10, "+Inf": 10}, 0.15),
        (0.9, {"0.1": 5, "+Inf": 10}, 0.1),  # in the last bucket: the highest finite bound
        (0.5, {"0.1": 10, "+Inf": 10}, 0.05),  # the lower bound of the first is 0
        (0.5, {"-1": 10, "+Inf": 10}, -1.0),
        (0.5, {"0.1": 0, "+Inf": 0}, math.nan),
        (0.5, {"0.1": 3, "0.2": 5}, math.nan),
        (0.5, {"+Inf": 5}, math.nan),
        (0.5, {"0.1": 4, "0.2": 3, "+Inf": 8}, 0.1),  # not monotonic: mended as the server does
        (-1.0, {"0.1": 4, "+Inf": 8}, -math.inf),
        (2.0, {"0.1": 4, "+Inf": 8}, math.inf),
        (0.5, {}, math.nan),
    ],
)
def test_quantile(case: Case, q: float, buckets: dict[str, float], expected: float) -> None:
    rows = ", ".join(
        f"{{'le': prom_bound('{le}'), 'count': {n}::DOUBLE}}" for le, n in buckets.items()
    )
    listed = f"[{rows}]" if rows else "[]::STRUCT(le DOUBLE, count DOUBLE)[]"
    found = case.scalar(f"SELECT prom_histogram_quantile({q}::DOUBLE, {listed})")
    assert found == pytest.approx(expected, nan_ok=True)


_ZERO = (-0.001, 0.001, 4)


@pytest.mark.parametrize(
    ("q", "buckets", "linear", "exponential"),
    [
        (0.5, [(1, 2, 4), (2, 4, 4)], 2.0, 2.0),
        (0.75, [(2, 4, 4), (1, 2, 4)], 3.0, 2 * 2**0.5),  # in any order
        (0.25, [(-4, -2, 4), (-2, -1, 4)], -3.0, -2 * 2**0.5),
        (0.25, [_ZERO, (1, 2, 4)], 0.0005, 0.0005),  # nothing below zero: from zero on
        (0.75, [(-2, -1, 4), _ZERO], -0.0005, -0.0005),  # nothing above it: up to zero
        (0.5, [(-2, -1, 4), _ZERO, (1, 2, 4)], 0.0, 0.0),
        (0.25, [_ZERO], -0.0005, -0.0005),
        (1.0, [(1, 2, 4)], 2.0, 2.0),
        (0.5, [], math.nan, math.nan),
        (math.nan, [(1, 2, 4)], math.nan, math.nan),
        (-1.0, [(1, 2, 4)], -math.inf, -math.inf),
        (2.0, [(1, 2, 4)], math.inf, math.inf),
    ],
)
def test_native_quantile(
    case: Case, q: float, buckets: list[tuple[float, ...]], linear: float, exponential: float
) -> None:
    rows = ", ".join(f"{{'low': {a}, 'high': {b}, 'count': {n}}}" for a, b, n in buckets)
    listed = f"[{rows}]::STRUCT(low DOUBLE, high DOUBLE, count DOUBLE)[]"
    asked = f"{q!r}::DOUBLE" if math.isfinite(q) else f"'{q}'::DOUBLE"
    called = f"prom_native_quantile({asked}, {sum(b[2] for b in buckets)}, {listed}"
    for expected, more in ((linear, ""), (exponential, ", exponential := true")):
        found = case.scalar(f"SELECT {called}{more})")
        assert found == pytest.approx(expected, nan_ok=True, abs=1e-15)


def test_observations_that_are_in_no_bucket(case: Case) -> None:
    # Prometheus puts NaN nowhere: beyond all buckets the last one's end stands.
    called = "prom_native_quantile(0.99, 100, [{'low': 1.0, 'high': 2.0, 'count': 10.0}])"
    assert case.scalar(f"SELECT {called}") == 2.0
