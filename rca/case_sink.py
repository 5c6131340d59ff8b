"""Where the rows of one source go on their way into a case."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl

from rca.case import Case
from rca.parsers.format import Rows

_BATCH_BYTES = 33_554_432
SERIES_A_SOURCE = 2**32
"""Series ids that each numbered source has for itself."""


@dataclass
class _Note:
    level: str
    message: str
    count: int
    example: str | None


@dataclass
class CaseSink:
    """The Sink of one source: adds its number, keeps its notes, counts its rows.

    Rows wait until there are enough for one statement, which a thread runs while the parser reads
    on. Use `with`: in the end all is written, and where it failed nothing is being written still.
    """

    case: Case
    source_id: int
    n_rows: int = 0
    n_elements: int = 0
    lost: bool = False
    notes: dict[str, _Note] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    series_offset: int | None = None
    _waiting: dict[str, list[Rows]] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _writer: ThreadPoolExecutor | None = None
    _under_way: Future[int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._settle()
                self.n_rows += self._write(self._taken())
        finally:
            if self._writer is not None:
                self._writer.shutdown()  # the connection is the caller's alone from here on

    def insert(self, table: str, rows: Rows) -> None:
        """See Sink. What went wrong with earlier rows may be raised here."""
        if isinstance(rows, Path | pl.DataFrame):
            self._write_beside([*self._taken(), (table, rows)])
            return
        waiting = self._waiting.get(table)
        if waiting and waiting[0].schema != rows.schema:
            self._write_beside(self._taken())
        self._waiting.setdefault(table, []).append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > _BATCH_BYTES:
            self._write_beside(self._taken())

    def _taken(self) -> list[tuple[str, Rows]]:
        """The rows that wait, with their table; none wait any more."""
        import pyarrow as pa

        taken = [(table, pa.concat_tables(parts)) for table, parts in self._waiting.items()]
        self._waiting.clear()
        self._waiting_bytes = 0
        return taken

    def _write_beside(self, rows: list[tuple[str, Rows]]) -> None:
        """Write rows while the caller goes on, once those before them are written."""
        self._settle()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1)
        self._under_way = self._writer.submit(self._write, rows)

    def _settle(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self.n_rows += under_way.result()

    def _write(self, rows: list[tuple[str, Rows]]) -> int:
        written = 0
        for table, part in rows:
            constants: dict[str, Any] = {}
            if table in ("series", "sample", "histogram_sample"):
                constants["series_offset"] = self._first_series()
            if table not in ("sample", "histogram_sample"):
                constants["source_id"] = self.source_id
            written += self.case.insert(table, part, **constants)
        return written

    def _first_series(self) -> int:
        if self.series_offset is None:
            first = self.case.scalar("SELECT coalesce(max(id) + 1, 0) FROM series")
            self.series_offset = int(first)
        return self.series_offset

    def note(
        self,
        level: str,
        code: str,
        message: str,
        *,
        count: int = 1,
        example: str | None = None,
        lost: bool = False,
    ) -> None:
        """See Sink."""
        self.lost |= lost
        if code in self.notes:
            self.notes[code].count += count
        else:
            self.notes[code] = _Note(level, message, count, example)

    def describe(self, **facts: Any) -> None:
        """See Sink."""
        self.facts.update({k: v for k, v in facts.items() if v is not None})

    def count_elements(self, n: int) -> None:
        """See Sink."""
        self.n_elements += n

    @property
    def status(self) -> str:
        """'salvaged', 'empty' or 'ok'."""
        if self.lost:
            return "salvaged"
        return "ok" if self.n_rows else "empty"
