"""GPU recordings for tests: small ones made here, and the tables of the conformance data."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rca import nsys
from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.errors import NsysError
from rca.ingest import ingest


def read(path: Path) -> Case:
    """A case in memory that holds this one recording."""
    case = Case.create()
    failures = ingest(case, Bundle([BundleFile(path, path.name, "incident")]))
    assert failures == []
    return case


def notes(case: Case) -> dict[str, int]:
    """Codes of the notes and their counts."""
    return dict(case.rows("SELECT code, count FROM ingest_note"))


def oracle(folder: str) -> list[dict[str, str]]:
    """The rows of FOLDER/oracle.tsv; none when the conformance data is not there."""
    root = os.environ.get("RCA_CONFORMANCE_DATA")
    if not root:
        return []
    lines = (Path(root) / folder / "oracle.tsv").read_text().rstrip("\n").split("\n")
    header, *rows = (line.split("\t") for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def need_nsys() -> Path:
    """The nsys program; skips the test where there is none."""
    try:
        return nsys.find()
    except NsysError as error:
        pytest.skip(str(error))


def cell(value: Any) -> str:
    """A value as the oracle tables write it."""
    if value is None:
        return ""
    text = str(value).replace("\\", "\\\\").replace("\t", "\\t")
    return text.replace("\n", "\\n").replace("\r", "\\r")


def row(case: Case, query: str) -> dict[str, Any]:
    """The only row of a query, by column name."""
    (found,) = case.sql(query).to_dicts()
    return found


def event(
    name: str, ts: str, dur: str | None, /, cat: str = "cpu_op", ph: str = "X", **args: Any
) -> str:
    """One event as the profiler writes it; times are the text of the file."""
    parts = [f'"ph": "{ph}"', f'"cat": "{cat}"', f'"name": {json.dumps(name)}']
    parts += [f'"pid": {0 if cat == "kernel" else 7}, "tid": 7, "ts": {ts}']
    parts += [f'"dur": {dur}'] if dur is not None else []
    parts += [f'"args": {json.dumps(args)}'] if args else []
    return "{" + ", ".join(parts) + "}"


def trace(
    *events: str, head: str = '"schemaVersion": 1', tail: str = '"traceName": "t"'
) -> str:
    """A recording of these events."""
    body = ",\n".join(events)
    return f'{{{head}, "traceEvents": [\n{body}\n], {tail}}}\n'


@dataclass
class MemorySink:
    """Keeps what a parser writes, without a case: for tests that read many small files."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    n_elements: int = 0
    lost: bool = False

    def insert(self, table: str, rows: Any) -> None:
        """See Sink."""
        made = rows.to_dicts() if isinstance(rows, pl.DataFrame) else rows.to_pylist()
        self.tables.setdefault(table, []).extend(made)

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
        assert level in ("info", "warning", "error") and message
        self.codes[code] = self.codes.get(code, 0) + count
        self.lost |= lost

    def describe(self, **facts: Any) -> None:
        """See Sink."""
        self.facts |= {k: v for k, v in facts.items() if v is not None}

    def count_elements(self, n: int) -> None:
        """See Sink."""
        self.n_elements += n
