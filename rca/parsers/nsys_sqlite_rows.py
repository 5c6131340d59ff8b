"""Rows of an SQLite export on their way to the case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from rca.parsers.durations import flaw_of
from rca.parsers.format import Sink

BATCH_ROWS = 131_072
YEAR_2096_NS = 4_000_000_000_000_000_000
_NARROW = ("device", "registers", "sm_count", "number", "cpu")  # columns of 32 bits in the case
_NEEDED = {  # by table: what a row is nothing without
    "memory_event": ("delta_bytes",), "graph_node": ("id",), "sched_event": ("is_in",),
}  # fmt: skip


def immutable_uri(file: Path) -> str:
    """No lock is taken and nothing is written beside a file that may not be ours."""
    return f"file://{quote(str(file.absolute()))}?mode=ro&immutable=1"


def batches(file: Path, query: str) -> Iterator[Any]:
    """The rows of a query as Arrow batches."""
    from adbc_driver_sqlite import StatementOptions, dbapi

    options = {StatementOptions.BATCH_ROWS.value: str(BATCH_ROWS)}
    with (
        dbapi.connect(immutable_uri(file)) as con,
        con.cursor(adbc_stmt_kwargs=options) as cursor,
    ):
        cursor.execute(query)
        yield from cursor.fetch_record_batch()


def decoded(batch: Any) -> pl.DataFrame:
    """A batch with its bytes as text: what is not UTF-8 is replaced, what is empty is NULL."""
    rows = pl.DataFrame(pl.from_arrow(batch))
    texts = [_text(rows[name]) for name, kind in rows.schema.items() if kind == pl.Binary]
    narrow = [pl.col(c).cast(pl.Int32, strict=False) for c in _NARROW if c in rows.columns]
    return rows.with_columns(*texts, *narrow)


def _text(data: pl.Series) -> pl.Series:
    try:
        text = data.cast(pl.String)
    except pl.exceptions.PolarsError:
        readable = [value.decode("utf-8", "replace") for value in data]
        text = pl.Series(data.name, readable, dtype=pl.String)
    return text.replace("", None)


class RowWriter:
    """Numbers and checks rows, then gives them to the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._next_id = {"gpu_op": 0, "cpu_op": 0}

    def write(self, target: str, batch: Any, domains: dict[str, str]) -> int:
        """Write a batch; `domains` are NVTX domains by number and process. Returns its size."""
        rows = decoded(batch)
        n = rows.height
        self._sink.count_elements(n)
        rows = (
            _instants(rows, _NEEDED[target])
            if target in _NEEDED
            else self._operations(rows, target)
        )
        if "domain" in rows.columns:
            named = pl.col("domain").replace_strict(
                domains, default=None, return_dtype=pl.String
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
        return rows.with_columns(sound.alias("dur_ns")).drop("flaw")

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
