"""Every Nsight Systems export of the conformance data, exact to the ns."""

from __future__ import annotations

import csv
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import gpu_recordings as recordings
import pytest

from rca.case import Case

ORACLE = {r["name"]: r for r in recordings.oracle("nsys")}
EXPORTS = [n for n in ORACLE if n.endswith(".sqlite")]
COPY_KINDS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "p2p"} | {
    f"{kind} (unified)": f"um_{short}"
    for kind, short in (("HtoD", "h2d"), ("DtoH", "d2h"), ("DtoD", "d2d"))
}
NO_GPU = {"t4_report1.sqlite", "v100_report1.sqlite"}


def _measured(case: Case) -> dict[str, object]:
    found = recordings.row(case, """
        SELECT b.*, b.first_ns - s.base_ns AS first_op_ns, b.last_ns - s.base_ns AS last_op_ns,
            s.base_ns AS utc_start_ns
        FROM gpu_breakdown AS b JOIN source AS s ON s.id = b.source_id
        WHERE device IS NULL""")  # fmt: skip
    found |= recordings.row(case, """
        SELECT count(*) FILTER (kind IN ('runtime', 'driver')) AS n_runtime,
            count(*) FILTER (kind = 'sync') AS n_sync,
            count(*) FILTER (kind = 'nvtx') AS n_nvtx,
            count(*) FILTER (kind = 'osrt') AS n_osrt_calls
        FROM cpu_op""")  # fmt: skip
    found |= recordings.row(case, """
        SELECT count(*) FILTER (kind = 'kernel') AS n_matched,
            count(*) FILTER (kind = 'kernel' AND delay_ns < 0) AS n_negative_delay
        FROM launch""")  # fmt: skip
    found |= recordings.row(case, """
        SELECT count(DISTINCT (device, context, stream)) AS n_streams,
            sum(bytes) FILTER (kind = 'memset') AS memset_bytes,
            count(DISTINCT pid) FILTER (kind = 'kernel') AS n_processes
        FROM gpu_op""")  # fmt: skip
    found["busy_all_ns"] = _by_device(case, "busy_ns")
    found["busy_kernel_ns"] = _kernel_busy(case)
    found["gpus"] = ";".join(
        f"{i}:{n}" for i, n in case.rows("SELECT id, name FROM device ORDER BY id")
    )
    for kind, total in case.rows(
        "SELECT copy_kind, sum(bytes) FROM gpu_op WHERE kind = 'memcpy' GROUP BY 1"
    ):
        found[f"memcpy_{COPY_KINDS.get(kind, 'other')}"] = total
    top = case.rows(
        "SELECT total_ns, count, name FROM kernel_summary ORDER BY total_ns DESC, name LIMIT 1"
    )
    if top:
        found |= dict(
            zip(("top_kernel_ns", "top_kernel_count", "top_kernel"), top[0], strict=True)
        )
    return found


def _by_device(case: Case, column: str) -> str:
    rows = case.rows(
        f"SELECT device, {column} FROM gpu_breakdown WHERE device IS NOT NULL ORDER BY 1"
    )
    return ";".join(f"{device}:{ns}" for device, ns in rows)


def _kernel_busy(case: Case) -> str:
    rows = case.rows("""
        SELECT device, compute_ns + comm_ns - overlap_ns FROM gpu_breakdown
        WHERE device IS NOT NULL AND n_kernel > 0 ORDER BY 1""")
    return ";".join(f"{device}:{ns}" for device, ns in rows)


@pytest.mark.parametrize("name", EXPORTS or ["none"])
def test_numbers_equal_the_oracle(name: str, conformance: Path) -> None:
    case = recordings.read(conformance / "nsys" / name)
    expected = ORACLE[name]
    measured = {k: v for k, v in _measured(case).items() if k in expected}
    assert len(measured) > 18
    # '-' is a table that is not there, '' a number that needs it: 0 or NULL here.
    wrong = {
        k: (expected[k], v)
        for k, v in measured.items()
        if recordings.cell(v) != expected[k]
        and not (expected[k] in ("-", "") and v in (0, None, ""))
    }
    assert wrong == {}
    zero = {k: v for k, v in expected.items() if k.startswith("memcpy_") and k not in measured}
    assert set(zero.values()) <= {"0", ""}
    assert ("no_gpu_events" in recordings.notes(case)) == (name in NO_GPU)
    assert case.scalar("SELECT status FROM source") == "ok"


