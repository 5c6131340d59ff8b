"""Where the incident is: the scan, what demand explains, objectives, alerts, and what people tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from telemetry_builder import SECOND, T0, add_source, at

from rca.case import Case
from rca.errors import BundleError
from rca.evidence.moves import incident_span, measure
from rca.findings.cohort import gather
from rca.signals import EMPTY, Points, Signal, Values, load
from rca.window import locate, objective
from rca.window.demand import MARK, residuals
from rca.window.scan import find
from rca.window.track import Grid, track

DAY = 86_400


def arrivals(seed: int, seconds: int, bursts: bool = True) -> Values:
    """Times of requests: five a second, in bursts that come every ten seconds or so."""
    random = np.random.default_rng(seed)
    times = list(random.uniform(0, seconds, int(seconds * (3 if bursts else 5))))
    if bursts:
        for start in random.uniform(0, seconds, seconds // 10):
            times += list(start + random.uniform(0, 1.5, 20))
    return np.sort(np.array([t for t in times if t < seconds]))


def served(times: Values, seed: int, slower: float = 1.0, since: float = 1e9) -> Values:
    """Latencies that grow with what arrived in the second before; `slower` from `since` on."""
    before = np.searchsorted(times, times) - np.searchsorted(times, times - 1.0)
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.06, len(times)))
    return 0.2 * (1 + 0.25 * before) * noise * np.where(times >= since, slower, 1.0)


def points(times: Values, values: Values, day: int = 0) -> Points:
    ts = T0 + day * DAY * SECOND + (times * 1e9).astype(np.int64)
    return Points(ts, values.astype(float), np.ones(len(values)))


def requests(seed: int, slower: float, *, baseline: bool = True) -> list[Signal]:
    """e2e latency of 120 s of bursty traffic, slower in the second half."""
    today, healthy = arrivals(seed, 120), arrivals(seed + 1000, 120)
    observed = points(today, served(today, seed, slower, 60.0))
    reference = points(healthy, served(healthy, seed + 1000), -1) if baseline else EMPTY
    return [Signal("trace", "e2e_latency", "gateway", "", observed, reference)]


def test_what_demand_explains_is_taken_out() -> None:
    signals = requests(1, 1.0)
    (left,) = residuals(signals)
    raw = np.log(signals[0].incident.values)
    assert left.role == "e2e_latency" + MARK
    assert left.incident.values.std() < 0.35 * raw.std()
    assert abs(np.median(left.incident.values)) < 0.05


def test_a_service_with_a_few_requests_and_all_of_them_healthy_is_no_matter() -> None:
    """Spans at a recording's edge whose parents are outside of it make such a service."""
    few = points(*(np.linspace(1, 2, 9),) * 2, -1)
    signals = [
        Signal("trace", role, "edge", "", EMPTY, few) for role in ("e2e_latency", "ttft")
    ]
    assert residuals(signals) == []


def test_a_slower_build_stands_out_that_bursts_hide() -> None:
    scan = find(requests(2, 1.3))
    assert scan is not None
    assert len(scan.found) == 1
    start, end = scan.times(scan.found[0].first, scan.found[0].last)
    assert abs(start - at(60)) <= 4 * SECOND
    assert abs(end - at(120)) <= 4 * SECOND


@pytest.mark.parametrize("baseline", [True, False])
def test_bursts_alone_are_no_incident(baseline: bool) -> None:
    found = [
        seed
        for seed in range(30)
        if (scan := find(requests(seed, 1.0, baseline=baseline))) and scan.found
    ]
    assert len(found) <= 1, found


def test_the_margin_holds_the_true_start() -> None:
    held = 0
    for seed in range(20):
        scan = find(requests(seed, 1.4))
        assert scan is not None
        first = scan.found[0]
        start, _ = scan.times(first.first, first.last)
        held += abs(start - at(60)) <= (first.margin_bins + 1) * scan.step_ns
    assert held >= 17


