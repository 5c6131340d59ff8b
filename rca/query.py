"""SQL on a case, printed as a table, CSV, JSON or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import polars as pl

from rca.case import Case
from rca.errors import QueryError
from rca.plain import printable

_MOST_ROWS = 1000


def run(path: Path, sql: str, output: str, stream: TextIO) -> None:
    """Run a query read-only and print its rows.

    The database is locked: no files, no network, no settings can be reached by the query.

    Raises:
        CaseError: The case cannot be opened.
        QueryError: DuckDB refuses the query, or its rows do not fit the output.
    """
    with Case.open(path, read_only=True) as case:
        case.lock()
        rows = case.sql(sql)
    try:
        _print(rows, output, stream)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise QueryError(
            f"cannot be printed as {output}: {first}", hint="cast the column to VARCHAR"
        ) from error


def _print(rows: pl.DataFrame, output: str, stream: TextIO) -> None:
    if output == "csv":
        stream.write(_flat(rows).write_csv())
    elif output == "json":
        stream.write(rows.write_json() + "\n")
    elif output == "parquet":
        stream.flush()
        rows.write_parquet(stream.buffer)
    else:
        _print_table(rows, stream)


def _flat(rows: pl.DataFrame) -> pl.DataFrame:
    """Nested columns as text, which CSV can hold."""
    nested = [c for c, t in rows.schema.items() if t.is_nested()]
    return rows.with_columns(
        pl.Series(c, [None if v is None else str(v) for v in rows[c].to_list()], pl.String)
        for c in nested
    )


def _print_table(rows: pl.DataFrame, stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False)
    for name in rows.columns:
        table.add_column(Text(printable(name, 60)))
    for row in rows.head(_MOST_ROWS).iter_rows():
        table.add_row(*(Text(printable("" if v is None else str(v), 120)) for v in row))
    Console(file=stream, highlight=False).print(table)
    if len(rows) > _MOST_ROWS:
        stream.write(
            f"{len(rows):,} rows, the first {_MOST_ROWS:,} shown; --format csv prints all\n"
        )