SUMMARIES = {  # report of nsys: view, its name of the rows, of their number, and what is measured
    "cuda_gpu_kern_sum": ("kernel_summary", "Name", "Instances", "ns"),
    "cuda_api_sum": ("api_summary", "Name", "Num Calls", "ns"),
    "cuda_gpu_mem_time_sum": ("memory_summary", "Operation", "Count", "ns"),
    "cuda_gpu_mem_size_sum": ("memory_summary", "Operation", "Count", "MB"),
    "nvtx_sum": ("nvtx_summary", "Range", "Instances", "ns"),
}
MEMORY_NAMES = {"Host": "H", "Device": "D", "Peer": "P"}
NOT_REPORTED = {
    ("rtx2080ti_matmul.sqlite", "memory_summary")
}  # nsys 2023.4 wants its ENUM tables


def _theirs(report: Path, label: str, number: str, unit: str) -> dict[str, list[str]]:
    """What nsys printed, by name."""
    total = "Total Time (ns)" if unit == "ns" else "Total (MB)"
    columns = [
        number,
        total,
        *(f"{c} ({unit})" for c in ("Avg", "Med", "Min", "Max", "StdDev")),
    ]
    columns += ["Time (%)"] if unit == "ns" else []
    with report.open(newline="") as file:
        return {_our_name(r[label]): [r[c] for c in columns] for r in csv.DictReader(file)}


def _our_name(theirs: str) -> str:
    """A name of nsys as the views have it."""
    if copy := re.fullmatch(r"\[CUDA memcpy (Unified )?(\w+)-to-(\w+)\]", theirs):
        ends = "to".join(MEMORY_NAMES[e] for e in copy.groups()[1:])
        return f"[CUDA memcpy {ends}{' (unified)' if copy[1] else ''}]"
    return re.sub(r"_v\d{5}$", "", theirs)  # nsys takes off versions of four digits only


def _ours(case: Case, view: str, unit: str) -> dict[str, list[str]]:
    """The same from the view, rounded as nsys rounds."""
    statistics = ("total", "avg", "med", "min", "max", "stddev")
    if unit == "ns":
        printed = {
            f"{s}_ns": "0.1" if s in ("avg", "med", "stddev") else "1" for s in statistics
        }
        printed["total_ns * 100.0 / sum(total_ns) OVER ()"] = "0.1"
    else:
        printed = {f"{s}_bytes / 1e6": "0.001" for s in statistics}
    return {
        name: [str(count), *map(_rounded, numbers, printed.values())]
        for name, count, *numbers in case.rows(
            f"SELECT name, count, {', '.join(printed)} FROM {view}"
        )
    }


def _rounded(number: float, step: str) -> str:
    exact = Decimal(number) if isinstance(number, int) else Decimal(repr(number))
    return str(exact.quantize(Decimal(step), ROUND_HALF_UP))


@pytest.mark.parametrize("name", sorted(ORACLE) or ["none"])
def test_every_summary_equals_that_of_nsys_to_the_last_digit(
    name: str, conformance: Path
) -> None:
    if not name.endswith(".sqlite"):
        recordings.need_nsys()
    case = recordings.read(conformance / "nsys" / name)
    for report, (view, label, number, unit) in SUMMARIES.items():
        path = conformance / "nsys" / "oracle" / name / f"{report}.csv"
        if path.is_file():
            assert _ours(case, view, unit) == _theirs(path, label, number, unit), report
        elif (name, view) not in NOT_REPORTED:  # no report is a report of nothing
            assert case.scalar(f"SELECT count(*) FROM {view}") == 0, report
