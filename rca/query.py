"""SQL on a case, printed as a table, CSV, JSON or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import polars as pl

from rca.case import Case
from rca.errors import QueryError
from rca.plain import printable

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ROWS = 1000
_MOST_RECORDS = 20  # more rows than this are not read one below the other
_BETWEEN = 3  # characters between two columns
_CUT = 12


def opened(where: str | Path) -> Case:
    """A case file, read-only, or the shards at this address.

    Raises:
        CaseError: Neither is there.
    """
    from rca.fleet import is_shards, open_shards

    path = Path(where)
    if "://" in str(where) or (path.is_dir() and is_shards(str(where))):
        return open_shards(str(where))
    return Case.open(path, read_only=True)


def run(
    where: str | Path, sql: str, output: str, stream: TextIO, *, unsafe: bool = False
) -> None:
    """Run a query read-only and print its rows.

    The database is locked, unless it is `unsafe`: no files, no network, no settings can be reached
    by the query, but the files of the shards.

    Raises:
        CaseError: The case cannot be opened.
        QueryError: DuckDB refuses the query, or its rows do not fit the output.
    """
    with opened(where) as case:
        if not unsafe:
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
    """A table where it fits; else rows one below the other, or the columns that fit.

    In a pipe nothing is left out: there a table is as wide as it needs to be.
    """
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    names = [printable(name, 60) for name in rows.columns]
    shown = rows.head(_MOST_ROWS)
    cells = [
        [printable("" if value is None else str(value), 120) for value in row]
        for row in shown.iter_rows()
    ]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    console.width = console.width if console.is_terminal else max(_needed(widths), 1)
    if _needed(widths) <= console.width:
        _print_columns(console, names, cells)
    elif len(cells) <= _MOST_RECORDS:
        _print_records(console, names, shown)
    else:
        _print_what_fits(console, names, cells, widths)
    if len(rows) > _MOST_ROWS:
        stream.write(
            f"{len(rows):,} rows, the first {_MOST_ROWS:,} shown; --format csv prints all\n"
        )


def _needed(widths: list[int]) -> int:
    return sum(widths) + _BETWEEN * len(widths)


def _print_columns(console: Console, names: list[str], cells: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_records(console: Console, names: list[str], rows: pl.DataFrame) -> None:
    """Each row as lines of a name and a value, values whole."""
    from rich.table import Table
    from rich.text import Text

    for number, row in enumerate(rows.iter_rows(), start=1):
        console.print(Text(f"row {number}", style="bold"))
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            table.add_row(
                Text(name), Text(printable("" if value is None else str(value), 4_000))
            )
        console.print(table)


def _print_what_fits(
    console: Console, names: list[str], cells: list[list[str]], widths: list[int]
) -> None:
    """The first columns that fit, wide ones cut, and which were left out."""
    cut = [min(width, max(_CUT, console.width // 3)) for width in widths]
    n = next((i for i in range(len(cut), 0, -1) if _needed(cut[:i]) <= console.width), 1)
    kept = [[printable(cell, cut[i]) for i, cell in enumerate(row[:n])] for row in cells]
    _print_columns(console, names[:n], kept)
    left = ", ".join(names[n:])
    said = f"left out: {left}; " if left else "long values are cut; "
    console.print(
        said + "name the columns you want, or take --format csv or json",
        style="dim",
        markup=False,
    )
