"""`nvidia-smi --query-gpu=... --format=csv`: one row a GPU and time, units in header or cells."""

from __future__ import annotations

import re
from pathlib import Path

from rca.parsers.csv_table import (
    CsvTable,
    Points,
    find_header,
    note_cells,
    note_instant,
    note_zone,
    number_of,
    read_table,
)
from rca.parsers.format import Format, Head, Sink
from rca.parsers.times import iso_ns

_FIELD = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*)(?:\s\[([^\]]+)\])?")
_MEASURE = re.compile(
    r"(?:utilization|memory|temperature|power|clocks|clocks_(?:event|throttle)_reasons|ecc\.errors"
    r"|fan|pcie\.link|encoder\.stats|retired_pages|remapped_rows)\.[a-z0-9_.]+"
    r"|used_(?:gpu_)?memory"
)
_LABELS = {
    "index": "gpu",
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci_bus_id",
    "gpu_serial": "serial",
} | {
    name: name.replace(".", "_")
    for name in (
        "name", "uuid", "serial", "pci.bus_id", "driver_version", "vbios_version", "compute_mode",
        "compute_cap", "pid", "process_name", "mig.mode.current", "persistence_mode",
    )
}  # fmt: skip
# What drivers call a field in the header, where a query or an older driver says it otherwise.
_SAME = {
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "used_gpu_memory": "used_memory",
}
_ABSENT = re.compile(
    r"\[?(?:N/A|Not Supported|Unknown Error|Insufficient Permissions)\]?|\[.*\]|"
)
_WORDS = {
    "Active": 1.0,
    "Not Active": 0.0,
    "Enabled": 1.0,
    "Disabled": 0.0,
    "Yes": 1.0,
    "No": 0.0,
}
_SWEEP_NS = 500_000_000
"""Longer than it takes to read all GPUs once."""
_REASON = "clocks_event_reasons."
# Bits of nvmlClocksEventReasons for the columns that tell one reason each.
_BITS = {
    "gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
    "sync_boost": 0x10, "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}  # fmt: skip


def _field(column: str) -> tuple[str, str]:
    """Name and unit that a column's header tells."""
    found = _FIELD.fullmatch(column)
    if found is None:
        return column, ""
    name = found[1].replace("clocks_throttle_reasons.", _REASON)
    return _SAME.get(name, name), found[2] or ""


def _value(cell: str) -> tuple[float, str] | None:
    if cell in _WORDS:
        return _WORDS[cell], ""
    if re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", cell):
        return float(int(cell, 16)), ""
    return number_of(cell.removeprefix("P") if re.fullmatch(r"P\d+", cell) else cell)


def _series_name(field: str) -> str:
    return "nvidia_smi_" + field.replace(".", "_")


class _Reader:
    def __init__(self, table: CsvTable, modified_ns: int) -> None:
        self.fields = {column: _field(column) for column in table.header}
        self.timed = "timestamp" in table.header
        self.points = Points()
        self.absent = self.composed = 0
        self.bad: list[str] = []
        self._modified_ns = modified_ns
        self._sweep: set[tuple[tuple[str, str], ...]] = set()
        self._sweep_ns = 0
        rows = table.rows
        values = [c for c in table.header if c != "timestamp" and c not in _LABELS]
        # A column of words alone, such as a mode, is no measure.
        self.values = [c for c in values if any(_value(row[c]) is not None for row in rows)]

    def labels(self, row: dict[str, str]) -> dict[str, str]:
        """Labels in a row: what names the GPU or process."""
        return {_LABELS[c]: v for c, v in row.items() if c in _LABELS and v != "[N/A]"}

    def read(self, row: dict[str, str]) -> None:
        """All values of a row."""
        ts_ns = iso_ns(row["timestamp"].replace("/", "-")) if self.timed else self._modified_ns
        if ts_ns is None:
            self.bad.append(row["timestamp"])
            return
        labels = self.labels(row)
        ts_ns = self._time_of_sweep(labels, ts_ns)
        mask: int | None = None
        for column in self.values:
            field, unit = self.fields[column]
            found = _value(row[column])
            if found is None:
                self._miss(column, row[column])
                continue
            bit = _BITS.get(field.removeprefix(_REASON)) if field.startswith(_REASON) else None
            if bit is not None:
                mask = (mask or 0) | (bit if found[0] else 0)
            self.points.add(_series_name(field), labels, ts_ns, found[0], unit=unit or found[1])
        if mask is not None and not any(
            f == _REASON + "active" for f, _ in self.fields.values()
        ):
            self.points.add(_series_name(_REASON + "active"), labels, ts_ns, float(mask))
            self.composed += 1

    def _time_of_sweep(self, labels: dict[str, str], ts_ns: int) -> int:
        """The time of the sweep's first row: GPUs are read one after the other, and what they hold adds up."""
        key = tuple(labels.items())
        if key in self._sweep or not 0 <= ts_ns - self._sweep_ns <= _SWEEP_NS:
            self._sweep, self._sweep_ns = set(), ts_ns
        self._sweep.add(key)
        return self._sweep_ns

    def _miss(self, column: str, cell: str) -> None:
        if _ABSENT.fullmatch(cell):
            self.absent += 1
        else:
            self.bad.append(f"{column}: {cell}")


def _latest(reader: _Reader, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The last row of each GPU: without times, only that one can be near the file's own time."""
    return list({tuple(reader.labels(row).items()): row for row in rows}.values())


def _read(path: Path, sink: Sink) -> None:
    table = read_table(path, _is_header)
    reader = _Reader(table, path.stat().st_mtime_ns)
    rows = table.rows if reader.timed else _latest(reader, table.rows)
    for row in rows:
        reader.read(row)
    reader.points.write(sink, path)
    sink.describe(producer="nvidia-smi")
    if reader.timed:
        note_zone(sink)
    else:
        note_instant(sink, len(rows))
    if len(rows) < len(table.rows):
        sink.note(
            "warning",
            "rows_without_times",
            "earlier rows of a loop without `timestamp`: when they were is not known",
            count=len(table.rows) - len(rows),
            lost=True,
        )
    if reader.composed:
        sink.note(
            "info",
            "reasons_composed",
            "the mask of clock event reasons is put together from the columns of single reasons",
            count=reader.composed,
        )
    if reader.absent:
        message = "values that the driver does not report"
        sink.note("info", "unsupported", message, count=reader.absent)
    note_cells(sink, reader.bad)
    table.note_damage(sink)


def _is_header(cells: list[str]) -> bool:
    found = [_FIELD.fullmatch(cell) for cell in cells]
    return bool(cells) and all(found) and any(f and _MEASURE.fullmatch(f[1]) for f in found)


def _recognise(head: Head) -> bool:
    return find_header(Head(head.path, head.data[:8192]), _is_header) is not None


FORMAT = Format("nvidia_smi_csv", "metrics", _recognise, _read)
