"""What a worker does: look what is in a file, and make shards of it.

Everything that goes to a worker and back is a path, a text or a number: workers may be on other
machines, which see the same files under the same paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from rca import scratch
from rca.bundle import BundleFile, opened
from rca.case import SCHEMA_VERSION, Case
from rca.errors import RcaError
from rca.fleet.store import RECORDS, Store
from rca.ingest import ingest_file
from rca.ingest import sha256 as sha256_of


@dataclass(frozen=True)
class Member:
    """A file to read: plain, or inside an archive. `sha256` is '' and `why` says why if it cannot be."""

    name: str
    part: str
    sha256: str = ""
    why: str = ""

    @property
    def key(self) -> str:
        """What its record is named by: its bytes and its side."""
        return f"{self.part}-{self.sha256}"


@dataclass(frozen=True)
class Limits:
    """What one worker may use: bytes that an archive unpacks to, memory of DuckDB."""

    max_unpacked: int
    memory_bytes: int


@dataclass(frozen=True)
class Work:
    """A file, and which of its members become which sources; all are looked at when None."""

    file: BundleFile
    where: str
    limits: Limits
    numbers: Mapping[str, int] | None = None


def look(work: Work) -> list[Member]:
    """The members of a file with their digests, and those that are refused with the reason."""
    try:
        with _members(work) as (files, refused):
            found = [Member(f.name, f.part, sha256_of(f.path, f.name)) for f in files] + [
                Member(name, work.file.part, why=why) for name, why in refused
            ]
    except (RcaError, OSError) as error:
        found = [Member(work.file.name, work.file.part, why=_line(error, work.file))]
    return found


def shard(work: Work) -> list[Member]:
    """Read the numbered members of a file into shards; gives back those that could not be read."""
    store, failed = Store(work.where), []
    try:
        with _members(work) as (files, _):
            for file in files:
                number = (work.numbers or {}).get(file.name)
                if number is None:
                    continue
                try:
                    _shard_one(store, file, number, work.limits)
                except (RcaError, OSError) as error:
                    failed.append(Member(file.name, file.part, why=_line(error, file)))
    except (RcaError, OSError) as error:
        names = work.numbers or {work.file.name: 0}
        failed = [Member(n, work.file.part, why=_line(error, work.file)) for n in names]
    return failed


@contextmanager
def _members(work: Work) -> Iterator[tuple[list[BundleFile], list[tuple[str, str]]]]:
    with scratch.folder() as folder:
        inside = opened(work.file, folder, work.limits.max_unpacked)
        yield inside.files, inside.refused


def _line(error: Exception, file: BundleFile) -> str:
    return str(error).replace(str(file.path), file.name)


def _shard_one(store: Store, file: BundleFile, number: int, limits: Limits) -> None:
    """Read one file into a case of its own, put its tables into the store, its record last."""
    with scratch.folder() as work:
        with Case.create(work / "one.duckdb") as case:
            case.limit(memory_bytes=limits.memory_bytes, spill=work / "spill", threads=1)
            ingest_file(case, file, number)
            source = case.sql("SELECT * FROM source").to_dicts()[0]
            tables = {}
            for table in case.recorded_tables():
                made = work / f"{table}.parquet"
                if n_rows := case.export(table, made):
                    name = f"{table}/{_partition(source)}/{number:08d}-{source['sha256'][:16]}.parquet"
                    store.put(made, name)
                    tables[table] = {"file": name, "rows": n_rows, "bytes": made.stat().st_size}
                made.unlink()
        keep(store, f"{source['part']}-{source['sha256']}", source | {"tables": tables})


def _partition(source: dict[str, Any]) -> str:
    """source=KIND/host=HOST/day=DAY of its first event."""
    first = source["first_ns"]
    try:
        day = (
            "unknown"
            if first is None
            else f"{datetime.fromtimestamp(first // 10**9, UTC):%Y-%m-%d}"
        )
    except (OverflowError, ValueError):
        day = "unknown"
    return f"source={source['kind']}/host={_folder_name(source['host'])}/day={day}"


def _folder_name(host: str | None) -> str:
    """A host's name as one folder: letters, digits, '.', '_' and '-' stay, others are %-coded."""
    name = quote(host or "unknown", safe="")
    if len(name) > 100 or re.fullmatch(r"\.*", name):
        return "sha256-" + sha256(name.encode()).hexdigest()[:32]
    return name


def keep(store: Store, key: str, facts: dict[str, Any]) -> None:
    """Write a record: from now on what it names counts."""
    with scratch.folder() as folder:
        path = folder / "record.json"
        path.write_text(json.dumps({"schema_version": SCHEMA_VERSION} | facts, default=str))
        store.put(path, f"{RECORDS}/{key}.json")
