"""What documents and terminal say of GPU captures: what they were bound by, intervals, what was left out."""

from __future__ import annotations

from typing import Any

import case_builder
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_findings import call
from test_gpu_views import build, op
from test_summary import shown

from rca.answer import bound
from rca.case import Case
from rca.postmortem import gpu_sections
from rca.postmortem.gpu_sections import tell
from rca.postmortem.section import Section


def section(case: Case, title: str) -> Section:
    return next(s for s in tell(case) if s.title == title)


@pytest.mark.parametrize(
    ("gpu", "cpu", "said"),
    [
        ([op(0, 900, correlation=1), op(950, 50, correlation=2)],
         [call(-5, 2, 1), call(949, 1, 2)], "compute-bound"),
        ([op(0, 50, correlation=1), op(950, 50, correlation=2)],
         [call(-5, 2, 1), call(60, 2, 2)], "launch-bound"),
        ([op(0, 50, correlation=1), op(950, 50, correlation=2)],
         [call(-5, 2, 1), call(40, 900, None, "cudaStreamSynchronize"), call(949, 1, 2)], "sync-bound"),
        ([op(0, 50), op(50, 850, "mem"), op(950, 50)], [], "copy-bound"),
        ([op(0, 50), op(50, 850, "comm"), op(950, 50)], [], "communication-bound"),
        ([op(0, 50, correlation=1), op(950, 50, correlation=2)],
         [call(-5, 2, 1), call(949, 1, 2)], "host-bound"),
        ([op(0, 400), op(400, 350, "mem"), op(900, 100, "comm")], [], "bound by no one thing, most by compute"),
    ],
)  # fmt: skip
def test_a_capture_says_what_it_was_bound_by(
    gpu: list[dict[str, Any]], cpu: list[dict[str, Any]], said: str
) -> None:
    with build(gpu, cpu) as case:
        assert bound.line(case).startswith(f"{said}: ")
        assert section(case, "What the GPUs were bound by").lines[0] == f"Incident: {said}."
        assert sum(bound.shares(case)["incident"].values()) == pytest.approx(1)


def test_the_terminal_says_it_of_a_lone_capture() -> None:
    # 600 of 1000 us some kernel that is no collective; 200 us a collective alone; 200 us nothing.
    assert (
        "compute-bound: compute 60 %, communication 20 %, idle with nothing launched 20 %\n"
        in shown(case_builder.gpu_only())
    )


def test_devices_count_alike_on_both_sides() -> None:
    with build([op(0, 100), op(0, 50, device=1), op(99, 1, device=1)]) as case:
        assert bound.shares(case)["incident"]["compute"] == pytest.approx(151 / 200)
        assert list(bound.shares(case)) == ["incident"]
    with build([]) as empty:
        assert bound.line(empty) == "" and tell(empty) == []


Interval = tuple[int, int, int]  # start, length, thread
intervals = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 300), st.integers(1, 2)),
    min_size=1,
    max_size=9,
)
moments = st.lists(st.tuples(st.integers(-20, 700), st.integers(1, 2)), min_size=1, max_size=9)


def with_calls(gpu: list[dict[str, Any]], cpu: list[dict[str, Any]]) -> Case:
    """A case of one recording whose calls and ranges have threads."""
    case = build(gpu)
    rows = [{"source_id": 1, "id": i} | row for i, row in enumerate(cpu)]
    case.insert("cpu_op", pl.DataFrame(rows, infer_schema_length=None))
    return case


def innermost(ranges: list[Interval], at: int, tid: int) -> list[int]:
    """Ranges that hold a moment, the one that began last first; nested, overlapping or not."""
    held = [
        i for i, (start, dur, t) in enumerate(ranges) if t == tid and start <= at < start + dur
    ]
    return sorted(held, key=lambda i: (-ranges[i][0], -i))


