"""Small tables that people attach: a few lines in, the expected series and notes out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.parsers import recognise
from rca.parsers.csv_table import number_of
from rca.parsers.ncu_csv import base_unit
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


def test_gpus_of_one_sweep_of_nvidia_smi_add_up(tmp_path: Path, read_files: Read) -> None:
    """Each line has the time at which its GPU was read, a few milliseconds apart."""
    lines = [
        "timestamp, index, memory.used [MiB]",
        *(f"2024/05/03 13:33:{second}.1{gpu}5, {gpu}, {1000 + gpu} MiB" for second in (20, 21) for gpu in (0, 1)),
    ]  # fmt: skip
    case = read_files(_write(tmp_path / "gpus.csv", "\n".join(lines) + "\n"))
    assign(case)
    first = case.scalar("SELECT min(ts_ns) FROM sample")
    assert first % 10**9 == 105_000_000
    assert case.rows("SELECT ts_ns - ?, value / 1048576 FROM role_value ORDER BY 1", (first,)) == [
        (0, 2001.0), (10**9, 2001.0),
    ]  # fmt: skip


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
        ("perf_analyzer_server_cache_hit_seconds", None, None, 3e-6),
        ("perf_analyzer_server_queue_seconds", None, None, 30e-6),
    ]
    assert _notes(case) == {"no_timestamps": 2}
    assert assign(case) == 0


_NCU = """some output of the program
==PROF== Connected to process 7
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Section Name",\
"Metric Name","Metric Unit","Metric Value","Rule Name"
"0","7","python","h","gemm<float, 2>(int)","1","7","Speed","Duration","us","1,234.50",""
"0","7","python","h","gemm<float, 2>(int)","1","7","Speed","DRAM Frequency","Ghz","2.5",""
"0","7","python","h","gemm<float, 2>(int)","1","7","Speed","","","","advice"
"1","7","python","h","softmax(int)","1","7","Speed","Duration","ms","2",""
"1","7","python","h","softmax(int)","1","7","Launch","Cache Config","","PreferNone",""
"1","7","pyth"""
_OF_KERNELS = """SELECT s.name, s.labels['kernel'], s.unit, p.ts_ns, p.value
FROM sample p JOIN series s ON s.id = p.series_id ORDER BY ALL"""


def test_ncu_details(tmp_path: Path, read_files: Read) -> None:
    path = _write(tmp_path / "ncu.csv", _NCU)
    assert _format(path) == "ncu_csv"
    case = read_files(path)
    gemm = "gemm<float, 2>(int)"
    assert case.rows(_OF_KERNELS) == [
        ("ncu_DRAM_Frequency", gemm, "hz", _MODIFIED_NS, 2.5e9),
        ("ncu_Duration", gemm, "s", _MODIFIED_NS, pytest.approx(0.0012345)),
        ("ncu_Duration", "softmax(int)", "s", _MODIFIED_NS, 0.002),
    ]
    assert case.scalar("SELECT count(*) FROM gpu_op") == 0
    assert assign(case) == 0
    assert _notes(case) == {"no_start_times": 2, "word_metric": 1, "bad_row": 1}


def test_ncu_raw_page(tmp_path: Path, read_files: Read) -> None:
    text = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Device","CC",'
        '"dram__bytes.sum.per_second","gpu__time_duration.sum"\n'
        '"","","","","","","","Gbyte/second","nsecond"\n'
        '"0","7","python","h","k","0","9.0","1,500.5","800"\n'
    )
    case = read_files(_write(tmp_path / "raw.csv", text))
    assert case.rows(_OF_KERNELS) == [
        ("ncu_dram_bytes_sum_per_second", "k", "byte/s", _MODIFIED_NS, 1.5005e12),
        ("ncu_gpu_time_duration_sum", "k", "s", _MODIFIED_NS, pytest.approx(8e-7)),
    ]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("Kbyte/block", (1e3, "byte/block")), ("cycle/nsecond", (1e9, "hz")), ("%", (1.0, "%")),
     ("Mbyte", (1e6, "byte")), ("inst", (1.0, "inst")), ("byte/us", (1e6, "byte/s"))],
)  # fmt: skip
def test_units_without_prefixes(unit: str, expected: tuple[float, str]) -> None:
    factor, base = base_unit(unit)
    assert (factor, base) == (pytest.approx(expected[0]), expected[1])


def _result(date: str | None) -> dict[str, Any]:
    told = {"date": date} if date else {}
    return told | {
        "backend": "vllm", "model_id": "m", "num_prompts": 8, "request_rate": "inf",
        "max_concurrency": None, "duration": 4.0, "completed": 8, "request_throughput": 2.0,
        "output_throughput": 256.0, "ttfts": [0.1, 0.2], "errors": [], "mean_ttft_ms": 150.0,
        "p99_ttft_ms": 199.0, "mean_itl_ms": 12.5, "mean_e2el_ms": 900.0,
    }  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_bench_serve(indent: int | None, tmp_path: Path, read_files: Read) -> None:
    path = _write(tmp_path / "r.json", json.dumps(_result("20231114-221320"), indent=indent))
    assert _format(path) == "bench_serve_json"
    case = read_files(path)
    assert case.rows("SELECT DISTINCT ts_ns FROM sample") == [(1_700_000_000 * 10**9,)]
    rates = "SELECT DISTINCT labels['request_rate'], labels['model_id'] FROM series"
    assert case.rows(rates) == [("inf", "m")]
    assert ("bench_serve_p99_ttft_ms", 1_700_000_000 * 10**9, 199.0) in case.rows(_SAMPLES)
    assert _notes(case) == {"no_time_zone": 1, "per_request": 1}
    assert _roles(case) == {
        "ttft": 0.15, "itl": 0.0125, "e2e_latency": 0.9, "generation_throughput": 256.0,
        "finish_rate": 2.0,
    }  # fmt: skip


def test_bench_serve_appended_and_cut(tmp_path: Path, read_files: Read) -> None:
    lines = [
        json.dumps(_result("20231114-221320")),
        json.dumps(_result(None)),
        '{"date": "2023',
    ]
    case = read_files(_write(tmp_path / "r.json", "\n".join(lines)))
    times = case.rows("SELECT DISTINCT ts_ns FROM sample ORDER BY 1")
    assert times == [(1_700_000_000 * 10**9,), (_MODIFIED_NS,)]
    notes = _notes(case)
    assert notes["no_timestamps"] == 1
    assert notes["bad_line"] == 1
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_bench_serve_cut_in_its_only_object(tmp_path: Path, read_files: Read) -> None:
    text = json.dumps(_result("20231114-221320"), indent=1)
    case = read_files(_write(tmp_path / "r.json", text[: text.index('"mean_itl_ms"')]))
    found = {row[0] for row in case.rows(_SAMPLES)}
    assert "bench_serve_mean_ttft_ms" in found
    assert "bench_serve_mean_itl_ms" not in found
    assert _notes(case)["truncated"] == 1
