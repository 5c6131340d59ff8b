"""The case: one DuckDB file that holds everything read and everything concluded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import polars as pl

from rca import scratch
from rca.case_file import connect, keep_empty, kept_empty, remove, stop_if_used
from rca.durable import whole
from rca.errors import CaseError, QueryError
from rca.parsers.format import Rows

SCHEMA_VERSION = "5"
_BATCH_ROWS = 100_000
_TIME_COLUMNS = {  # table: (first, last); a duration that is damaged must not move the end
    "gpu_op": ("start_ns", "CASE WHEN flaw IS NULL THEN start_ns + dur_ns ELSE start_ns END"),
    "cpu_op": ("start_ns", "start_ns + dur_ns"),
    "memory_event": ("ts_ns", "ts_ns"),
    "sched_event": ("ts_ns", "ts_ns"),
    "span": (
        "CASE WHEN flaw IS DISTINCT FROM 'absurd_duration' THEN start_ns END",
        "CASE WHEN flaw IS NULL THEN start_ns + dur_ns WHEN flaw <> 'absurd_duration' THEN start_ns END",
    ),
    "log": ("ts_ns", "ts_ns"),
    "alert": ("start_ns", "coalesce(end_ns, start_ns)"),
    "change": ("ts_ns", "ts_ns"),
}
_RESULTS = frozenset(
    {
        "incident_window", "evidence", "pattern", "hypothesis", "suspect", "attribution", "verdict",
        "fix", "trial", "trial_arm", "trial_fidelity", "what_if", "gap", "provenance",
        "guard_rule", "guard_file",
        "cohort", "cohort_request",
        "slow_attribute", "blast_radius", "latency_by_context", "slo_heat_map", "indicator",
        "request_part", "cohort_part", "queue_replay", "latency_driver",
        "memory_use", "invalidation_storm", "version_window", "call_depth", "causal_edge",
        "lint_finding", "cause_file",
    }
)  # fmt: skip
_FOUND_OUT = ("series_role", "trace_home", "host_clock")
"""Tables that are made from what parsers filled."""
_SERIES_TABLES = {"series": "id", "sample": "series_id", "histogram_sample": "series_id"}


@cache
def sql_files(folder: str) -> tuple[tuple[str, str], ...]:
    """Names and texts of the .sql files in rca/sql/FOLDER, in the order of their names."""
    found = [
        f for f in files("rca").joinpath("sql", folder).iterdir() if f.name.endswith(".sql")
    ]
    return tuple((f.name, f.read_text()) for f in sorted(found, key=lambda f: f.name))


def sql_text(folder: str, name: str) -> str:
    """The text of rca/sql/FOLDER/NN_NAME.sql."""
    return next(t for file, t in sql_files(folder) if file[3:].removesuffix(".sql") == name)


def _statements() -> list[str]:
    """What makes the empty tables and views of a case."""
    version = f"INSERT INTO provenance VALUES ('schema_version', '{SCHEMA_VERSION}')"
    return [*(text for folder in ("schema", "views") for _, text in sql_files(folder)), version]


class Case:
    """A case file. Use `Case.create`, `Case.open`, and `with`.

    Attributes:
        path: The file, None for a case in memory.
        generation: Grows whenever recorded tables may have changed, never with result tables.
        folders: Folders or addresses whose files its views read; none for a case file.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, path: Path | None) -> None:
        self._con, self.path = con, path
        self.generation = 0
        self._memory_bytes: int | None = None
        self.folders: list[str] = []

    @classmethod
    def create(cls, path: Path | None = None) -> Self:
        """A new case with empty tables, in memory when `path` is None; replaces what was there.

        The file appears with its tables in it: no moment leaves half a case.
        """
        if path is None:
            case = cls(connect(None, read_only=False), None)
            statements = _statements()
            kept = kept_empty(statements)
            if kept is None or not case._copy(kept):
                case._fill(statements)
            return case
        path.parent.mkdir(parents=True, exist_ok=True)
        stop_if_used(path)
        content = cls._empty(path.with_name(path.name + ".new"))
        with whole(path) as file:
            file.write(content)
            file.flush()
            remove(path)  # not before the new one has room
        return cls(connect(path, read_only=False), path)

    @classmethod
    def _empty(cls, at: Path) -> bytes:
        """The file of a case with empty tables; made at `at` where it was not kept."""
        statements = _statements()
        kept = kept_empty(statements)
        if kept is not None:
            return kept
        stop_if_used(at)
        remove(at)
        with cls(connect(at, read_only=False), at) as case:
            case._fill(statements)
            # closing would do it too, but be silent where the disk is full
            case.rows("CHECKPOINT")
        made = at.read_bytes()
        remove(at)
        keep_empty(statements, made)
        return made

    def _fill(self, statements: Iterable[str]) -> None:
        with self.transaction():
            for text in statements:
                self._con.execute(text)

    def _copy(self, content: bytes) -> bool:
        """Take over the tables and views of a case file; False where there is no room for it to lie."""
        with suppress(OSError), scratch.folder() as folder:
            file = folder / "empty.duckdb"
            file.write_bytes(content)
            quoted = str(file).replace("'", "''")
            self._con.execute(f"ATTACH '{quoted}' AS empty (READ_ONLY)")
            self._con.execute("COPY FROM DATABASE empty TO memory; DETACH empty")
            return True
        return False

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """An existing case.

        Raises:
            CaseError: No such file, not a case, in use by another process, or another version.
        """
        if not path.is_file():
            raise CaseError("no such case", path=str(path), hint="make one with: rca ingest")
        case = cls(connect(path, read_only=read_only), path)
        try:
            version = case.scalar("SELECT value FROM provenance WHERE key = 'schema_version'")
        except QueryError as error:
            raise CaseError("is not a case of rca", path=str(path)) from error
        if version != SCHEMA_VERSION:
            raise CaseError(
                f"has schema version {version}, this rca reads {SCHEMA_VERSION}",
                path=str(path),
                hint="ingest the recordings again",
            )
        return case

    def close(self) -> None:
        """Close the file; everything committed is on disk."""
        self._con.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pl.DataFrame:
        """The rows of a query as a polars DataFrame.

        Raises:
            QueryError: DuckDB refuses the query.
        """
        try:
            relation = self._con.sql(query, params=list(parameters))
            if relation is None:
                raise QueryError("the statement has no rows to show", hint="write a SELECT")
            return pl.DataFrame(pl.from_arrow(relation.to_arrow_table()))
        except duckdb.Error as error:
            raise _failed(error) from error
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            first = str(error).strip().splitlines()[0]
            raise QueryError(
                f"the rows cannot be shown: {first}",
                hint="give each column its own name and cast odd types to VARCHAR",
            ) from error

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query as tuples."""
        try:
            return self._con.execute(query, list(parameters)).fetchall()
        except duckdb.Error as error:
            raise _failed(error) from error

    def scalar(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """The first value of the first row, None when there is no row."""
        rows = self.rows(query, parameters)
        return rows[0][0] if rows else None

    def has(self, name: str) -> bool:
        """Whether the case has a table or view of this name."""
        return bool(
            self.scalar(
                "SELECT count(*) FROM information_schema.tables WHERE table_name = ?", [name]
            )
        )

    def stream(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one, never all of them in memory."""
        cursor = self._con.cursor()
        try:
            cursor.execute(query, list(parameters))
            while rows := cursor.fetchmany(10_000):
                yield from rows
        except duckdb.Error as error:
            raise _failed(error) from error
        finally:
            cursor.close()

    def batches(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[pl.DataFrame]:
        """The rows of a query in parts, never all of them in memory; take all before another query."""
        try:
            relation = self._con.sql(query, params=list(parameters))
            for batch in relation.to_arrow_reader(_BATCH_ROWS):
                yield pl.DataFrame(pl.from_arrow(batch))
        except duckdb.Error as error:
            raise _failed(error) from error

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement that returns nothing."""
        self.generation += 1
        self.rows(statement, parameters)

    def limit(self, *, memory_bytes: int, spill: Path | None = None, threads: int = 0) -> None:
        """Hold DuckDB to so much memory; what does not fit goes to the folder `spill`.

        Args:
            memory_bytes: Memory of DuckDB alone, parsers come on top.
            spill: Made when needed, removed at the end; DuckDB's own choice when None.
            threads: At most so many; one a core when 0.
        """
        self._memory_bytes = memory_bytes
        self._con.execute("SET memory_limit = $n", {"n": f"{max(memory_bytes, 1)}B"})
        if spill is not None:
            self._con.execute("SET temp_directory = $folder", {"folder": str(spill)})
        if threads:
            self._con.execute("SET threads = $n", {"n": threads})

    @contextmanager
    def frugal(self, memory_bytes: int) -> Iterator[None]:
        """At most so much memory and one thread for DuckDB, for a while; in the end all is in the file.

        Several threads would each write row groups of their own, half full, which the checkpoint
        then reads and writes again. A case in memory is left as it is: what it holds would have
        to go to the disk.
        """
        if self.path is None:
            yield
            return
        before = self._memory_bytes
        threads = self.scalar("SELECT current_setting('threads')")
        self.limit(memory_bytes=min(memory_bytes, before or memory_bytes), threads=1)
        try:
            yield
            self.rows("CHECKPOINT")
        finally:
            self._con.execute("SET threads = $n", {"n": threads})
            if before is None:
                self._con.execute("RESET memory_limit")
            else:
                self.limit(memory_bytes=before)
            self._memory_bytes = before

    def recorded_tables(self) -> list[str]:
        """Tables that parsers fill, in the order of their names."""
        query = """
            SELECT DISTINCT c.table_name FROM information_schema.columns AS c
            JOIN information_schema.tables AS t USING (table_schema, table_name)
            WHERE t.table_type = 'BASE TABLE' AND t.table_schema = 'main'
                AND t.table_catalog = current_database()
                AND (c.column_name IN ('source_id', 'series_id') OR t.table_name = 'source')
            ORDER BY ALL"""
        return [name for (name,) in self.rows(query) if name not in _FOUND_OUT]

    def export(self, table: str, path: Path) -> int:
        """Write a table to a Parquet file, columns in the order of the schema; how many rows."""
        target = str(path).replace("'", "''")
        form = "FORMAT parquet, COMPRESSION zstd"
        return int(self.scalar(f"COPY {_name(table)} TO '{target}' ({form})"))

    def attach_files(self, fs: Any) -> None:
        """Let DuckDB read through a file system of fsspec."""
        self._con.register_filesystem(fs)

    def lock(self) -> None:
        """Shut files, network and settings off for everything that follows on this connection."""
        self._con.execute("SET allowed_directories = $folders", {"folders": self.folders})
        self._con.execute("SET enable_external_access = false")
        self._con.execute("SET lock_configuration = true")

    def clear(self, tables: Iterable[str]) -> None:
        """Empty result tables before they are written again."""
        for table in tables:
            self._con.execute(f"DELETE FROM {_name(table)}")
            self.generation += table not in _RESULTS

    def insert(self, table: str, rows: Rows, **constants: Any) -> int:
        """Append rows, columns matched by name; `constants` are further columns. Returns how many."""
        self.generation += table not in _RESULTS
        incoming = _arrow(rows)  # the query finds it by this name
        names = incoming.schema.names
        if not names:
            return 0
        offsets = (
            {_SERIES_TABLES[table]: constants.pop("series_offset", 0)}
            if table in _SERIES_TABLES
            else {}
        )
        picked = [f"{_name(n)} + {offsets[n]}" if offsets.get(n) else _name(n) for n in names]
        picked += [f"${key}" for key in constants]
        targets = ", ".join(_name(n) for n in [*names, *constants])
        count = self._con.execute(
            f"INSERT INTO {_name(table)} ({targets}) SELECT {', '.join(picked)} FROM incoming",
            constants,
        ).fetchall()
        return int(count[0][0]) if count else 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: an exception inside takes everything back."""
        self._con.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._con.execute("COMMIT")

    def time_range(self, source_id: int) -> tuple[int | None, int | None]:
        """First and last time of a source, ns since the Unix epoch, over all its tables."""
        parts = [
            f"SELECT min({first}) AS a, max({last}) AS b FROM {table} WHERE source_id = $id"
            for table, (first, last) in _TIME_COLUMNS.items()
        ]
        parts += [
            f"SELECT min(ts_ns), max(ts_ns) FROM {table} JOIN series s ON s.id = series_id WHERE s.source_id = $id"
            for table in ("sample", "histogram_sample")
        ]
        row = self._con.execute(
            f"SELECT min(a), max(b) FROM ({' UNION ALL '.join(parts)})", {"id": source_id}
        ).fetchall()[0]
        return row[0], row[1]


def _arrow(rows: Rows) -> Any:
    """Rows as something of Arrow that DuckDB reads.

    It is not registered with DuckDB, which keeps what was registered until the transaction ends:
    a transaction holds a whole file.
    """
    if isinstance(rows, Path):
        import pyarrow.dataset as ds

        return ds.dataset(rows)
    if isinstance(rows, pl.DataFrame):
        return rows.to_arrow(compat_level=pl.CompatLevel.newest())  # texts are not copied
    return rows


def _name(name: str) -> str:
    """A checked identifier: tables and columns are named by this package, never by a bundle."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise QueryError(f"not a column or table name: {name!r}")
    return name


def _failed(error: duckdb.Error) -> BaseException:
    """What a failure of DuckDB is to people."""
    if isinstance(error, duckdb.InterruptException):
        return KeyboardInterrupt()
    first = (str(error).strip().splitlines() or ["no reason told"])[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryError(first, hint="raise --memory, or make room on the disk")
    return QueryError(first)