@settings(max_examples=60, deadline=None)
@given(intervals, moments, st.sampled_from([1, 1_000_003]))
def test_ranges_and_waits_are_those_that_hold_the_call(
    ranges: list[Interval], calls: list[tuple[int, int]], scale: int
) -> None:
    """Sought within steps of time, the same is found as by holding each call against each range."""
    gpu = [op(2000 * scale + i, 7 + i, correlation=i) for i in range(len(calls))]
    notes = [
        {"kind": "annotation", "name": f"r{i}", "start_ns": s * scale, "dur_ns": d * scale, "pid": 1, "tid": t}
        for i, (s, d, t) in enumerate(ranges)
    ]  # fmt: skip
    launches = [call(at * scale, 1, i, tid=t) for i, (at, t) in enumerate(calls)]
    with with_calls(gpu, [*notes, *launches]) as case:
        expected: dict[str, list[int]] = {}
        for i, (at, tid) in enumerate(calls):
            for place, held in enumerate(innermost(ranges, at, tid)):
                row = expected.setdefault(f"r{held}", [0, 0, 0])
                row[0], row[1], row[2] = (
                    row[0] + 1,
                    row[1] + 7 + i,
                    row[2] + (7 + i) * (place == 0),
                )
        found = case.rows("SELECT name, ops, gpu_ns, self_ns FROM gpu_range ORDER BY name")
        assert found == [(name, *row) for name, row in sorted(expected.items())]
    starts = dict.fromkeys(start for start, _, _ in ranges)
    ops = [next(r for r in ranges if r[0] == start) for start in starts]  # no two begin at once
    inside = [note | {"kind": "op", "name": f"r{i}", "start_ns": s * scale, "dur_ns": d * scale, "tid": t}
              for i, (note, (s, d, t)) in enumerate(zip(notes, ops, strict=False))]  # fmt: skip
    waits = [call(at * scale, 3, None, "cudaStreamSynchronize", tid=t) for at, t in calls]
    with with_calls([op(0, 1)], [*inside, *waits]) as case:
        times: dict[str, int] = {}
        for at, tid in calls:
            for held in innermost(ops, at, tid)[:1]:
                times[f"r{held}"] = times.get(f"r{held}", 0) + 1
        assert case.rows("SELECT op, count FROM implicit_sync ORDER BY op") == sorted(
            times.items()
        )


def test_what_large_captures_lack_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with build([op(0, 50, correlation=1)], [call(-5, 2, 1), call(60, 2, 2)]) as case:
        title = "Ranges and waits of large captures"
        assert title not in [s.title for s in tell(case)]
        monkeypatch.setattr(gpu_sections, "_MOST_CALLS", 1)
        told = section(case, title)
        assert "2 calls are more than the 1 " in told.lines[0]
        case.rows(told.query)  # it can be asked for as it says


def two_sides(before: np.ndarray, after: np.ndarray) -> Case:
    case = build([])
    base = {"id": 2, "part": "baseline", "kind": "torch_profiler", "format": "t", "path": "b", "bytes": 1,
            "sha256": "2", "status": "ok"}  # fmt: skip
    case.insert("source", pl.DataFrame([base]))
    rows = [
        {
            "source_id": source,
            "kind": "kernel",
            "name": "gemm",
            "grid": "1",
            "start_ns": i,
            "dur_ns": int(dur),
        }
        for source, values in ((2, before), (1, after))
        for i, dur in enumerate(values)
    ]
    case.insert("gpu_op", pl.DataFrame([{"id": i} | row for i, row in enumerate(rows)]))
    return case


def test_the_interval_of_a_kernels_time_is_that_of_twenty_stretches() -> None:
    random = np.random.default_rng(3)
    before, after = random.integers(900, 1100, 400), random.integers(1080, 1320, 200)
    with two_sides(before, after) as case:
        ((ratio, low, high),) = case.rows(
            "SELECT time_ratio, time_low, time_high FROM kernel_change"
        )
        errors = [  # all stretches have the same number of runs: their means spread as means do
            v.reshape(20, -1).mean(axis=1).std(ddof=1) / np.sqrt(20) / v.mean()
            for v in (before, after)
        ]
        margin = 2.024 * np.hypot(*errors)
        assert (low, high) == pytest.approx((ratio * np.exp(-margin), ratio * np.exp(margin)))
        assert low < 1.2 < high
        told = section(case, "Kernels against the baseline")
        assert told.rows[0][4] == f"×{ratio:.3g} [{low:.3g}–{high:.3g}]"
        assert any("twenty stretches" in line for line in told.lines)


def test_runs_that_drift_together_widen_the_interval() -> None:
    drift = np.repeat([1000, 1400], 100)
    with two_sides(np.full(200, 1000), drift) as case, two_sides(np.full(200, 1000), np.tile([1000, 1400], 100)) as even:  # fmt: skip
        widths = [
            c.scalar("SELECT time_high / time_low FROM kernel_change") for c in (case, even)
        ]
    assert widths[0] > 1.05 and widths[1] == pytest.approx(1)


def test_few_runs_have_no_interval_and_it_is_said() -> None:
    with two_sides(np.full(39, 1000), np.full(100, 1500)) as case:
        assert case.rows("SELECT time_low, time_high FROM kernel_change") == [(None, None)]
        told = section(case, "Kernels against the baseline")
        assert told.rows[0][4] == "×1.5"
        assert (
            "Without an interval: fewer than 40 runs of the same shapes on a side."
            in told.lines
        )
