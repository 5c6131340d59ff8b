"""Load on a cache's origin, and growth of delay by depth: from counters in, indicators out."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from telemetry_builder import add_series, add_source, at

from rca.case import Case
from rca.findings.amplification import BOUND, Side, _alike, load_on, measure
from rca.findings.records import Cohort, Indicator
from rca.roles import assign


def side(lookups: float, hit_rate: float, calls: list[float], seconds: float) -> Side:
    n = len(calls)
    found = np.full(n, lookups)
    return Side(found, found * hit_rate, np.array(calls), np.full(n, seconds))


QUIET = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]


def test_the_load_is_what_misses_ask_of_what_the_origin_serves() -> None:
    load = load_on(side(100, 0.99, QUIET, 0.1), side(100, 0.4, [20.0] * 6, 2.0))
    assert load is not None
    assert (load.capacity, load.is_limit) == (20.0, True)
    assert (load.reference, load.observed) == pytest.approx((0.05, 3.0))
    assert load.usual == pytest.approx(100 / (0.4 * 20))


def test_an_origin_that_keeps_up_says_only_what_it_serves_at_least() -> None:
    load = load_on(side(100, 0.99, [1.0] * 6, 0.1), side(100, 0.8, [20.0] * 6, 0.1))
    assert load is not None and not load.is_limit
    assert load.observed == pytest.approx(1.0)  # its misses are its calls: no limit was seen


def test_a_hit_rate_of_nothing_has_no_usual_figure() -> None:
    load = load_on(side(100, 0.99, QUIET, 0.1), side(100, 0.0, [20.0] * 6, 2.0))
    assert load is not None and load.usual is None
    assert load_on(side(10, 1.0, [0.0] * 6, 0.1), side(10, 1.0, [0.0] * 6, 0.1)) is None


def counters(
    case: Case, source: int, start: int, misses: float, calls: float, times: float
) -> None:
    """A minute at 100 lookups a second, scraped every five seconds."""
    steps = range(13)
    stamps = [start + 5 * i for i in steps]
    rows = {
        ("redis_keyspace_hits_total", "cache"): [(100 - misses) * 5 * i for i in steps],
        ("redis_keyspace_misses_total", "cache"): [misses * 5 * i for i in steps],
        ("http_client_request_duration_seconds_count", "store"): [calls * 5 * i for i in steps],
        ("http_client_request_duration_seconds_sum", "store"): [calls * 5 * i * times for i in steps],
    }  # fmt: skip
    for (name, service), values in rows.items():
        labels = {"server_address": service} if service == "store" else {"job": service}
        add_series(
            case, source, name, labels, list(zip(stamps, values, strict=True)), "counter"
        )


def found(
    misses: float, calls: float, times: float, levels: list[tuple[int, float, float]]
) -> dict[str, Indicator]:
    with Case.create() as case:
        base = add_source(case, "metrics", part="baseline")
        now = add_source(case, "metrics")
        counters(case, base, 0, 1.0, 1.0, 0.1)
        counters(case, now, 1000, misses, calls, times)
        assign(case)
        rows = [{"depth": d, "per_request": 1.0, "mean_reference_ns": a, "mean_ns": b, "failed_share": 0.0}
                for d, a, b in levels]  # fmt: skip
        if rows:
            case.insert("call_depth", pl.DataFrame(rows))
        cohort = Cohort(
            at(1000), at(1060), True, "baseline", 100, 100, None, None, None, None, None, False, None
        )  # fmt: skip
        return {i.name: i for i in measure(case, cohort)}


def test_counters_of_a_cache_and_its_origin_give_rho_beside_the_usual_figure() -> None:
    ms = 1e6
    told = found(
        60.0, 20.0, 2.0, [(0, 40 * ms, 90 * ms), (1, 20 * ms, 30 * ms), (2, 10 * ms, 10 * ms)]
    )
    load = told["origin_load"]
    assert load.subject == "cache → store"
    assert (load.reference, load.observed) == pytest.approx((0.05, 3.0), rel=0.1)
    assert load.is_flagged is True and load.bound == BOUND
    assert load.common == pytest.approx(100 / (0.4 * 20), rel=0.1)
    growth = told["delay_by_depth"]
    assert (growth.reference, growth.observed) == (40 * ms, 90 * ms)
    assert "it grows ×3 with each level, ×2 when healthy" in growth.statement
    assert growth.common == pytest.approx(10 * ms * load.common**2)


def test_below_the_limit_nothing_is_flagged_and_what_was_not_seen_is_said() -> None:
    calm = found(12.0, 12.0, 0.1, [])["origin_load"]
    assert (
        calm.is_flagged is None and calm.note is not None
    )  # all it served is all it was asked
    assert "at most" in calm.statement
    assert "delay_by_depth" not in found(60.0, 20.0, 2.0, [])


def test_calls_that_do_not_go_with_the_misses_are_no_origin() -> None:
    assert found(60.0, 1.0, 0.1, []) == {}


def test_a_burst_that_is_served_later_still_names_its_origin() -> None:
    """Misses come in the first steps, the origin answers them one after the other."""
    old = side(100, 1.0, [0.0] * 12, 0.2)
    misses = np.array([60.0, 20.0] + [0.0] * 10)
    served = np.array([2.0] + [8.0] * 9 + [6.0, 0.0])
    new = Side(np.full(12, 100.0), 100.0 - misses, served, np.full(12, 5.0))
    steady = Side(
        np.full(12, 100.0), 100.0 - misses, served + np.full(12, 30.0), np.full(12, 5.0)
    )
    assert (
        np.corrcoef(np.concatenate([old.calls, served]), np.concatenate([old.misses, misses]))[
            0, 1
        ]
        < 0.5
    )
    assert _alike((old, new)) == pytest.approx(1.0)
    assert _alike((old, steady)) < 0.5
