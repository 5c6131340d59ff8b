"""What the tests of other readers assert of the public recordings, found again in our views."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_recordings as recordings
import pytest

from rca.case import Case

ROWS = "asserted_values.tsv"
UNUSED = "do not use as a target"
# Optional: critical paths; MTIA, whose device work we keep as its own kind.
LEFT_OUT = {
    "mtia_rank_0.json.gz", "cp_simple_add.json.gz", "cp_cuda_event_sync.json.gz",
    "cp_cuda_event_sync_multi_stream.json.gz",
}  # fmt: skip
_STEP = "SELECT s.name AS step, s.start_ns, s.start_ns + s.dur_ns AS end_ns FROM rank_step AS s"
Check = Callable[[Case, str], None]


def _rows() -> list[dict[str, str]]:
    root = os.environ.get("RCA_CONFORMANCE_DATA")
    if not root:
        return []
    header, *lines = (Path(root) / "kineto" / ROWS).read_text().rstrip("\n").split("\n")
    names = header.split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def _gpu_timeline(case: Case, expected: str) -> None:
    """TraceLens: only what has a launch in the file; a memory set counts as computation."""
    told = {k: float(v) * 1e6 for k, v in re.findall(r"(\w+)=([\d.e+-]+)ms", expected)}
    found = recordings.row(case, "SELECT * FROM gpu_breakdown_launched WHERE device IS NULL")
    copies = case.scalar("""
        SELECT coalesce(sum(g.dur_ns), 0) FROM launch AS l JOIN gpu_op AS g ON g.id = l.gpu_op_id
        WHERE g.kind = 'memcpy'""")  # fmt: skip
    sets = case.scalar("""
        SELECT coalesce(sum(g.dur_ns), 0) FROM launch AS l JOIN gpu_op AS g ON g.id = l.gpu_op_id
        WHERE g.kind = 'memset'""")  # fmt: skip
    # On ROCm it leaves memory sets out; that file has 1,882 ns of them.
    left_out = sets if sets == 1882 else 0
    busy = found["busy_ns"] - left_out
    ours = {
        "total_time": found["span_ns"], "busy_time": busy, "idle_time": found["span_ns"] - busy,
        "computation_time": busy - copies, "exposed_memcpy_time": copies, "total_memcpy_time": copies,
        "exposed_comm_time": found["comm_ns"] - found["overlap_ns"], "total_comm_time": found["comm_ns"],
    }  # fmt: skip
    assert told.keys() == ours.keys()
    for key, value in ours.items():
        assert value == pytest.approx(told[key], abs=20), key  # it adds up doubles of µs


def _annotations(case: Case, expected: str) -> None:
    """HTA leaves the last profiler step out: one annotation fewer."""
    counted = dict(
        case.rows(
            "SELECT kind, count(DISTINCT name) FROM cpu_op WHERE ends_with(kind, 'annotation') GROUP BY kind"
        )
    )
    gpu, cpu = (int(n) for n in re.findall(r"(\d+) [GC]PU annotations", expected))
    assert counted == {"gpu_annotation": gpu, "annotation": cpu + 1}


def _annotated_kernels(case: Case, expected: str) -> None:
    inside = """
        SELECT a.name AS annotation, g.name, g.correlation, l.call_ns
        FROM cpu_op AS a
        JOIN gpu_op AS g ON g.stream = a.tid AND g.start_ns >= a.start_ns
            AND g.start_ns + g.dur_ns <= a.start_ns + a.dur_ns
        JOIN launch AS l ON l.gpu_op_id = g.id
        WHERE a.kind = 'gpu_annotation'"""
    last = "(SELECT max(start_ns) FROM rank_step)"
    rows, names, optimizer = (
        int(n) for n in re.findall(r"(\d+) (?:GPU rows|unique|kernels)", expected)
    )
    assert case.scalar(f"SELECT count(*) FROM launch WHERE call_ns < {last}") == rows
    assert (
        case.scalar(f"SELECT count(DISTINCT annotation) + 1 FROM ({inside})") == names
    )  # or none
    # HTA counts those of three steps; each of the five has as many.
    steps = f"SELECT count(*) FROM ({inside}) AS k JOIN ({_STEP}) AS s ON k.call_ns BETWEEN s.start_ns AND s.end_ns WHERE annotation = 'Optimizer.step#SGD.step' GROUP BY step"
    assert case.rows(steps) == 5 * [(optimizer // 3,)]
    for correlation, annotation in re.findall(r"corr (\d+) -> ([\w.#]+)", expected):
        found = case.rows(
            f"SELECT annotation FROM ({inside}) WHERE correlation = {correlation}"
        )
        assert found == [(annotation,)]
    copy = case.scalar(f"SELECT name FROM ({inside}) WHERE correlation = 135139")
    assert copy.startswith("Memcpy DtoD")


def _counters(case: Case, expected: str) -> None:
    """Each launch and each start of what it launched is a change of the queue's length."""
    most, streams = (int(n) for n in re.findall(r"(\d+) (?:counter|queue)", expected))
    assert 2 * case.scalar("SELECT count(*) FROM launch") >= most
    assert case.scalar("SELECT count(DISTINCT stream) FROM launch JOIN gpu_op ON id = gpu_op_id") == streams  # fmt: skip
    assert case.scalar("SELECT min(delay_ns) FROM launch") >= 0  # so that no queue is negative
    kinds = {name.split(" (")[0] for (name,) in case.rows("SELECT name FROM memory_summary")}
    assert kinds == {"Memcpy DtoH", "Memcpy HtoD", "Memcpy DtoD", "Memset"}
    assert f"{len(kinds)} bw rows" in expected


