"""Views over GPU work: small cases with known answers, and unions against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rca.case import Case

GPU = {
    "source_id": pl.Int32, "id": pl.Int64, "kind": pl.String, "name": pl.String,
    "device": pl.Int32, "pid": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64,
    "correlation": pl.Int64, "flaw": pl.String,
}  # fmt: skip
CPU = {
    "source_id": pl.Int32, "id": pl.Int64, "kind": pl.String, "name": pl.String,
    "pid": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "correlation": pl.Int64,
}  # fmt: skip
NAMES = {"compute": "gemm", "comm": "ncclDevKernel_AllReduce", "mem": "Memcpy HtoD"}


def build(
    gpu: list[dict[str, Any]], cpu: Sequence[dict[str, Any]] = (), kind: str = "torch_profiler"
) -> Case:
    """A case with one recording that holds these operations."""
    case = Case.create()
    case.insert("source", pl.DataFrame([{
        "id": 1, "part": "incident", "kind": kind, "format": kind, "path": "t", "bytes": 1,
        "sha256": "0", "status": "ok",
    }]))  # fmt: skip
    fill(case, gpu, cpu)
    return case


def fill(case: Case, gpu: Sequence[dict[str, Any]], cpu: Sequence[dict[str, Any]]) -> None:
    """Put these operations in the place of what the case holds."""
    for table, rows, schema in (("gpu_op", gpu, GPU), ("cpu_op", cpu, CPU)):
        case.clear([table])
        filled = [{"source_id": 1, "id": i} | row for i, row in enumerate(rows)]
        if filled:
            case.insert(table, pl.DataFrame(filled, schema=schema))


def op(
    start: int, dur: int, what: str = "compute", device: int | None = 0, **more: Any
) -> dict[str, Any]:
    """A GPU operation of a class."""
    kind = "memcpy" if what == "mem" else "kernel"
    return {
        "kind": kind,
        "name": NAMES[what],
        "device": device,
        "start_ns": start,
        "dur_ns": dur,
    } | more


def breakdown(
    case: Case, device: int | None = None, view: str = "gpu_breakdown"
) -> dict[str, Any]:
    """The row of a device."""
    rows = case.sql(
        f"SELECT * FROM {view} WHERE device IS NOT DISTINCT FROM ?", [device]
    ).to_dicts()
    assert len(rows) == 1
    return rows[0]


def bounds(case: Case, device: int | None = None) -> dict[str, int]:
    """Nanoseconds by bound, those that are 0 left out."""
    rows = case.rows(
        "SELECT bound, ns, share FROM gpu_bound WHERE device IS NOT DISTINCT FROM ?", [device]
    )
    assert sum(share for _, _, share in rows) == pytest.approx(1)
    return {bound: ns for bound, ns, _ in rows if ns}


def test_classes_are_kept_apart_and_overlap_is_counted_once() -> None:
    case = build(
        [op(0, 100), op(50, 100, "comm"), op(120, 60), op(170, 50, "mem"), op(300, 10)]
    )
    found = breakdown(case)
    assert found == breakdown(case, 0) | {"device": None}
    assert {k: found[k] for k in ("span_ns", "busy_ns", "idle_ns")} == {
        "span_ns": 310, "busy_ns": 230, "idle_ns": 80,
    }  # fmt: skip
    assert [found[f"{k}_ns"] for k in ("compute", "comm", "mem", "overlap", "kernel_sum")] == [
        170, 100, 50, 80, 270,
    ]  # fmt: skip
    assert [found[f"n_{k}"] for k in ("kernel", "memcpy", "memset", "launched", "unlaunched")] == [
        4, 1, 0, 0, 5,
    ]  # fmt: skip


def test_devices_stand_alone_and_together() -> None:
    case = build([op(0, 100, device=0), op(50, 100, device=1), op(400, 10, device=None)])
    assert [breakdown(case, d)["busy_ns"] for d in (0, 1, None)] == [100, 100, 160]
    assert case.scalar("SELECT count(*) FROM gpu_breakdown") == 3


def test_a_recording_without_gpu_work_has_one_row_of_zeros() -> None:
    found = breakdown(build([]))
    assert found["source_id"] == 1
    assert {v for k, v in found.items() if k != "source_id"} == {0, None}
    assert build([]).rows("FROM gpu_bound") == []


def test_flawed_work_and_accelerators_count_nowhere() -> None:
    case = build([
        op(0, 10), op(5, -5, flaw="negative_duration"),
        op(0, 10**17, flaw="absurd_duration"), op(0, 99) | {"kind": "accelerator"},
    ])  # fmt: skip
    assert (breakdown(case)["busy_ns"], breakdown(case)["n_kernel"]) == (10, 1)
    assert case.rows("SELECT count, total_ns FROM kernel_summary") == [(1, 10)]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("ncclKernel_AllReduce", "comm_ns"), ("void ncclKernel<int>", "comm_ns"),
        ("NCCLDevKernel", "comm_ns"), ("rcclGeneric", "comm_ns"), ("mscclpp_kernel", "comm_ns"),
        ("my_nccl_kernel", "compute_ns"), ("gemm\nnccl", "compute_ns"),
    ],
)  # fmt: skip
def test_communication_is_told_by_the_beginning_of_the_name(name: str, column: str) -> None:
    assert breakdown(build([op(0, 7) | {"name": name}]))[column] == 7


def call(
    start: int, dur: int, correlation: int | None, kind: str = "runtime", **more: Any
) -> dict[str, Any]:
    """A call on the CPU."""
    return {
        "kind": kind, "name": "cudaLaunchKernel", "start_ns": start, "dur_ns": dur,
        "correlation": correlation, "pid": 7,
    } | more  # fmt: skip


def test_one_graph_launch_has_many_kernels_and_a_kernel_one_launch() -> None:
    gpu = [op(10 * i, 5, correlation=9) for i in range(1, 4)] + [op(90, 5, correlation=4)]
    case = build(gpu, [call(3, 1, 9, "driver"), call(2, 3, 9), call(0, 1, 4, "sync")])
    assert case.rows("SELECT gpu_op_id, cpu_op_id, delay_ns FROM launch ORDER BY 1") == [
        (0, 1, 8), (1, 1, 18), (2, 1, 28),
    ]  # fmt: skip
    assert breakdown(case)["n_launched"] == 3
    assert breakdown(case, view="gpu_breakdown_launched")["busy_ns"] == 15


def test_nsight_counts_correlations_by_process() -> None:
    gpu = [op(10, 5, correlation=1, pid=7), op(20, 5, correlation=1, pid=8)]
    assert build(gpu, [call(0, 1, 1)], "nsys").rows("SELECT gpu_op_id FROM launch") == [(0,)]
    assert len(build(gpu, [call(0, 1, 1)]).rows("SELECT gpu_op_id FROM launch")) == 2


def test_idle_time_goes_to_whoever_held_it_up() -> None:
    gpu = [
        op(0, 100),
        op(80, 40, "comm"),
        op(110, 40, "mem"),
        op(200, 10, correlation=1),
        op(300, 10),
    ]
    cpu = [
        call(150, 20, None, name="cudaStreamSynchronize"),  # 150-170
        call(160, 15, None, "sync", name="Stream Sync"),  # 160-175
        call(190, 2, 1),  # on its way 190-200
    ]
    assert bounds(build(gpu, cpu)) == {
        "compute": 120, "comm": 20, "copy": 30, "sync": 25, "launch": 10, "idle": 105,
    }  # fmt: skip


def test_a_copy_counts_as_copying_and_not_as_idle() -> None:
    assert bounds(build([op(0, 900, "mem"), op(900, 100)])) == {"copy": 900, "compute": 100}


def test_nsight_tells_whose_device_waits() -> None:
    gpu = [op(0, 10, device=d, pid=7 + d) for d in (0, 1)] + [
        op(90, 10, device=d, pid=7 + d) for d in (0, 1)
    ]
    case = build(gpu, [call(20, 50, None, name="cudaDeviceSynchronize")], "nsys")
    assert bounds(case, 0) == {"compute": 20, "sync": 50, "idle": 30}
    assert bounds(case, 1) == {"compute": 20, "idle": 80}


def test_summaries_count_by_name() -> None:
    case = build(
        [op(0, 10), op(20, 30), op(60, 5, "comm")],
        [call(0, 2, 1, name="cudaLaunchKernel_v7000"), call(5, 4, 2), call(9, 1, 3, "op")],
    )
    assert case.rows("SELECT * EXCLUDE source_id FROM kernel_summary ORDER BY name") == [
        ("gemm", 2, 40, 20.0, 20.0, 10, 30, pytest.approx(14.142135)),
        ("ncclDevKernel_AllReduce", 1, 5, 5.0, 5.0, 5, 5, 0.0),
    ]
    assert case.rows("SELECT name, count, total_ns FROM api_summary") == [
        ("cudaLaunchKernel", 2, 6)
    ]


def brute(intervals: list[tuple[int, int]]) -> set[int]:
    """Every ns that an interval covers."""
    return {ns for start, dur in intervals for ns in range(start, start + dur)}


def test_unions_equal_a_brute_force() -> None:
    case = build([])

    @settings(max_examples=30)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, 120), st.integers(0, 40),
                st.sampled_from(["compute", "comm", "mem"]), st.sampled_from([0, 1]),
            ),
            min_size=1, max_size=25,
        ),
        st.lists(st.tuples(st.integers(0, 150), st.integers(0, 40)), max_size=5),
    )  # fmt: skip
    @example(ops=[(0, 0, "compute", 0), (1, 0, "compute", 0)], waits=[])
    def check(ops: list[tuple[int, int, str, int]], waits: list[tuple[int, int]]) -> None:
        gpu = [op(s, d, w, device) for s, d, w, device in ops]
        fill(case, gpu, [call(s, d, None, "sync", name="Stream Sync") for s, d in waits])
        _compare(case, ops, waits)

    check()


def _compare(
    case: Case, ops: list[tuple[int, int, str, int]], waits: list[tuple[int, int]]
) -> None:
    for device in {o[3] for o in ops} | {None}:
        mine = [o for o in ops if device is None or o[3] == device]
        covered = {w: brute([(s, d) for s, d, what, _ in mine if what == w]) for w in NAMES}
        found = breakdown(case, device)
        busy = set().union(*covered.values())
        assert found["busy_ns"] == len(busy)
        assert found["overlap_ns"] == len(covered["compute"] & covered["comm"])
        assert {w: found[f"{w}_ns"] for w in NAMES} == {w: len(c) for w, c in covered.items()}
        first, last = found["first_ns"], found["last_ns"]
        if last > first:
            waiting = (brute(waits) & set(range(first, last))) - busy
            expected = {
                "compute": len(covered["compute"]),
                "comm": len(covered["comm"] - covered["compute"]),
                "copy": len(covered["mem"] - covered["comm"] - covered["compute"]),
                "sync": len(waiting),
                "idle": last - first - len(busy) - len(waiting),
            }
            assert bounds(case, device) == {k: v for k, v in expected.items() if v}
