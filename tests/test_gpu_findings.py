"""Idle time by cause, GPU time by owner, kernels by how they changed, waits that nobody asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_builder import SECOND, add_span, at
from test_gpu_views import CPU, GPU, build, op

from rca.case import Case
from rca.compare import compare
from rca.compare.text import terminal
from rca.pipeline import read

DATA = os.environ.get("RCA_CONFORMANCE_DATA")
recordings = pytest.mark.skipif(DATA is None, reason="RCA_CONFORMANCE_DATA is not set")


def call(
    start: int, dur: int, correlation: int | None, name: str = "cudaLaunchKernel", **more: Any
) -> dict[str, Any]:
    return {"kind": "runtime", "name": name, "pid": 1, "start_ns": start, "dur_ns": dur,
            "correlation": correlation} | more  # fmt: skip


def idle(case: Case) -> dict[str, int]:
    return dict(case.rows("SELECT cause, ns FROM gpu_idle ORDER BY cause"))


def test_idle_time_has_its_cause() -> None:
    us = 1000
    gpu = [
        op(0, 10 * us, correlation=1),
        op(
            30 * us, 10 * us, correlation=2
        ),  # launched at 15: 15 us of host, 8 of launch at most
        op(90 * us, 10 * us, correlation=3),  # a wait from 20 to 41, launched at 85
        op(120 * us, 10 * us, correlation=4),  # launched at 50, long before the gap: held back
        op(140 * us, 10 * us),  # no launch in the file
    ]
    cpu = [
        call(-5 * us, us, 1), call(15 * us, us, 2),
        call(20 * us, 21 * us, None, "cudaStreamSynchronize"), call(85 * us, us, 3), call(50 * us, us, 4),
    ]  # fmt: skip
    case = build(gpu, cpu)
    found = idle(case)
    assert found == {
        "host": 12 * us, "launch": (8 + 5 + 8) * us, "launch not recorded": 10 * us,
        "queued": 12 * us, "sync, then host": 45 * us,
    }  # fmt: skip
    assert sum(found.values()) == case.scalar(
        "SELECT idle_ns FROM gpu_breakdown WHERE device = 0"
    )


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 900), st.integers(0, 60), st.integers(-40, 60)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 80)), max_size=4),
)
def test_causes_add_up_to_the_idle_time(
    rows: list[tuple[int, int, int]], waits: list[tuple[int, int]]
) -> None:
    gpu = [op(s * 1000, d * 1000, correlation=i) for i, (s, d, _) in enumerate(rows)]
    cpu = [call((s - lead) * 1000, 500, i) for i, (s, _, lead) in enumerate(rows) if lead != 7]
    cpu += [call(s * 1000, d * 1000, None, "cudaDeviceSynchronize") for s, d in waits]
    with build(gpu, cpu) as case:
        assert sum(idle(case).values()) == case.scalar(
            "SELECT idle_ns FROM gpu_breakdown WHERE device = 0"
        )


def with_requests(case: Case, rows: list[tuple[str, float, float]]) -> None:
    source = {"id": 2, "part": "incident", "kind": "trace", "format": "made", "path": "trace", "bytes": 1,
              "sha256": "2", "status": "ok"}  # fmt: skip
    case.insert("source", pl.DataFrame([source]))
    case.execute("UPDATE source SET first_ns = ?, last_ns = ? WHERE id = 1", [at(0), at(100)])
    for key, start, dur in rows:
        add_span(case, 2, key, "vllm", "llm_request", start, dur, tenant__id=f"tenant-{key}",
                 gen_ai__latency__time_in_queue=0.0, gen_ai__latency__e2e=dur)  # fmt: skip


def test_gpu_time_is_shared_among_the_requests_served() -> None:
    start = at(0)
    gpu = [op(start, 10 * SECOND), op(start + 20 * SECOND, 10 * SECOND)]
    with build(gpu) as case:
        with_requests(case, [("a", 0, 25), ("b", 5, 15), ("late", 50, 5)])
        # a alone for 5 s, with b for 5 s of work; of the second kernel a has 5 s alone.
        assert case.rows("SELECT tenant, gpu_ns FROM gpu_request ORDER BY tenant") == [
            ("tenant-a", int(12.5 * SECOND)), ("tenant-b", int(2.5 * SECOND)),
        ]  # fmt: skip


def test_idle_without_a_request_is_nobodys_fault() -> None:
    start = at(0)
    gpu = [op(start, SECOND), op(start + 10 * SECOND, SECOND), op(start + 12 * SECOND, SECOND)]
    with build(gpu) as case:
        with_requests(case, [("a", 0, 1), ("b", 9.9, 4)])
        case.execute("UPDATE span SET start_ns = start_ns WHERE false")
        found = idle(case)
        assert found == {"launch not recorded": 10 * SECOND}
        with_gap = list(case.rows("SELECT is_served FROM gpu_gap ORDER BY start_ns"))
        assert with_gap == [(True,), (True,)]
    with build(gpu) as case:
        with_requests(case, [("a", 0, 0.9), ("b", 11.5, 4)])
        assert idle(case) == {"no request": 9 * SECOND, "launch not recorded": SECOND}


def test_gpu_time_by_range_and_implicit_waits() -> None:
    gpu = [op(100, 50, correlation=1), op(200, 30, correlation=2)]
    cpu = [
        {"kind": "nvtx", "name": "step, op_id = 7", "start_ns": 0, "dur_ns": 100, "pid": 1},
        {"kind": "nvtx", "name": "aten::item, op_id = 8", "start_ns": 10, "dur_ns": 80, "pid": 1},
        call(5, 2, 1), call(20, 2, 2), call(30, 40, None, "cudaStreamSynchronize"),
        call(300, 40, None, "cudaDeviceSynchronize"),
    ]  # fmt: skip
    with build(gpu, cpu, kind="nsys") as case:
        case.execute("UPDATE gpu_op SET pid = 1")
        assert case.rows("SELECT name, ops, gpu_ns, self_ns FROM gpu_range ORDER BY name") == [
            ("aten::item", 1, 30, 30), ("step", 2, 80, 50),
        ]  # fmt: skip
        assert case.rows("SELECT op, call, count, total_ns FROM implicit_sync") == [
            ("aten::item", "cudaStreamSynchronize", 1, 40)
        ]


def test_kernels_by_how_they_changed() -> None:
    def runs(
        source: int, name: str, n: int, dur: int, grid: str = "1,1,1"
    ) -> list[dict[str, Any]]:
        return [{"source_id": source, "kind": "kernel", "name": name, "grid": grid, "start_ns": 0, "dur_ns": dur}
                for _ in range(n)]  # fmt: skip

    rows = [
        *runs(1, "same", 20, 100), *runs(2, "same", 10, 100),
        *runs(1, "slower", 20, 150), *runs(2, "slower", 10, 100),
        *runs(1, "more", 60, 100), *runs(2, "more", 10, 100),
        *runs(1, "wider", 20, 300, "4,1,1"), *runs(2, "wider", 10, 100),
        *runs(1, "new", 1, 100), *runs(2, "gone", 1, 100),
    ]  # fmt: skip
    with build([]) as case:
        base = {"id": 2, "part": "baseline", "kind": "torch_profiler", "format": "t", "path": "b", "bytes": 1,
                "sha256": "2", "status": "ok"}  # fmt: skip
        case.insert("source", pl.DataFrame([base]))
        case.insert("gpu_op", pl.DataFrame([{"id": i} | r for i, r in enumerate(rows)]))
        assert dict(case.rows("SELECT name, change FROM kernel_change")) == {
            "same": "same", "slower": "time", "more": "count", "wider": "shape", "new": "new", "gone": "gone",
        }  # fmt: skip
    assert set(GPU) | set(CPU)


@recordings
def test_two_h100_wait_for_copies_from_the_host() -> None:
    assert DATA
    with read([Path(DATA) / "nsys" / "h100_2gpu_1s.sqlite"], case_path=None) as case:
        for device in (0, 1):
            shares = dict(
                case.rows("SELECT bound, share FROM gpu_bound WHERE device = ?", [device])
            )
            assert sum(shares.values()) == pytest.approx(1)
            assert max(shares, key=lambda k: shares[k]) == "copy"
            copies = dict(
                case.rows("SELECT copy_kind, share FROM gpu_copy WHERE device = ?", [device])
            )
            assert copies["HtoD"] > 0.94
            assert sum(copies.values()) == pytest.approx(shares["copy"], rel=0.01)


@recordings
def test_compare_tells_why_two_captures_differ() -> None:
    assert DATA
    folder = Path(DATA) / "nsys"
    found = compare(folder / "mfu_2gpu_before.sqlite", folder / "mfu_2gpu_after.sqlite")
    assert found["ops"]["changes"] == {"same": 26, "time": 1}
    (changed,) = [k for k in found["ops"]["kept"] if k["change"] == "time"]
    assert changed["name"].startswith("ncclDevKernel_SendRecv")
    assert changed["same_shape_ratio"] == pytest.approx(1.41, abs=0.01)
    states = {row["state"]: (row["base"], row["candidate"]) for row in found["gpu"]}
    for side in (0, 1):
        assert sum(s[side] for s in states.values()) == pytest.approx(1)
    assert states["idle: host"][1] > 1.5 * states["idle: host"][0]
    assert states["compute"][1] < states["compute"][0]
    assert "idle: host 7.11 % → 13.3 %" in terminal(found)


@recordings
def test_a_graph_of_decode_leaves_hardly_any_gap() -> None:
    assert DATA
    path = Path(DATA) / "kineto" / "vllm_decode_full_graph_exec.json.gz"
    with read([path], case_path=None) as case:
        assert case.scalar("SELECT idle_ns FROM gpu_breakdown WHERE device IS NULL") == 25_473
        assert sum(idle(case).values()) == 25_473
        ((name, ops, gpu_ns),) = case.rows("SELECT name, ops, gpu_ns FROM gpu_range")
        assert name.startswith("execute_32_context_0")
        assert (ops, gpu_ns) == (434, 10_717_708)
