"""GPU recordings for tests: small ones made here, and the tables of the conformance data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rca.bundle import Bundle, BundleFile
from rca.case import Case
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
