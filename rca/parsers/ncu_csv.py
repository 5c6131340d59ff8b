"""Nsight Compute's `ncu --csv`: metrics of profiled kernels, as series with the kernel's name.

A report has no start times, so its kernels cannot stand among the operations of a trace.
"""

from __future__ import annotations

import re
from pathlib import Path

from rca.parsers.csv_table import (
    CsvTable,
    Points,
    find_header,
    number_of,
    read_table,
)
from rca.parsers.format import Format, Head, Sink

_FIRST = ["ID", "Process ID", "Process Name"]
_LABELS = {
    "ID": "launch", "Process ID": "pid", "Process Name": "process", "Host Name": "host",
    "Kernel Name": "kernel", "Context": "context", "Stream": "stream", "Block Size": "block",
    "Grid Size": "grid", "Device": "device", "CC": "compute_capability", "Section Name": "section",
    "Kernel Time": "", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": "",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": "",
}  # fmt: skip
_LONG = {"Metric Name", "Metric Unit", "Metric Value"}
_UNIT = re.compile(r"([KMGT]?)(byte|hz)((?:/.*)?)", re.IGNORECASE)
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9} | {
    f"{prefix}second": factor
    for prefix, factor in {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}.items()
}


def base_unit(unit: str) -> tuple[float, str]:
    """Factor to the unit without a prefix, and that unit.

    ncu picks a prefix for every single value; without it, launches can be compared.
    """
    if unit in _TIMES:
        return _TIMES[unit], "s"
    head, _, per = unit.partition("/")
    if head == "cycle" and per in _TIMES:
        return 1 / _TIMES[per], "hz"
    if found := _UNIT.fullmatch(unit):
        factor = _PREFIX[found[1].lower()]
        span = found[3][1:]
        if span in _TIMES:
            return factor / _TIMES[span], found[2].lower() + "/s"
        return factor, found[2].lower() + found[3]
    return 1.0, unit


class _Reader:
    def __init__(self, ts_ns: int) -> None:
        self.points = Points()
        self.words = 0
        self._ts_ns = ts_ns

    def add(self, row: dict[str, str], name: str, unit: str, cell: str) -> None:
        """One metric of one launch."""
        labels = {label: row.get(column, "") for column, label in _LABELS.items() if label}
        if not name or not cell:
            return  # a line of advice, or a metric that was not collected
        found = number_of(cell)
        if found is None:
            self.words += 1
            return
        factor, base = base_unit(unit)
        series = "ncu_" + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        value = found.value * factor
        self.points.add(series, labels | {"metric": name}, self._ts_ns, value, unit=base)


def _read_long(table: CsvTable, reader: _Reader) -> None:
    for row in table.rows:
        reader.add(row, row["Metric Name"], row["Metric Unit"], row["Metric Value"])


def _read_wide(table: CsvTable, reader: _Reader) -> None:
    """`--page raw`: a column for each metric, and a first row that holds the units."""
    units = next((row for row in table.rows if not row["ID"]), {})
    for row in table.rows:
        if row["ID"]:
            for column, cell in row.items():
                if column not in _LABELS:
                    reader.add(row, column, units.get(column, ""), cell)


def _read(path: Path, sink: Sink) -> None:
    table = read_table(path, _is_header)
    reader = _Reader(path.stat().st_mtime_ns)
    (_read_long if set(table.header) >= _LONG else _read_wide)(table, reader)
    reader.points.write(sink, path)
    sink.describe(producer="Nsight Compute")
    launches = len({(row["Process ID"], row["ID"]) for row in table.rows if row["ID"]})
    sink.note(
        "warning",
        "no_start_times",
        "kernels without start times: their metrics are series at the file's modification time,"
        " not operations on a time line",
        count=launches,
    )
    if reader.words:
        message = "metrics whose values are words: left out"
        sink.note("info", "word_metric", message, count=reader.words)
    table.note_damage(sink)


def _is_header(cells: list[str]) -> bool:
    return cells[:3] == _FIRST and "Kernel Name" in cells


def _recognise(head: Head) -> bool:
    return find_header(head, _is_header) is not None


FORMAT = Format("ncu_csv", "metrics", _recognise, _read)
