"""Every Nsight Systems export of the conformance data, exact to the ns."""

from __future__ import annotations

import csv
import re
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


def _report(conformance: Path, name: str, report: str) -> list[dict[str, str]]:
    path = conformance / "nsys" / "oracle" / name / f"{report}.csv"
    if not path.is_file():
        pytest.skip(f"nsys gave no {report} for {name}")
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", EXPORTS or ["none"])
@pytest.mark.parametrize(
    ("report", "view", "number"),
    [
        ("cuda_gpu_kern_sum", "kernel_summary", "Instances"),
        ("cuda_api_sum", "api_summary", "Num Calls"),
    ],
)
def test_summaries_equal_those_of_nsys(
    name: str, report: str, view: str, number: str, conformance: Path
) -> None:
    expected = {
        re.sub(r"_v\d{5}$", "", r["Name"]): (  # nsys takes off versions of four digits only
            [int(r[c]) for c in (number, "Total Time (ns)", "Min (ns)", "Max (ns)")],
            pytest.approx(
                [float(r[c]) for c in ("Avg (ns)", "Med (ns)", "StdDev (ns)")], abs=0.051
            ),
        )
        for r in _report(conformance, name, report)
    }
    case = recordings.read(conformance / "nsys" / name)
    measured = {
        n: ([count, total, low, high], [avg, med, dev])
        for n, count, total, low, high, avg, med, dev in case.rows(
            f"SELECT name, count, total_ns, min_ns, max_ns, avg_ns, med_ns, stddev_ns FROM {view}"
        )
    }
    assert measured == expected
