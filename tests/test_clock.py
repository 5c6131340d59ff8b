"""Skew between spans and counters, on traffic made here: known clocks, known scrape delays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from rca.case import Case
from rca.clock import Lag, align, combine
from rca.roles import assign

SECOND = 1_000_000_000
T0 = 1_780_000_000 * SECOND
BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0)
MINUTES = 20


def traffic(
    late_s: Mapping[str, float],
    skew_s: float,
    *,
    raw: bool = False,
    sampled: float = 0.3,
    per_second: float = 2.0,
    seconds_long: int = MINUTES * 60,
    step_s: float = 15.0,
) -> Case:
    """A case whose engines are scraped every `step_s`, `late_s` after what they count, and whose spans are off.

    With `raw` the samples carry the times of their scrapes, as a dump has them; without, those of
    the query's steps.
    """
    case = Case.create()
    random = np.random.default_rng(len(late_s) * 1000 + round(skew_s * 10))
    _sources(case)
    spans, series, samples = [], [], []
    for replica, late in late_s.items():
        count = random.poisson(per_second * seconds_long)
        start = np.sort(random.uniform(-30, seconds_long, count))
        seconds = random.lognormal(-0.5, 0.8, count)
        kept = random.random(count) < sampled
        spans += [
            _span(f"{replica}-{i}", replica, start[i] + skew_s, seconds[i])
            for i in np.flatnonzero(kept)
        ]
        steps = np.arange(0, seconds_long + 1, step_s)
        seen = steps - late
        times = seen if raw else steps
        for ending, le, values in _counters(start + seconds, seconds, seen):
            labels = {"instance": replica, "pod": replica, **({"le": le} if le else {})}
            name = f"vllm:e2e_request_latency_seconds_{ending}"
            series.append(
                {"id": len(series), "name": name, "labels": labels, "type": "counter"}
            )
            samples += [
                {
                    "series_id": len(series) - 1,
                    "ts_ns": T0 + round(t * 1000) * 1_000_000,
                    "value": v,
                }
                for t, v in zip(times, values, strict=True)
            ]
    rows = [{**r, "labels": list(r["labels"].items())} for r in series]
    for row in rows:
        case.execute(
            "INSERT INTO series (id, source_id, name, labels, type) VALUES (?, 1, ?, map(?, ?), ?)",
            [
                row["id"],
                row["name"],
                [k for k, _ in row["labels"]],
                [v for _, v in row["labels"]],
                row["type"],
            ],
        )
    case.insert("sample", pl.DataFrame(samples))
    case.insert("span", pl.DataFrame(spans))
    assign(case)
    return case


def _sources(case: Case) -> None:
    case.insert(
        "source",
        pl.DataFrame(
            [
                {
                    "id": i, "part": "incident", "kind": kind, "format": "made", "path": kind,
                    "bytes": 1, "sha256": str(i), "n_rows": 1, "status": "ok",
                }
                for i, kind in ((1, "metrics"), (2, "trace"))
            ]
        ),
    )  # fmt: skip


def _span(key: str, replica: str, start: float, seconds: float) -> dict[str, object]:
    return {
        "source_id": 2, "trace_id": key, "span_id": key, "service": "vllm", "name": "llm_request",
        "kind": "server", "start_ns": T0 + round(start * SECOND), "dur_ns": round(seconds * SECOND),
        "status": "ok", "attributes": f'{{"resource.k8s.pod.name": "{replica}"}}',
    }  # fmt: skip


def _counters(
    ends: np.ndarray, seconds: np.ndarray, seen: np.ndarray
) -> list[tuple[str, str, np.ndarray]]:
    def counted(which: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.sort(ends[which]), seen, side="right").astype(float)

    total = np.array([seconds[ends <= t].sum() for t in seen])
    buckets = [("bucket", str(b), counted(seconds <= b)) for b in BOUNDS]
    everything = np.ones(len(ends), dtype=bool)
    return [
        ("count", "", counted(everything)), ("sum", "", total),
        ("bucket", "+Inf", counted(everything)), *buckets,
    ]  # fmt: skip


def shift_s(case: Case) -> float:
    align(case)
    return float(case.scalar("SELECT shift_ns FROM source WHERE kind = 'trace'")) / 1e9


@pytest.mark.parametrize("skew", [3.0, 6.5, 14.0, 25.0])
def test_a_clock_that_is_ahead_is_set_back(skew: float) -> None:
    with traffic({"a": 0.0, "b": 9.0}, skew) as case:
        assert shift_s(case) == pytest.approx(-skew, abs=1.5)
        first = case.scalar("SELECT min(start_ns) FROM span_aligned")
        assert abs(first - (T0 - 30 * SECOND)) < 3 * SECOND


@pytest.mark.parametrize("skew", [-60.0, -43.0, 34.0, 60.0])
def test_a_short_recording_shows_clocks_that_are_a_minute_apart(skew: float) -> None:
    with traffic(
        {"a": 0.3}, skew, sampled=1.0, per_second=4.0, seconds_long=110, step_s=1.0
    ) as case:
        assert shift_s(case) == pytest.approx(-skew, abs=2.0)


def test_traffic_that_comes_in_equal_waves_leaves_the_clock_alone() -> None:
    """Each wave fits the others, so that the lag may be any number of waves."""
    with traffic({"a": 0.3}, 0.0, sampled=1.0, seconds_long=600, step_s=5.0) as case:
        case.execute("DELETE FROM span")
        waves = [
            _span(f"w{w}-{i}", "a", 30.0 * w + 3.0 * i / 40, 0.4)
            for w in range(20)
            for i in range(40)
        ]
        case.insert("span", pl.DataFrame(waves))
        series = "SELECT id FROM series WHERE name LIKE '%_count' OR name LIKE '%_bucket' AND labels['le'] IN ('0.5', '1.0', '2.5', '5.0', '+Inf')"
        case.execute(f"UPDATE sample SET value = 0 WHERE series_id NOT IN ({series})")
        case.execute(
            f"UPDATE sample SET value = (SELECT count(*) FROM span "
            f"WHERE start_ns + dur_ns <= sample.ts_ns) WHERE series_id IN ({series})"
        )
        # Nothing tells a skew of no wave from one of two.
        case.execute("UPDATE span SET start_ns = start_ns + 60000000000")
        assert shift_s(case) == 0.0


@pytest.mark.parametrize(
    "late", [{"a": 0.0}, {"a": 7.0}, {"a": 14.0, "b": 3.0}, {"a": 11.0, "b": 12.0}]
)
def test_a_late_scrape_is_not_taken_for_skew(late: dict[str, float]) -> None:
    with traffic(late, 0.0) as case:
        assert shift_s(case) == 0.0
        assert "not shifted" in case.scalar(
            "SELECT message FROM ingest_note WHERE code = 'clock_skew'"
        )


@pytest.mark.parametrize("skew", [-12.0, -4.0, 5.0])
def test_scrapes_with_times_of_their_own_tell_both_directions(skew: float) -> None:
    with traffic({"a": 0.37, "b": 6.91}, skew, raw=True) as case:
        assert shift_s(case) == pytest.approx(-skew, abs=1.5)


def test_a_clock_that_is_behind_by_more_than_a_scrape_is_corrected_in_part() -> None:
    with traffic({"a": 0.0, "b": 9.0}, -25.0) as case:
        assert 14.0 <= shift_s(case) <= 25.5


def test_too_few_spans_leave_the_clock_alone_and_say_so() -> None:
    with traffic({"a": 0.0}, 6.0, sampled=0.01) as case:
        assert shift_s(case) == 0.0
        notes = case.rows("SELECT code, level FROM ingest_note")
        assert notes == [("clock_skew_unknown", "info")]


def test_spans_of_other_traffic_leave_the_clock_alone() -> None:
    with traffic({"a": 0.0}, 0.0) as case, traffic({"a": 0.0, "b": 1.0}, 77.0) as other:
        case.execute("DELETE FROM span")
        case.insert("span", other.sql("SELECT * FROM span"))
        assert shift_s(case) == 0.0


def test_it_comes_out_the_same_when_done_again() -> None:
    with traffic({"a": 0.0, "b": 9.0}, 6.5) as case:
        assert shift_s(case) == shift_s(case)
        assert case.scalar("SELECT count(*) FROM ingest_note") == 1


def test_the_smallest_shift_that_no_target_contradicts_is_taken() -> None:
    lags = [Lag("gateway", -7.0, 0.5, 15.0), Lag("engine", 3.0, 0.5, 15.0)]
    skew = combine(lags, late_s=15.0)
    assert (skew.low_s, skew.high_s) == (
        pytest.approx(-12.5, abs=0.8),
        pytest.approx(-6.5, abs=0.8),
    )
    assert skew.shift_s == skew.high_s
    assert combine([Lag("engine", 9.0, 0.5, 15.0)], late_s=15.0).shift_s == 0.0
    assert combine([Lag("engine", 9.0, 0.3, 15.0)], late_s=0.0).shift_s == pytest.approx(9.0)