def test_scrapes_are_judged_by_demand_too() -> None:
    random = np.random.default_rng(5)

    def side(slower: float, day: int) -> tuple[Points, Points]:
        rate = 5.0 + 4.0 * (random.random(120) < 0.3)
        mean = 0.1 * rate * np.exp(random.normal(0, 0.05, 120))
        mean[60:] *= slower
        ts = T0 + (day * DAY + 15 * np.arange(120, dtype=np.int64)) * SECOND
        ones = np.ones(120)
        return Points(ts, mean * 50, 50 * ones), Points(ts, rate, ones)

    (now, rate_now), (then, rate_then) = side(1.25, 0), side(1.0, -1)
    signals = [
        Signal("metrics", "itl", "engine", "", now, then),
        Signal("metrics", "arrival_rate", "gateway", "", rate_now, rate_then),
    ]
    scan = find(signals)
    assert scan is not None
    (one,) = scan.found
    assert abs(scan.times(one.first, one.last)[0] - at(15 * 59)) <= 3 * scan.step_ns


def test_a_scrape_closes_its_bin() -> None:
    counts, sums = Grid(0, 10, 3).sums(np.array([0, 1, 10, 11, 30, 31]), np.arange(6.0))
    assert counts.tolist() == [2, 1, 1]
    assert sums.tolist() == [3.0, 3.0, 4.0]


def test_too_few_points_make_no_track() -> None:
    few = points(np.arange(3.0), np.ones(3))
    assert track(Signal("trace", "ttft", "", "", few, EMPTY), Grid(T0, SECOND, 5)) is None


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def record(case: Case, part: str, times: Values, seconds: Values) -> int:
    """Requests as root spans of a gateway."""
    shift = 0.0 if part == "incident" else -DAY
    key = add_source(case, "trace", part, first_ns=at(shift), last_ns=at(shift + times[-1]))
    rows = [
        {
            "source_id": key, "trace_id": f"{part}{i}", "span_id": f"{part}{i}", "parent_id": None,
            "service": "gateway", "name": "POST /v1", "kind": "server", "start_ns": at(t + shift),
            "dur_ns": int(s * 1e9), "status": "ok", "attributes": "{}",
        }
        for i, (t, s) in enumerate(zip(times, seconds, strict=True))
    ]  # fmt: skip
    case.insert("span", pl.DataFrame(rows, schema_overrides={"parent_id": pl.String}))
    return key


def recorded(case: Case, slower: float = 1.0, since: float = 60.0) -> int:
    today, healthy = arrivals(7, 120), arrivals(8, 120)
    record(case, "baseline", healthy, served(healthy, 8))
    return record(case, "incident", today, served(today, 7, slower, since))


