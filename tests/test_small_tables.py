"""Small tables that people attach: a few lines in, the expected series and notes out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.parsers import recognise
from rca.parsers.csv_table import number_of
from rca.parsers.stream import read_head
from rca.roles import assign

Read = Callable[..., Case]
_MODIFIED_NS = 1_700_000_123_456_789_012
_SAMPLES = """SELECT s.name, p.ts_ns, p.value FROM sample p JOIN series s ON s.id = p.series_id
ORDER BY s.name, p.ts_ns, p.value"""


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(_MODIFIED_NS, _MODIFIED_NS))
    return path


def _format(path: Path) -> str:
    return recognise(read_head(path)).name


def _notes(case: Case) -> dict[str, int]:
    return dict(case.rows("SELECT code, count FROM ingest_note"))


def _roles(case: Case) -> dict[str, float]:
    """Mean of each role's values."""
    assign(case)
    rows: list[Any] = case.rows("SELECT role, avg(value) FROM role_value GROUP BY role")
    return {role: value for role, value in rows if not role.startswith("metric:")}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("1,234.5", (1234.5, "")), ("71.20 W", (71.2, "W")), ("3 %", (3.0, "%")), ("1e3", (1000, "")),
     ("", None), ("N/A", None), ("0x04", (0.0, "x04")), ("1_000", None)],
)  # fmt: skip
def test_numbers_of_cells(cell: str, expected: Any) -> None:
    assert number_of(cell) == expected


_SMI = """timestamp, index, name, utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], \
power.draw [W], temperature.gpu, clocks_event_reasons.active, pstate, compute_mode
2024/05/03 10:00:00.125, 0, Some GPU, 98 %, 1000 MiB, 1410 MHz, 400.50 W, 71, 0x0000000000000004, P0, Default
2024/05/03 10:00:01.125, 0, Some GPU, 100 %, 1024 MiB, 1200 MHz, [N/A], 73, 0x0000000000000001, P2, Default
"""


@pytest.mark.parametrize("units", [True, False])
def test_nvidia_smi(units: bool, tmp_path: Path, read_files: Read) -> None:
    text = _SMI
    if not units:
        for unit in (" %,", " MiB,", " MHz,", " W,"):
            text = text.replace(unit, ",")
    path = _write(tmp_path / "gpu.csv", text + text.splitlines()[0] + "\n")
    assert _format(path) == "nvidia_smi_csv"
    case = read_files(path)
    first = 1_714_730_400_125_000_000
    found = case.rows(_SAMPLES)
    assert ("nvidia_smi_memory_used", first, 1000.0) in found
    assert ("nvidia_smi_pstate", first + 10**9, 2.0) in found
    assert len(found) == 13
    units_told = "SELECT DISTINCT unit FROM series WHERE name = 'nvidia_smi_power_draw'"
    assert case.scalar(units_told) == "W"
    assert case.rows("SELECT DISTINCT labels['gpu'], labels['name'] FROM series") == [
        ("0", "Some GPU")
    ]
    assert _notes(case) == {"no_time_zone": 1, "unsupported": 1}
    assert _roles(case) == {
        "gpu_util": 99.0, "gpu_memory": 1012 * 2.0**20, "sm_clock": 1305.0, "gpu_power": 400.5,
        "gpu_temperature": 72.0, "gpu_throttled": 0.5,
    }  # fmt: skip


def test_nvidia_smi_loop_without_times(tmp_path: Path, read_files: Read) -> None:
    text = (
        "index, clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown\n"
        "0, Not Active, Not Active\n1, Not Active, Active\n"
        "0, Active, Active\n1, Not Active, Not Active\n0, Act"
    )
    case = read_files(_write(tmp_path / "loop.csv", text))
    mask = """SELECT s.labels['gpu'], p.ts_ns, p.value FROM sample p JOIN series s ON s.id = p.series_id
    WHERE s.name = 'nvidia_smi_clocks_event_reasons_active' ORDER BY 1"""
    assert case.rows(mask) == [("0", _MODIFIED_NS, 68.0), ("1", _MODIFIED_NS, 0.0)]
    notes = _notes(case)
    assert notes["no_timestamps"] == 2
    assert notes["rows_without_times"] == 2
    assert notes["bad_row"] == 1
    assert case.scalar("SELECT status FROM source") == "salvaged"


