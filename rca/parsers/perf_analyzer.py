"""perf_analyzer's CSV (`-f`): one row for each load that Triton's load generator tried."""

from __future__ import annotations

import re
from pathlib import Path

from rca.parsers.csv_table import (
    Points,
    find_header,
    note_cells,
    note_instant,
    number_of,
    read_table,
)
from rca.parsers.format import Format, Head, Sink

# Columns that say what was tried; all others are what came of it.
_LOADS = {
    "concurrency": "concurrency",
    "request rate": "request_rate",
    "batch size": "batch_size",
    "model": "model",
}
_SHARED = {"inferences/second", "client send"}
_MICROSECONDS = re.compile(
    r"(?:client (?:send|recv)|network\+server send/recv|server .*|(?:p\d+|avg) latency"
    r"|request/response|response wait|avg time to first response)"
)
_PERCENTILE = re.compile(r"p(\d+) latency")
_PER_GPU = re.compile(r"([^:;]+):([^:;]+)")


def _name(column: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", column.replace("/second", " per second")).strip("_")
    return f"perf_analyzer_{words}"


def _add(points: Points, column: str, cell: str, labels: dict[str, str], ts_ns: int) -> bool:
    """Add a cell; False when it holds no number."""
    found = number_of(cell)
    if found is None:
        return False
    if percentile := _PERCENTILE.fullmatch(column):
        labels = labels | {"quantile": f"{int(percentile[1]) / 100:.4g}"}
        column = "latency"
    if percentile or _MICROSECONDS.fullmatch(column):
        points.add(_name(column) + "_seconds", labels, ts_ns, found.value / 1e6, unit="s")
    else:
        points.add(_name(column), labels, ts_ns, found.value)
    return True


def _read(path: Path, sink: Sink) -> None:
    table = read_table(path, _is_header)
    ts_ns = path.stat().st_mtime_ns
    points, bad = Points(), []
    for row in table.rows:
        labels = {_LOADS[c.lower()]: v for c, v in row.items() if c.lower() in _LOADS}
        for column, cell in row.items():
            name = column.lower()
            if name in _LOADS or not cell:
                continue
            pairs = _PER_GPU.findall(cell)
            told = [(v, labels | {"gpu": gpu}) for gpu, v in pairs] or [(cell, labels)]
            for text, marked in told:
                if not _add(points, name, text, marked, ts_ns):
                    bad.append(f"{column}: {text}")
    points.write(sink, path)
    sink.describe(producer="perf_analyzer")
    note_instant(sink, len(table.rows))
    note_cells(sink, bad)
    table.note_damage(sink)


def _is_header(cells: list[str]) -> bool:
    return {cell.lower() for cell in cells} >= _SHARED


def _recognise(head: Head) -> bool:
    return find_header(Head(head.path, head.data[:8192]), _is_header) is not None


FORMAT = Format("perf_analyzer_csv", "metrics", _recognise, _read)
