"""`rca query`: SQL on a case."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How `rca query` prints."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def query(
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="A case.duckdb, or shards of rca fleet.")
    ],
    sql: Annotated[
        str, typer.Argument(help="A query; see docs/schema.md for tables and views.")
    ],
    output: Annotated[
        Format, typer.Option("--format", "-f", help="How to print.")
    ] = Format.table,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Let the query read files and change DuckDB's settings."),
    ] = False,
) -> None:
    """Run SQL on a case, read-only."""
    from rca import query as querying

    querying.run(case, sql, output.value, sys.stdout, unsafe=unsafe)
