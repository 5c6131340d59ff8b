"""Rows of an SQLite export on their way to the case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from rca.parsers.durations import flaw_of
from rca.parsers.format import Sink
from rca.parsers.nsys_sqlite_tables import FIXED, ID, INTEGER, SIZE, Selection

BATCH_ROWS = 131_072
_FEW_ROWS = 32
YEAR_2096_NS = 4_000_000_000_000_000_000
_NARROW = ("device", "registers", "sm_count", "number", "cpu")  # columns of 32 bits in the case
_CALL = pl.Enum(["driver", "runtime"])
NO_STRINGS = pl.DataFrame(schema={"id": pl.Int64, "value": pl.String})
_NEEDED = {  # by table: what a row is nothing without
    "memory_event": ("delta_bytes",), "graph_node": ("id",), "sched_event": ("is_in",),
}  # fmt: skip


def immutable_uri(file: Path) -> str:
    """No lock is taken and nothing is written beside a file that may not be ours."""
    return f"file://{quote(str(file.absolute()))}?mode=ro&immutable=1"


Lost = Callable[[str], None]
"""Called with what SQLite says where a table is damaged."""


def batches(file: Path, query: str, lost: Lost) -> Iterator[Any]:
    """The rows of a query as Arrow batches; of a damaged table those before the damage."""
    import adbc_driver_manager
    import pyarrow as pa

    count = 0
    for n_rows in (
        BATCH_ROWS,
        _FEW_ROWS,
    ):  # the batch in which the damage is comes in small ones
        rest = f"{query} LIMIT -1 OFFSET {count}" if n_rows == _FEW_ROWS else query
        try:
            for batch in _batches(file, rest, n_rows):
                count += batch.num_rows
                yield batch
            return
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            problem = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
    lost(problem)


def is_damage(error: Exception) -> bool:
    """Whether SQLite says that bytes of the file make no sense, and not that it was asked wrongly."""
    return any(word in str(error) for word in ("malformed", "corrupt", "disk I/O error"))


def _batches(file: Path, query: str, n_rows: int) -> Iterator[Any]:
    from adbc_driver_sqlite import StatementOptions, dbapi

    options = {StatementOptions.BATCH_ROWS.value: str(n_rows)}
    with (
        dbapi.connect(immutable_uri(file)) as con,
        con.cursor(adbc_stmt_kwargs=options) as cursor,
    ):
        cursor.execute(query)
        yield from cursor.fetch_record_batch()


def decoded(batch: Any, selection: Selection, strings: pl.DataFrame) -> pl.DataFrame:
    """A batch with its texts: what is not UTF-8 is replaced, what is empty is NULL.

    Args:
        batch: What the query of the selection gives.
        selection: What was asked for.
        strings: Columns id, value: the texts of StringIds.
    """
    rows = pl.DataFrame(pl.from_arrow(batch))
    texts = [_text(rows[name]) for name, kind in rows.schema.items() if kind == pl.Binary]
    others = [pl.col(c).cast(pl.Int32, strict=False) for c in _NARROW if c in rows.columns]
    for column in selection.columns:
        if column.type == FIXED:
            text = column.choices[0][1]
            others.append(pl.lit(text, _one_of([text])).alias(column.name))
        elif column.name not in rows.columns:
            kind = pl.Int64 if column.type == INTEGER else pl.String
            others.append(pl.lit(None, kind).alias(column.name))
        elif column.type == ID:
            texts.append(_named(rows[column.name], strings))
        elif column.type == SIZE:
            texts.append(_size(rows[column.name]))
    return rows.with_columns(*texts, *others)


def read_strings(file: Path, lost: Lost) -> pl.DataFrame:
    """The texts of StringIds, as `decoded` wants them."""
    query = "SELECT CAST(id AS INTEGER) AS id, CAST(CAST(value AS TEXT) AS BLOB) AS value"
    parts = [
        pl.DataFrame(pl.from_arrow(batch))
        for batch in batches(file, f"{query} FROM StringIds WHERE value <> ''", lost)
    ]
    if not parts:
        return NO_STRINGS
    found = pl.concat(parts)
    return found.with_columns(_text(found["value"])).unique("id", keep="first")


def _named(ids: pl.Series, strings: pl.DataFrame) -> pl.Series:
    known = strings.filter(pl.col("id").is_in(ids.unique().implode()))
    return _replaced(ids, known["id"], known["value"])


def _size(packed: pl.Series) -> pl.Series:
    """Three numbers in one as the text 'x,y,z'."""
    sizes = packed.unique().drop_nulls()
    axes = [sizes // 2**32, sizes // 2**16 % 2**16, sizes % 2**16]
    texts = pl.select(pl.concat_str(axes, separator=",")).to_series()
    return _replaced(packed, sizes, texts)


def _replaced(numbers: pl.Series, old: pl.Series, new: pl.Series) -> pl.Series:
    kind = _one_of(new.to_list())
    return numbers.replace_strict(old, new.cast(kind), default=None, return_dtype=kind)


def _one_of(texts: Iterable[str | None]) -> pl.Enum:
    """Some texts and the empty one: the database is given each once, and a number in each row."""
    return pl.Enum(list(dict.fromkeys(["", *filter(None, texts)])))


def _text(data: pl.Series) -> pl.Series:
    try:
        text = data.cast(pl.String)
    except pl.exceptions.PolarsError:
        readable = [value.decode("utf-8", "replace") for value in data]
        text = pl.Series(data.name, readable, dtype=pl.String)
    return text.replace("", None)


class RowWriter:
    """Numbers and checks rows, then gives them to the sink."""

    def __init__(self, sink: Sink, domains: dict[str, str]) -> None:
        """`domains` are NVTX domains by number and process."""
        self._sink, self._domains = sink, domains
        self._next_id = {"gpu_op": 0, "cpu_op": 0}

    def write(self, target: str, rows: pl.DataFrame) -> int:
        """Write decoded rows to a table; returns how many they were."""
        n = rows.height
        self._sink.count_elements(n)
        rows = (
            _instants(rows, _NEEDED[target])
            if target in _NEEDED
            else self._operations(rows, target)
        )
        if "is_driver" in rows.columns:
            kind = (
                pl.when(pl.col("is_driver") == 1)
                .then(pl.lit("driver", _CALL))
                .otherwise(pl.lit("runtime", _CALL))
            )
            rows = rows.with_columns(kind.alias("kind")).drop("is_driver")
        if "domain" in rows.columns:
            named = pl.col("domain").replace_strict(
                self._domains, default=None, return_dtype=pl.String
            )
            rows = rows.with_columns(named)
        if n > rows.height:
            self._sink.note(
                "warning", "no_time", "rows without a time or what else they need were left out",
                count=n - rows.height, lost=True,
            )  # fmt: skip
        self._sink.insert(target, rows)
        return n

    def _operations(self, rows: pl.DataFrame, target: str) -> pl.DataFrame:
        rows = rows.filter(_is_time("start_ns"))
        first = self._next_id[target]
        self._next_id[target] += rows.height
        rows = rows.with_columns(
            pl.int_range(first, first + rows.height).alias("id"),
            pl.col("name").fill_null(""),
            flaw_of(pl.col("dur_ns")).alias("flaw"),
        )
        self._note_flaws(rows)
        if target == "gpu_op":
            return rows.with_columns(pl.col("dur_ns").fill_null(0))
        sound = pl.when(pl.col("flaw").is_null()).then(pl.col("dur_ns")).otherwise(0)
        return rows.with_columns(sound.alias("dur_ns"))

    def _note_flaws(self, rows: pl.DataFrame) -> None:
        for flaw, flawed in rows.drop_nulls("flaw").group_by("flaw"):
            self._sink.note(
                "warning", "bad_duration",
                "durations that are missing, negative or absurd; no sum counts them",
                count=flawed.height, example=f"{flawed['name'][0]}: {flaw[0]}",
            )  # fmt: skip


def _instants(rows: pl.DataFrame, needed: tuple[str, ...]) -> pl.DataFrame:
    """Rows that have a time and no duration."""
    rows = rows.filter(_is_time("ts_ns")).drop_nulls(needed)
    if "is_in" in rows.columns:
        rows = rows.with_columns(pl.col("is_in").cast(pl.Boolean))
    if (
        "delta_bytes" in rows.columns
    ):  # -1 is host memory, and what has no device is no device's
        rows = rows.with_columns(pl.col("device").fill_null(-1))
    return rows


def _is_time(column: str) -> pl.Expr:
    """Whether it is a time at all; beyond the year 2096 sums of times would leave 64 bits."""
    return pl.col(column).is_between(-YEAR_2096_NS, YEAR_2096_NS).fill_null(False)