def windows(case: Case, settings: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    locate(case, settings)
    return case.rows(
        "SELECT status, detected_by, start_ns, end_ns FROM incident_window ORDER BY id"
    )


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(at(seconds) / 1e9, UTC)


def test_healthy_says_how_far_it_was_from_an_incident(case: Case) -> None:
    recorded(case)
    assert windows(case) == [("none", "scan", None, None)]
    score, threshold, note = case.rows("SELECT score, threshold, note FROM incident_window")[0]
    assert 0 < score < threshold
    assert f"{score:.1f} standard errors of {threshold:.1f}" in note


def test_a_told_time_is_taken_as_it_is(case: Case) -> None:
    recorded(case)
    told = {"incident": {"start": moment(20), "end": moment(50)}}
    assert windows(case, told) == [("incident", "hint", at(20), at(50))]


def test_half_a_hint_is_completed_by_the_scan(case: Case) -> None:
    recorded(case, slower=1.5)
    ((status, by, start, end),) = windows(case, {"incident": {"start": moment(58)}})
    assert (status, by, start) == ("incident", "hint", at(58))
    assert abs(end - at(120)) <= 5 * SECOND


def test_half_a_hint_without_anything_to_see_lasts_to_the_end(case: Case) -> None:
    recorded(case)
    ((status, by, start, end),) = windows(case, {"incident": {"start": moment(90)}})
    assert (status, by, start) == ("incident", "hint", at(90))
    assert end > at(110)


def test_a_broken_objective_is_an_incident(case: Case) -> None:
    today, healthy = np.arange(0, 120, 0.5), np.arange(0, 120, 0.5)
    record(case, "baseline", healthy, np.full(240, 0.3))
    # Fifteen stalls, too few to move anything but the tail.
    slow = np.where((today > 60) & (today < 100) & (np.arange(240) % 5 == 0), 5.0, 0.3)
    record(case, "incident", today, slow)
    assert windows(case)[0][0] == "none"
    ((status, by, start, end),) = windows(case, {"slo": {"e2e_p99": "< 2 s"}})
    assert (status, by) == ("incident", "slo")
    assert abs(start - at(62.5)) <= SECOND
    assert abs(end - at(97.5)) <= SECOND
    assert case.scalar("SELECT slo FROM incident_window").startswith("e2e_p99 < 2 s (")


def test_an_objective_that_is_kept_is_not_called_broken(case: Case) -> None:
    recorded(case, slower=1.6)
    assert windows(case, {"slo": {"e2e_p99": "< 60 s"}})[0][:2] == ("incident", "scan")
    assert case.scalar("SELECT slo FROM incident_window") is None


def test_an_objective_that_is_broken_every_day_is_no_incident(case: Case) -> None:
    recorded(case)
    assert windows(case, {"slo": {"e2e_p99": "< 100 ms"}})[0][0] == "none"


def test_an_alert_lowers_the_bar(case: Case) -> None:
    key = recorded(case, slower=1.13, since=85.0)
    locate(case)
    score, bar = case.rows("SELECT score, threshold FROM incident_window")[0]
    assert 0.75 * bar < score < bar, "the case lies between both bars"
    alert = {
        "source_id": key, "name": "Slow", "start_ns": at(100), "end_ns": at(120),
        "severity": "page", "labels": "{}", "annotations": "{}",
    }  # fmt: skip
    case.insert("alert", pl.DataFrame([alert]))
    ((status, by, start, end),) = windows(case)
    assert (status, by) == ("incident", "alert")
    assert start < at(100) < end


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("e2e_p99", "< 2 s", ("e2e_latency", 2.0, 0.01)),
        ("ttft_p95", "<= 500 ms", ("ttft", 0.5, 0.05)),
        ("itl_p999", "0.2", ("itl", 0.2, 0.001)),
        ("e2e_p99.9", "3s", ("e2e_latency", 3.0, 0.001)),
        ("error_share", "< 0.5 %", ("error_share", 0.5, 0.005)),
        ("error_rate", "0.01", ("error_share", 0.5, 0.01)),
        ("availability", "99.9 %", None),
        ("e2e_p99", "5 %", None),
        ("error_p99", "1 s", None),
        ("e2e_share", "1 s", None),
    ],
)
def test_objectives_are_read_as_people_write_them(
    name: str, value: str, expected: tuple[str, float, float] | None
) -> None:
    known, other = objective.read({name: value})
    if expected is None:
        assert (known, other) == ([], [f"{name} {value}"])
        return
    (found,) = known
    assert (found.role, found.limit) == expected[:2]
    assert found.allowed == pytest.approx(expected[2])


@pytest.mark.parametrize("value", ["> 2 s", "< 2 parsecs", ["2 s"]])
def test_an_objective_without_a_limit_is_not_passed_over(value: object) -> None:
    with pytest.raises(BundleError, match=r"bundle\.toml: slo\.e2e_p99: .* is no limit; write"):
        objective.read({"e2e_p99": value})


def test_a_hint_that_ends_before_it_starts_is_refused(case: Case) -> None:
    with pytest.raises(BundleError, match="ends before it starts"):
        locate(case, {"incident": {"start": moment(50), "end": moment(20)}})


def with_pause(
    case: Case, slow_from: float, slow_to: float, pause: tuple[float, float]
) -> None:
    """Ten minutes, five requests a second, three times as slow for a while, and a pause of the recording."""
    healthy, today = arrivals(8, 600, bursts=False), arrivals(7, 600, bursts=False)
    record(case, "baseline", healthy, served(healthy, 8))
    factor = np.where((today >= slow_from) & (today < slow_to), 3.0, 1.0)
    seconds = served(today, 7) * factor
    kept = (today < pause[0]) | (today > pause[1])
    record(case, "incident", today[kept], seconds[kept])