_HISTORY = """"Timestamp","User Count","Type","Name","Requests/s","Failures/s","50%","99.9%",\
"Total Request Count","Total Failure Count","Total Average Response Time"
1700000000,0,"","Aggregated",0,0,N/A,N/A,0,0,0
1700000010,8,"POST","/v1/chat",2.0,0.1,150,900,20,1,200.5
1700000010,8,"","Aggregated",2.0,0.1,150,900,20,1,200.5
1700000020,8,"","Aggregated",2.0,0.3,250,950,40,4,300.25
"""


def test_locust_history(tmp_path: Path, read_files: Read) -> None:
    path = _write(tmp_path / "a_stats_history.csv", _HISTORY)
    assert _format(path) == "locust_csv"
    case = read_files(path)
    quantile = """SELECT p.ts_ns, p.value FROM sample p JOIN series s ON s.id = p.series_id
    WHERE s.labels['quantile'] = '0.999' AND s.labels['name'] = 'Aggregated' ORDER BY 1"""
    assert case.rows(quantile) == [
        (1_700_000_010 * 10**9, 0.9), (1_700_000_020 * 10**9, 0.95),
    ]  # fmt: skip
    assert _notes(case) == {}
    assign(case)
    values = "SELECT ts_ns // 1000000000 % 100, value FROM role_value WHERE role = ? ORDER BY 1"
    assert case.rows(values, ("gateway_latency",)) == [
        (10, pytest.approx(0.2005)), (20, pytest.approx(0.4)),
    ]  # fmt: skip
    assert case.rows(values, ("error_rate",)) == [(10, 0.1), (20, 0.3)]
    assert case.rows(values, ("arrival_rate",)) == [(10, 2.0), (20, 2.0)]


def test_locust_stats_are_one_instant(tmp_path: Path, read_files: Read) -> None:
    text = (
        "Type,Name,Request Count,Failure Count,Average Response Time,Requests/s,50%,100%\n"
        'GET,"/a, b",3,1,20,0.5,10,x\n,Aggregated,3,1,20,0.5,10,40\n'
    )
    case = read_files(_write(tmp_path / "a_stats.csv", text))
    assert case.rows("SELECT DISTINCT ts_ns FROM sample") == [(_MODIFIED_NS,)]
    names = "SELECT DISTINCT labels['name'] FROM series ORDER BY 1"
    assert case.rows(names) == [("/a, b",), ("Aggregated",)]
    assert _notes(case) == {"no_timestamps": 2, "bad_cell": 1}


def test_perf_analyzer(tmp_path: Path, read_files: Read) -> None:
    text = (
        "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Cache Hit,Client Recv,p50 latency,p99 latency,Avg latency,Avg GPU Utilization\n"
        "1,50.5,12,200,30,3,1,20000,25000,21000,GPU-a:0.5;GPU-b:0.75;\n"
        "2,80,14,210,4000,5,1,24000,30000,24500,GPU-a:0.9;\n"
    )
    path = _write(tmp_path / "perf.csv", text)
    assert _format(path) == "perf_analyzer_csv"
    case = read_files(path)
    found = case.rows(
        """SELECT s.name, s.labels['quantile'], s.labels['gpu'], p.value
        FROM sample p JOIN series s ON s.id = p.series_id
        WHERE s.labels['concurrency'] = '1' ORDER BY ALL"""
    )
    assert found == [
        ("perf_analyzer_avg_gpu_utilization", None, "GPU-a", 0.5),
        ("perf_analyzer_avg_gpu_utilization", None, "GPU-b", 0.75),
        ("perf_analyzer_avg_latency_seconds", None, None, 0.021),
        ("perf_analyzer_client_recv_seconds", None, None, 1e-6),
        ("perf_analyzer_client_send_seconds", None, None, 12e-6),
        ("perf_analyzer_inferences_per_second", None, None, 50.5),
        ("perf_analyzer_latency_seconds", "0.5", None, 0.02),
        ("perf_analyzer_latency_seconds", "0.99", None, 0.025),
        ("perf_analyzer_network_server_send_recv_seconds", None, None, 0.0002),
        ("perf_analyzer_server_cache_hit", None, None, 3.0),
        ("perf_analyzer_server_queue_seconds", None, None, 30e-6),
    ]
    assert _notes(case) == {"no_timestamps": 2}
