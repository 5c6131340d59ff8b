"""Every PyTorch Profiler file of the conformance data, exact to the ns."""

from __future__ import annotations

from pathlib import Path

import gpu_recordings as recordings
import pytest

from rca.case import Case
from rca.errors import ParseError
from rca.parsers import recognise
from rca.parsers.stream import read_head

ORACLE = {r["name"]: r for r in recordings.oracle("kineto")}
REFUSED = "memory_timeline.raw.gz"
# One damaged event is mended, or kept without its damaged duration, where the oracle skips it.
MENDED = {"n_elements": 1, "n_python": 1}
# The cut event is an element of the file that is lost.
CUT = {"n_elements": 1}
DIFFERENCES = {
    "malformed_nan_inf_values.json.gz": MENDED,
    "malformed_unescaped_quote_and_newline.json.gz": MENDED,
    "malformed_windows_backslash_escape.json.gz": MENDED,
    "malformed_truncated_gz_60pct.json.gz": CUT,
    "malformed_truncated_json_midevent.json.gz": CUT,
    # The oracle counts the kernel with a negative duration as one of 0 ns.
    "malformed_negative_dur.json.gz": {
        "n_kernel": -1, "n_gpu_without": -1, "n_devices": -1, "n_streams": -1,
    },
}  # fmt: skip
NOTES = {
    "cpu_only_rank34.pt.trace.json.gz": {"no_gpu_events"},
    "cupti_profiler.json.gz": {"no_gpu_events"},
    "distributed_info_not_found.json.gz": {"no_gpu_events"},
    "rank_not_found.json.gz": {"no_gpu_events"},
    "large_integer_rank70.pt.trace.json.gz": {"relative_time"},
    "malformed_nan_inf_values.json.gz": {"bad_duration"},
    "malformed_negative_dur.json.gz": {"bad_duration"},
    "malformed_only_metadata.json": {"no_events"},
    "malformed_truncated_gz_60pct.json.gz": {
        "damaged_compression", "lost_event", "no_gpu_events", "relative_time", "truncated",
    },
    "malformed_truncated_json_midevent.json.gz": {
        "lost_event", "no_gpu_events", "relative_time", "truncated",
    },
    "malformed_unescaped_quote_and_newline.json.gz": {"repaired_event"},
    "malformed_windows_backslash_escape.json.gz": {"repaired_event"},
    "mtia_rank_0.json.gz": {"accelerator"},
}  # fmt: skip


def _measured(case: Case) -> dict[str, object]:
    found = recordings.row(case, "SELECT * FROM gpu_breakdown WHERE device IS NULL")
    found |= {
        "first_gpu_ns": found["first_ns"], "last_gpu_ns": found["last_ns"],
        "compute_union_ns": found["compute_ns"], "comm_union_ns": found["comm_ns"],
        "mem_union_ns": found["mem_ns"], "comp_comm_overlap_ns": found["overlap_ns"],
        "n_gpu_with_launch": found["n_launched"], "n_gpu_without": found["n_unlaunched"],
    }  # fmt: skip
    found |= recordings.row(case, """
        SELECT count(*) FILTER (kind = 'op') AS n_cpu_op,
            count(*) FILTER (kind IN ('runtime', 'driver')) AS n_runtime,
            count(*) FILTER (kind = 'python') AS n_python,
            count(*) FILTER (kind = 'annotation') AS n_annotation,
            count(*) FILTER (kind = 'gpu_annotation') AS n_gpu_annotation
        FROM cpu_op""")  # fmt: skip
    found |= recordings.row(case, """
        SELECT count(*) FILTER (correlation IS NULL AND flaw IS NULL) AS n_gpu_no_correlation,
            coalesce(sum(bytes) FILTER (kind = 'memcpy'), 0) AS bytes_memcpy,
            coalesce(sum(dur_ns) FILTER (kind = 'memcpy'), 0) AS memcpy_sum_ns,
            coalesce(sum(dur_ns) FILTER (kind = 'memset'), 0) AS memset_sum_ns,
            count(DISTINCT device) AS n_devices,
            count(DISTINCT (device, stream)) AS n_streams
        FROM gpu_op WHERE kind <> 'accelerator' AND flaw IS NULL""")  # fmt: skip
    found |= recordings.row(case, "SELECT count(*) AS n_memory_events FROM memory_event")
    found |= recordings.row(
        case, "SELECT coalesce(base_ns, 0) AS base_ns, rank, world_size, n_elements FROM source"
    )
    top = case.rows("""
        SELECT total_ns, count, name FROM kernel_summary
        ORDER BY total_ns DESC, name LIMIT 1""")
    return found | dict(
        zip(
            ("top_kernel_ns", "top_kernel_count", "top_kernel"),
            top[0] if top else (None,) * 3,
            strict=True,
        )
    )


@pytest.mark.parametrize("name", [n for n in ORACLE if n != REFUSED] or ["none"])
def test_numbers_equal_the_oracle(name: str, conformance: Path) -> None:
    case = recordings.read(conformance / "kineto" / name)
    expected = dict(ORACLE[name])
    for column, more in DIFFERENCES.get(name, {}).items():
        expected[column] = str(int(expected[column]) + more)
    if name == "malformed_negative_dur.json.gz":
        expected["n_gpu_no_correlation"] = "0"
    measured = {k: recordings.cell(v) for k, v in _measured(case).items() if k in expected}
    assert len(measured) > 30
    assert measured == {k: expected[k] for k in measured}
    assert set(recordings.notes(case)) == NOTES.get(name, set())


@pytest.mark.parametrize(
    "name",
    [n for n, r in ORACLE.items() if r["before_damage"] and "truncated" in n] or ["none"],
)
def test_every_event_before_a_cut_is_kept(name: str, conformance: Path) -> None:
    case = recordings.read(conformance / "kineto" / name)
    assert case.rows("SELECT status FROM source") == [("salvaged",)]
    kept = case.scalar("SELECT (SELECT count(*) FROM cpu_op) + (SELECT count(*) FROM gpu_op)")
    # What the profiler writes about itself (category 'Trace') is no operation.
    assert kept == int(ORACLE[name]["before_damage_x"])


def test_a_memory_timeline_is_refused_with_the_reason(conformance: Path) -> None:
    path = conformance / "kineto" / REFUSED
    with pytest.raises(ParseError, match="memory timeline"):
        recognise(read_head(path)).read(path, None)  # type: ignore[arg-type]


def test_graph_launches_have_many_kernels(conformance: Path) -> None:
    case = recordings.read(conformance / "kineto" / "vllm_decode_full_graph_exec.json.gz")
    most = case.rows("""
        SELECT count(*) AS n, c.name FROM launch AS l
        JOIN cpu_op AS c ON c.source_id = l.source_id AND c.id = l.cpu_op_id
        GROUP BY l.cpu_op_id, c.name ORDER BY n DESC LIMIT 1""")
    assert most == [(421, "hipGraphLaunch")]


def test_work_launched_before_the_window_is_kept_apart(conformance: Path) -> None:
    case = recordings.read(conformance / "kineto" / "h100_qwen1.5_0.5b.json.gz")
    both = "SELECT n_kernel + n_memcpy + n_memset FROM {} WHERE device IS NULL"
    assert case.scalar(both.format("gpu_breakdown")) == 1707
    assert case.scalar(both.format("gpu_breakdown_launched")) == 1198