@pytest.mark.parametrize("slow_from", [180.0, 240.0, 300.0])
def test_a_window_does_not_begin_in_a_pause_of_the_recording(
    case: Case, slow_from: float
) -> None:
    with_pause(case, slow_from, 450.0, (180.0, 300.0))
    ((status, _, start, end),) = windows(case)
    assert status == "incident"
    assert abs(start - at(300)) <= 8 * SECOND
    assert abs(end - at(450)) <= 8 * SECOND
    # It may have begun at any time of the pause, and the margin says so.
    assert case.scalar("SELECT margin_ns FROM incident_window") >= 110 * SECOND
    assert case.scalar("SELECT note FROM incident_window") is None


def test_a_window_does_not_end_in_a_pause_of_the_recording(case: Case) -> None:
    with_pause(case, 120.0, 400.0, (300.0, 420.0))
    ((_, _, start, end),) = windows(case)
    assert abs(start - at(120)) <= 8 * SECOND
    assert abs(end - at(300)) <= 8 * SECOND


def test_a_window_that_reaches_over_a_pause_says_so(case: Case) -> None:
    with_pause(case, 150.0, 500.0, (250.0, 350.0))
    ((_, _, start, end),) = windows(case)
    assert abs(start - at(150)) <= 8 * SECOND
    assert abs(end - at(500)) <= 8 * SECOND
    note = case.scalar("SELECT note FROM incident_window")
    assert note.startswith("nothing was recorded for 1 min 3")


def test_a_change_in_the_pause_is_where_the_incident_begins(case: Case) -> None:
    with_pause(case, 240.0, 450.0, (180.0, 300.0))
    change = {
        "id": "c", "source_id": 1, "ts_ns": at(240), "kind": "deploy", "subject": "x", "origin": "record",
    }  # fmt: skip
    case.insert("change", pl.DataFrame([change]))
    ((_, _, start, _),) = windows(case)
    assert abs(start - at(240)) <= 8 * SECOND


def two_incidents() -> tuple[Values, Values]:
    today = arrivals(7, 900, bursts=False)
    first, second = (today >= 150) & (today < 270), (today >= 600) & (today < 780)
    factor = np.where(first, 2.0, np.where(second, 4.0, 1.0))
    return today, served(today, 7) * factor


@pytest.mark.parametrize("baseline", [True, False])
def test_two_incidents_of_one_recording_are_two_windows(case: Case, baseline: bool) -> None:
    if baseline:
        healthy = arrivals(8, 900, bursts=False)
        record(case, "baseline", healthy, served(healthy, 8))
    record(case, "incident", *two_incidents())
    found = sorted(windows(case), key=lambda w: w[2])
    assert [w[0] for w in found] == ["incident", "incident"]
    for (_, _, start, end), (true_start, true_end) in zip(
        found, ((150, 270), (600, 780)), strict=True
    ):
        assert abs(start - at(true_start)) <= 10 * SECOND
        assert abs(end - at(true_end)) <= 10 * SECOND


def test_an_earlier_incident_is_no_reference_for_the_other(case: Case) -> None:
    record(case, "incident", *two_incidents())
    windows(case)
    span = incident_span(case)
    assert span is not None
    assert abs(span.start_ns - at(600)) <= 10 * SECOND
    (e2e,) = [s for s in load(case) if s.role == "e2e_latency"]
    move = measure(e2e, span)
    assert move is not None
    times = move.reference.ts_ns
    assert not ((times > at(160)) & (times < at(260))).any()
    gather(case)
    side = "SELECT count(*) FROM cohort_request WHERE side = 'reference' AND start_ns BETWEEN ? AND ?"
    assert case.scalar(side, (at(160), at(260))) == 0
    assert case.scalar(side, (at(0), at(140))) > 300


def test_an_incident_that_grows_worse_is_one_window_without_a_baseline(case: Case) -> None:
    today = arrivals(7, 900, bursts=False)
    early, late = (today >= 400) & (today < 600), (today >= 600) & (today < 780)
    factor = np.where(early, 1.5, np.where(late, 4.0, 1.0))
    record(case, "incident", today, served(today, 7) * factor)
    ((status, _, start, end),) = windows(case)
    assert status == "incident"
    assert abs(start - at(400)) <= 10 * SECOND
    assert abs(end - at(780)) <= 10 * SECOND
