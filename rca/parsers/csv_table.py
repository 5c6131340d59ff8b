"""Small tables as CSV: the rows below a header, and the series that are made of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Head, Sink
from rca.parsers.metric_rows import Samples, SeriesRows, write_samples
from rca.parsers.stream import read_all
from rca.parsers.text_lines import full_lines

_LIMIT_BYTES = 268_435_456
_NUMBER = re.compile(
    r"([-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*((?:[^\W\d_]|[%°]).*)?"
)
_MAX_HEADER_LINES = 2_000

IsHeader = Callable[[list[str]], bool]
"""Whether the cells of a line, blanks around them cut off, are the header of a table."""


class Number(NamedTuple):
    """A number in a cell and the unit behind it, '' when there is none."""

    value: float
    unit: str


def number_of(cell: str) -> Number | None:
    """The number in a cell; None when it is none. Commas part thousands."""
    found = _NUMBER.fullmatch(cell.strip())
    if found is None:
        return None
    return Number(float(found[1].replace(",", "")), (found[2] or "").strip())


@dataclass(frozen=True)
class CsvTable:
    """A table as it is in a file.

    Attributes:
        header: Names of the columns.
        rows: Rows of as many cells as the header has; headers that come again are left out.
        broken: Rows of another length, as they are written.
        damage: What was wrong with the file; None for a sound one.
    """

    header: list[str]
    rows: list[dict[str, str]]
    broken: list[str]
    damage: str | None

    def note_damage(self, sink: Sink) -> None:
        """Say what of the table was not kept."""
        if self.broken:
            sink.note(
                "warning",
                "bad_row",
                "rows that are cut or have too many cells",
                count=len(self.broken),
                example=self.broken[0][:120],
                lost=True,
            )
        if self.damage:
            sink.note("warning", "truncated", self.damage, lost=True)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def find_header(head: Head, is_header: IsHeader) -> list[str] | None:
    """The header of a table in the head of a file, which may begin with other lines."""
    lines = full_lines(head)[:_MAX_HEADER_LINES]
    return next((cells for line in lines if is_header(cells := _cells(line))), None)


def read_table(path: Path, is_header: IsHeader) -> CsvTable:
    """The table of a file, lines above its header left out.

    Raises:
        ParseError: There is no header, or nothing below it.
    """
    data, damage = read_all(path, _LIMIT_BYTES)
    text = data.decode("utf-8-sig", "replace").replace("\0", "")
    header: list[str] = []
    rows, broken = [], []
    try:
        for found in csv.reader(io.StringIO(text, newline=""), skipinitialspace=True):
            cells = [cell.strip() for cell in found]
            if is_header(cells):
                header = header or cells
                if cells != header:
                    broken.append(",".join(cells))
            elif header and len(cells) == len(header):
                rows.append(dict(zip(header, cells, strict=True)))
            elif header and any(cells):
                broken.append(",".join(cells))
    except csv.Error as error:
        damage = f"CSV is damaged: {error}"
    if not rows:
        raise ParseError("has a header and no rows below it", path=str(path))
    return CsvTable(header, rows, broken, damage)


class Points:
    """Collects samples of series and writes them at once."""

    def __init__(self) -> None:
        self._series = SeriesRows()
        self._ids: list[int] = []
        self._times: list[int] = []
        self._values: list[float] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(
        self,
        name: str,
        labels: Mapping[str, str],
        ts_ns: int,
        value: float,
        *,
        unit: str | None = None,
        told: str = "gauge",
    ) -> None:
        """One sample of the series of this name; labels without a value are left out."""
        full = {"__name__": name} | {k: v for k, v in labels.items() if v}
        self._ids.append(self._series.number(full, told=told, unit=unit))
        self._times.append(ts_ns)
        self._values.append(value)

    def write(self, sink: Sink, path: Path) -> None:
        """Everything to the sink.

        Raises:
            ParseError: There is nothing to write.
        """
        if not self._ids:
            raise ParseError("holds no numbers that can be read", path=str(path))
        self._series.write(sink)
        columns = np.array(self._ids, "i8"), np.array(self._times, "i8"), np.array(self._values)
        write_samples(sink, Samples(*columns), self._series)
        sink.count_elements(len(self))


def note_instant(sink: Sink, count: int) -> None:
    """Say that rows have no times of their own."""
    sink.note(
        "warning",
        "no_timestamps",
        "rows without times: taken as one instant, the file's modification time",
        count=count,
    )


def note_cells(sink: Sink, cells: Sequence[str]) -> None:
    """Say which cells hold no number where a number belongs."""
    if not cells:
        return
    sink.note(
        "warning",
        "bad_cell",
        "cells that are no numbers",
        count=len(cells),
        example=cells[0][:120],
        lost=True,
    )
    sink.count_elements(len(cells))


def note_zone(sink: Sink) -> None:
    """Say that times name no zone."""
    sink.note(
        "warning",
        "no_time_zone",
        "times are local to the machine and name no zone: taken for UTC",
    )
