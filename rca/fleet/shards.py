"""Shards asked as one case: tables that are large stay where they are and are read as asked."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from rca import roles
from rca.case import SCHEMA_VERSION
from rca.diagnosed import DiagnosedCase
from rca.errors import CaseError
from rca.fleet.store import Store

_IN_MEMORY = frozenset({"source", "series", "device", "process", "thread", "config_file"})
"""Small beside the others, and asked by nearly every view."""


def is_shards(where: str) -> bool:
    """Whether `rca fleet ingest` has written there."""
    return Store(where).is_there()


def read_records(store: Store) -> list[dict[str, Any]]:
    """Records of sources and failures, each with its `key`; one that is half is taken for none.

    Raises:
        CaseError: They are of another version.
    """
    found = []
    for name, text in store.records():
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if record.get("schema_version") != SCHEMA_VERSION:
            raise CaseError(
                f"has schema version {record.get('schema_version')}, this rca reads {SCHEMA_VERSION}",
                path=store.where,
                place=name,
                hint="ingest the recordings again",
            )
        found.append(record | {"key": name.rpartition("/")[2].removesuffix(".json")})
    return found


def open_shards(where: str) -> DiagnosedCase:
    """A case in memory whose large tables are views over the shards; all views of a case work on it.

    Raises:
        CaseError: There are no shards, or they are of another version.
    """
    store = Store(where)
    if not store.is_there():
        raise CaseError("no shards there", path=where, hint="make them with: rca fleet ingest")
    records = read_records(store)
    case = DiagnosedCase.create()
    store.attach(case)
    for table in case.recorded_tables():
        found = [r["tables"][table]["file"] for r in records if table in r.get("tables", {})]
        if any(PurePosixPath(name).is_absolute() or ".." in name.split("/") for name in found):
            raise CaseError("a record names a file outside of the shards", path=where)
        if found:
            _attach(case, table, [store.address(name) for name in sorted(found)])
    _note_failures(case, [r for r in records if r["status"] == "failed"])
    roles.assign(case)
    case.folders = [store.address("")]  # the rest stays shut when the case is locked
    return case


def _attach(case: DiagnosedCase, table: str, files: list[str]) -> None:
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
    rows = f"read_parquet([{listed}], hive_partitioning = false)"
    if table in _IN_MEMORY:
        case.execute(f"INSERT INTO {table} BY NAME FROM {rows}")
        return
    # The views of a case are bound by name when they are asked, so that they find the view.
    case.execute(f"ALTER TABLE {table} RENAME TO {table}_here")
    case.execute(f"CREATE VIEW {table} AS FROM {rows} UNION ALL BY NAME FROM {table}_here")


def _note_failures(case: DiagnosedCase, failures: list[dict[str, Any]]) -> None:
    rows = [
        {"level": "error", "code": "unreadable", "message": f["why"], "count": 1, "example": f["name"]}
        for f in failures
    ]  # fmt: skip
    if rows:
        table = "ingest_note_here" if case.has("ingest_note_here") else "ingest_note"
        case.insert(table, pl.DataFrame(rows))