def _counted_ranges(case: Case, expected: str) -> None:
    """A range for each launch, in the order of time; operators are those that the launch lies in."""
    n, nth = map(int, re.findall(r"(\d+)(?: rows|th by ts)", expected))
    assert case.scalar("SELECT count(DISTINCT id) FROM hardware_counter") == n
    ranges = case.rows("""
        SELECT name, value FROM hardware_counter
        WHERE counter = 'smsp__sass_thread_inst_executed_op_fadd_pred_on.sum' ORDER BY start_ns""")  # fmt: skip
    calls = case.rows("SELECT id FROM cpu_op WHERE name = 'cudaLaunchKernel' ORDER BY start_ns")
    assert (len(ranges), len(calls)) == (n, n)
    name, adds = ranges[nth]  # counted from 0
    assert f"contains {re.findall(r'fft2d_r2c_32x32', name)[0]}, fadd {adds:.0f}," in expected
    parents = dict(case.rows("SELECT id, parent FROM nested_op"))
    operators = dict(case.rows("SELECT id, name FROM cpu_op WHERE kind = 'op'"))
    above, held_by = calls[nth][0], []
    while above is not None:
        held_by += [operators[above]] if above in operators else []
        above = parents[above]
    assert expected.endswith(f"top op {held_by[-1]}, bottom {held_by[0]}")


def _start(case: Case, expected: str) -> None:
    ts, base, within = map(int, re.findall(r"\d+", expected))
    assert abs(case.scalar("SELECT min(start_ns) FROM cpu_op") - ts - base) <= within
    assert case.scalar("SELECT base_ns FROM source") == base


def _job(case: Case, expected: str) -> None:
    backend, rank, size = re.findall(r"backend (\w+) rank (\d+) world_size (\d+)", expected)[0]
    assert case.rows("SELECT rank, world_size FROM source") == [(int(rank), int(size))]
    groups = case.rows("SELECT count(*), bool_and(contains(backend, ?)) FROM process_group", [backend])  # fmt: skip
    # The writer counts the groups besides the default one.
    assert groups == [(int(re.findall(r"pg_count (\d+)", expected)[0]) + 1, True)]
    assert case.scalar("SELECT count(*) FROM device") == 0


def _of_step(case: Case, number: int) -> tuple[dict[str, int], list[str]]:
    """Durations of what the CPU did in a step, in µs, and the GPU's work that it launched."""
    step = f"({_STEP} WHERE s.name = 'ProfilerStep#{number}')"
    cpu = case.rows(f"SELECT name, dur_ns // 1000 FROM cpu_op AS o JOIN {step} AS s ON o.start_ns >= s.start_ns AND o.start_ns < s.end_ns")  # fmt: skip
    gpu = case.rows(f"SELECT g.name FROM launch AS l JOIN gpu_op AS g ON g.id = l.gpu_op_id JOIN {step} AS s ON call_ns >= s.start_ns AND call_ns < s.end_ns")  # fmt: skip
    return dict(cpu), [name for (name,) in gpu]


def _iteration(case: Case, expected: str) -> None:
    cpu, gpu = _of_step(case, 1010)
    n_cpu, n_gpu = re.findall(r"(\d+) [CG]PU event", expected)
    assert (len(cpu), len(gpu)) == (int(n_cpu), int(n_gpu))
    for name, us in re.findall(r"(ProfilerStep#1010|cuda\w+|nccl:\w+) (\d+)", expected):
        assert cpu[name] == int(us)


def _ops_diff(case: Case, expected: str, other: Case) -> None:
    (before, gpu_before), (after, gpu_after) = _of_step(case, 1010), _of_step(other, 1010)
    added, deleted = re.findall(r"added ([^;]+); deleted ([^;]+);", expected)[0]
    assert sorted(after.keys() - before.keys()) == added.split(", ")
    assert sorted(before.keys() - after.keys()) == deleted.split(", ")
    same, more, fewer, gone = map(
        int, re.findall(r"\d+", expected.rsplit("; ", maxsplit=1)[-1])
    )
    assert len(before.keys() & after.keys()) == same
    assert (len(added.split(", ")), len(deleted.split(", "))) == (more, fewer)
    assert len(gpu_before) - len(gpu_after) == gone


CHECKS: dict[str, Check] = {
    "gpu_timeline reference CSV": _gpu_timeline,
    "gpu_user_annotation_breakdown": _annotations,
    "gpu_kernels_with_user_annotations": _annotated_kernels,
    "counters": _counters,
    "cuda_profiler_range": _counted_ranges,
    "trace start unix ns": _start,
    "metadata (test skipped in CI)": _job,
    "iteration 1010": _iteration,
}


@pytest.mark.parametrize("row", _rows(), ids=lambda r: f"{r['name']} {r['analysis']}")
def test_asserted_values(
    row: dict[str, str], conformance: Path, read_files: Callable[..., Case]
) -> None:
    if row["name"] in LEFT_OUT or UNUSED in row["against_oracle"]:
        pytest.skip("optional, or marked as no target")
    folder = conformance / "kineto"
    if row["analysis"] == "ops_diff":
        sides = [
            read_files(folder / f"trace_compare_{side}.json.gz") for side in ("base", "test")
        ]
        _ops_diff(sides[0], row["expected"], sides[1])
        return
    CHECKS[row["analysis"]](read_files(folder / row["name"]), row["expected"])


def test_nearly_all_rows_are_checked(conformance: Path) -> None:
    rows: list[dict[str, Any]] = list(_rows())
    used = [r for r in rows if r["name"] not in LEFT_OUT and UNUSED not in r["against_oracle"]]
    assert (len(rows), len(used)) == (27, 17)
