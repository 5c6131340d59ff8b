"""Locust's `*_stats_history.csv` and `*_stats.csv`: what the load generator saw."""

from __future__ import annotations

import re
from pathlib import Path

from rca.parsers.csv_table import (
    Number,
    Points,
    find_header,
    note_cells,
    note_instant,
    number_of,
    read_table,
)
from rca.parsers.format import Format, Head, Sink
from rca.parsers.times import epoch_ns

_REQUESTS = ("total request count", "request count", "# requests")
_FAILURES = ("total failure count", "failure count", "# failures")
_MEAN = ("total average response time", "average response time")
# Series, its columns in any version's words, and what makes them seconds or plain numbers.
_GAUGES = (
    ("locust_users", ("user count",), 1.0),
    ("locust_requests_per_second", ("requests/s",), 1.0),
    ("locust_failures_per_second", ("failures/s",), 1.0),
    ("locust_response_mean_seconds", _MEAN, 1e-3),
    ("locust_response_median_seconds", ("total median response time", "median response time"), 1e-3),
    ("locust_response_min_seconds", ("total min response time", "min response time"), 1e-3),
    ("locust_response_max_seconds", ("total max response time", "max response time"), 1e-3),
    ("locust_response_bytes", ("total average content size", "average content size"), 1.0),
)  # fmt: skip
_PERCENTILE = re.compile(r"(\d{1,3}(?:\.\d+)?)%")
_ABSENT = {"", "N/A", "None"}


class _Row:
    """One row, columns by their names in lower case."""

    def __init__(self, cells: dict[str, str], bad: list[str]) -> None:
        self._cells = {name.lower(): cell for name, cell in cells.items()}
        self._bad = bad

    def text(self, *names: str) -> str:
        """The first of these columns that there is."""
        return next((self._cells[n] for n in names if n in self._cells), "")

    def number(self, *names: str) -> float | None:
        """The same as a number; None when it is absent or none."""
        cell = self.text(*names)
        if cell in _ABSENT:
            return None
        found: Number | None = number_of(cell)
        if found is None:
            self._bad.append(f"{names[-1]}: {cell}")
        return found.value if found else None

    def quantiles(self) -> list[tuple[str, float]]:
        """Quantile and ms of every percentile column with a value."""
        found = [(_PERCENTILE.fullmatch(name), name) for name in self._cells]
        told = [(m[1], self.number(name)) for m, name in found if m]
        return [(f"{float(p) / 100:.8g}", value) for p, value in told if value is not None]


def _add(points: Points, row: _Row, ts_ns: int) -> None:
    labels = {"method": row.text("type", "method"), "name": row.text("name")}
    for name, columns, scale in _GAUGES:
        value = row.number(*columns)
        if value is not None:
            points.add(name, labels, ts_ns, value * scale)
    requests, failures = row.number(*_REQUESTS), row.number(*_FAILURES)
    mean_ms = row.number(*_MEAN)
    if requests is not None:
        points.add("locust_requests_total", labels, ts_ns, requests, told="counter")
    if failures is not None:
        points.add("locust_failures_total", labels, ts_ns, failures, told="counter")
    if requests is not None and mean_ms is not None:
        # Totals since the start: as sum and count, they give the mean of any stretch of time.
        total_s = requests * mean_ms / 1e3
        points.add("locust_response_seconds_sum", labels, ts_ns, total_s, told="counter")
        points.add("locust_response_seconds_count", labels, ts_ns, requests, told="counter")
    for quantile, ms in row.quantiles():
        name = "locust_response_quantile_seconds"
        points.add(name, labels | {"quantile": quantile}, ts_ns, ms / 1e3)


def _read(path: Path, sink: Sink) -> None:
    table = read_table(path, _is_header)
    timed = table.header[0].lower() == "timestamp"
    modified_ns = path.stat().st_mtime_ns
    points, bad = Points(), []
    for cells in table.rows:
        ts_ns = epoch_ns(cells[table.header[0]]) if timed else modified_ns
        if ts_ns is None:
            bad.append(cells[table.header[0]])
        else:
            _add(points, _Row(cells, bad), ts_ns)
    points.write(sink, path)
    sink.describe(producer="Locust")
    if not timed:
        note_instant(sink, len(table.rows))
    note_cells(sink, bad)
    table.note_damage(sink)


def _is_header(cells: list[str]) -> bool:
    names = {cell.lower() for cell in cells}
    return (
        {"name", "requests/s"} <= names
        and bool(names & {"type", "method"})
        and bool(names & {*_REQUESTS})
    )


def _recognise(head: Head) -> bool:
    return find_header(Head(head.path, head.data[:8192]), _is_header) is not None


FORMAT = Format("locust_csv", "metrics", _recognise, _read)
