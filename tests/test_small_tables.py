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
