"""Nsight Systems' SQLite exports, schema 2.9 to 3.25 and what is near it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from rca.errors import ParseError
from rca.parsers import nsys_sqlite_metrics as gpu_metrics
from rca.parsers.format import Format, Head, Sink
from rca.parsers.nsys_sqlite_cut import readable
from rca.parsers.nsys_sqlite_rows import (
    NO_STRINGS,
    RowWriter,
    batches,
    decoded,
    immutable_uri,
    is_damage,
    read_strings,
)
from rca.parsers.nsys_sqlite_tables import NAMES, SELECTIONS, Selection

_MAGIC = b"SQLite format 3\x00"
# A view or a computed column can give rows without end and values of any size from a small file.
_STORED_TABLES = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
)
_COMPUTED = f"""
    SELECT name FROM sqlite_master WHERE type = 'view' UNION ALL
    SELECT t.name FROM ({_STORED_TABLES}) AS t, pragma_table_xinfo(t.name) AS c
    WHERE c.hidden IN (2, 3)"""
_AGAIN = "export it again where it was recorded: nsys export --type sqlite FILE"
_KNOWN = (
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    "CUPTI_ACTIVITY_KIND_",
    "NVTX_EVENTS",
    "OSRT_API",
)
_YEAR_2001_NS = 1_000_000_000_000_000_000


def recognise(head: Head) -> bool:
    """Whether it is an SQLite database; whose it is shows only in its tables."""
    return head.data.startswith(_MAGIC)


def read(path: Path, sink: Sink) -> None:
    """Write the export to the sink.

    Raises:
        ParseError: It is no export of Nsight Systems, is damaged, or is being written.
    """
    _stop_if_written(path, str(path))
    with readable(path, sink) as file:
        read_export(file, sink, name=str(path))


def read_export(file: Path, sink: Sink, *, name: str) -> None:
    """The same for an export that is neither compressed nor cut; `name` is what messages call it."""
    _stop_if_written(file, name)
    import adbc_driver_manager

    try:
        with closing(_connect(file)) as db:
            _Export(db, file, sink, name).read()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: of a damaged message
        raise ParseError(
            f"cannot be read as SQLite: {error}", path=name, hint=_AGAIN
        ) from error
    except adbc_driver_manager.Error as error:
        line = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise ParseError(f"cannot be read as SQLite: {line}", path=name, hint=_AGAIN) from error


def _stop_if_written(file: Path, name: str) -> None:
    for suffix in ("-journal", "-wal"):
        other = file.with_name(file.name + suffix)
        if other.is_file() and other.stat().st_size:
            raise ParseError(
                f"is being written, {other.name} lies beside it",
                path=name,
                hint="wait for nsys to end",
            )


def _connect(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(immutable_uri(file), uri=True)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


class _Export:
    """One export on its way to the sink."""

    def __init__(self, db: sqlite3.Connection, file: Path, sink: Sink, name: str) -> None:
        self._db, self._file, self._sink, self._name = db, file, sink, name
        self._tables = {str(r[0]) for r in self._rows(_STORED_TABLES)}
        if any(name.startswith(_KNOWN) for (name,) in self._rows(_COMPUTED)):
            raise ParseError(
                "computes values instead of holding them, which no export does",
                path=name, hint=_AGAIN,
            )  # fmt: skip
        self._has_strings = "StringIds" in self._tables
        self._damaged: dict[str, str] = {}  # tables, and what SQLite says of them

    def read(self) -> None:
        if not any(t.startswith(_KNOWN) for t in self._tables):
            raise ParseError(
                "is an SQLite database, but no export of Nsight Systems", path=self._name
            )
        base_ns = self._describe()
        self._strings = NO_STRINGS
        if self._has_strings:
            self._strings = read_strings(self._file, partial(self._lost, "StringIds"))
        self._read_names()
        writer = RowWriter(self._sink, self._domains())
        found = [self._copy(s, base_ns or 0, writer) for s in SELECTIONS]
        n_metrics = self._read_gpu_metrics(base_ns or 0)
        self._tell_damage(is_all=not (sum(found) or n_metrics))
        if not any(found[:4]):
            self._sink.note("warning", "no_gpu_events", "no GPU work was recorded in it")
        if found[3]:
            self._sink.note(
                "warning", "graph_level",
                "CUDA graphs were traced as a whole, one row a launch; their kernels need --cuda-graph-trace=node",
                count=found[3],
            )  # fmt: skip

    def _rows(self, query: str, table: str | None = None) -> list[Any]:
        """Rows of a query; none where the table is named and damaged."""
        try:
            return self._db.execute(query).fetchall()
        except sqlite3.Error as error:
            if table is None or not is_damage(error):
                raise
            self._lost(table, str(error))
            return []

    def _lost(self, table: str, problem: str) -> None:
        self._damaged.setdefault(table, problem)

    def _tell_damage(self, *, is_all: bool) -> None:
        """Say which tables are damaged.

        Raises:
            ParseError: They are all that there was.
        """
        if not self._damaged:
            return
        table, problem = next(iter(self._damaged.items()))
        if is_all:
            raise ParseError(
                f"cannot be read as SQLite: {problem}, and no table has a row before the damage",
                path=self._name, hint=_AGAIN,
            )  # fmt: skip
        self._sink.note(
            "error", "damaged_table", f"tables that are damaged ({problem}): rows before the damage were kept",
            count=len(self._damaged), example=table, lost=True,
        )  # fmt: skip

    def _table(self, name: str) -> str | None:
        """The table as this export calls it; some carry a version, as in NVTX_EVENTS_V2."""
        if name in self._tables:
            return name
        versions = [t for t in self._tables if re.fullmatch(re.escape(name) + r"_V\d+", t)]
        return max(versions, key=lambda t: int(t.rpartition("_V")[2])) if versions else None

    def _columns(self, table: str) -> set[str]:
        return {str(r[1]) for r in self._rows(f'PRAGMA table_info("{table}")')}

    def _value(self, table: str, column: str, where: str = "") -> Any:
        if table not in self._tables or column not in self._columns(table):
            return None
        rows = self._rows(f'SELECT "{column}" FROM "{table}" {where} LIMIT 1', table)
        return rows[0][0] if rows else None

    def _describe(self) -> int | None:
        """Say what made the file; returns the UTC time that its times count from, None when unknown."""
        version = None
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            version = version or self._value(
                table, "value", "WHERE name = 'EXPORT_PRODUCT_VERSION'"
            )
        stored = self._value("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        base_ns = int(stored) if re.fullmatch(r"[1-3]?\d{1,18}", str(stored)) else None
        if self._some_ns() >= _YEAR_2001_NS:
            self._sink.note(
                "info", "normalised_time", "exported with --ts-normalize: times are UTC already"
            )
            base_ns = 0
        elif base_ns is None:
            self._sink.note(
                "warning",
                "relative_time",
                "the start of the session is not in it; times are relative, not times of day",
            )
        self._sink.describe(
            host=self._value("TARGET_INFO_SYSTEM_ENV", "value", "WHERE name = 'Hostname'"),
            producer=f"NVIDIA Nsight Systems {version}" if version else "NVIDIA Nsight Systems",
            base_ns=base_ns or None,
        )
        return base_ns

    def _some_ns(self) -> int:
        """A time of it as stored. ANALYSIS_DETAILS may be of another clock and only serves alone."""
        for selection in SELECTIONS:
            table = self._table(selection.table)
            start = self._value(table, "start", "WHERE start IS NOT NULL") if table else None
            if isinstance(start, int):
                return start
        start = self._value("ANALYSIS_DETAILS", "startTime")
        return start if isinstance(start, int) else 0

    def _read_names(self) -> None:
        """Devices, processes and threads, of which more often than not some are not there."""
        for selection, key in NAMES:
            table = self._table(selection.table)
            if not table:
                continue
            query = selection.query(table, self._columns(table), 0, self._has_strings)
            for rows in self._decoded(selection, query, table):
                named = rows.sort("priority") if "priority" in rows.columns else rows
                named = named.drop_nulls(key).unique(key, keep="last", maintain_order=True)
                named = named.rename({"number": "id"}, strict=False)
                self._sink.insert(selection.target, named.drop("priority", strict=False))

    def _read_gpu_metrics(self, base_ns: int) -> int:
        """Write them; returns how many samples there are."""
        filled = [
            t for t in ("GPU_METRICS", "GENERIC_EVENTS")
            if t in self._tables and self._rows(f"SELECT 1 FROM {t} LIMIT 1", t)
        ]  # fmt: skip
        names = []
        if {"typeId", "metricId", "metricName"} <= self._columns("TARGET_INFO_GPU_METRICS"):
            names = self._rows(
                "SELECT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS",
                "TARGET_INFO_GPU_METRICS",
            )
        metrics = gpu_metrics.find({t: self._columns(t) for t in filled}, names, base_ns)
        if not metrics:
            return 0
        lost = partial(self._lost, " ".join(filled))
        return gpu_metrics.read(self._file, metrics, self._sink, lost)

    def _domains(self) -> dict[str, str]:
        """Names of NVTX domains by 'domain process'."""
        table = self._table("NVTX_EVENTS")
        if not table or not {"eventType", "domainId", "text", "globalTid"} <= self._columns(
            table
        ):
            return {}
        rows = self._rows(
            f'SELECT domainId, globalTid >> 24, text FROM "{table}" WHERE eventType = 75', table
        )
        return {f"{domain} {pid}": text for domain, pid, text in rows if text}

    def _decoded(self, selection: Selection, query: str, table: str) -> Iterator[pl.DataFrame]:
        for batch in batches(self._file, query, partial(self._lost, table)):
            yield decoded(batch, selection, self._strings)

    def _copy(self, selection: Selection, base_ns: int, writer: RowWriter) -> int:
        """Write one table; returns how many rows it gave."""
        table = self._table(selection.table)
        if not table:
            return 0
        have = self._columns(table)
        if not {"start"} <= have:
            self._sink.note(
                "warning",
                "unknown_table",
                "a table without times was left out",
                example=table,
                lost=True,
            )
            return 0
        if missing := selection.missing(have):
            self._sink.note("info", "missing_columns", "columns that this version of the export does not have",
                            count=len(missing), example=f"{table}: {', '.join(missing)}")  # fmt: skip
        query = selection.query(table, have, base_ns, self._has_strings)
        decoded_rows = self._decoded(selection, query, table)
        return sum(writer.write(selection.target, rows) for rows in decoded_rows)


FORMAT = Format(name="nsys_sqlite", kind="nsys", recognise=recognise, read=read)
