"""Ingest of many recordings by many workers: looked at, numbered, read, tried again, accounted for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from glob import glob
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from rca.archive import DEFAULT_MAX_UNPACKED
from rca.bundle import BundleFile, walk
from rca.errors import BundleError
from rca.fleet.reading import Limits, Member, Work, keep, look, shard
from rca.fleet.running import DIED, Runner, runner
from rca.fleet.shards import read_records
from rca.fleet.store import RECORDS, Store
from rca.machine import memory_bytes

_DUCKDB_SHARE = 0.4
"""Of the memory that a worker has; the rest is for parsers."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, files done and files in all."""


@dataclass(frozen=True)
class Summary:
    """What became of every file.

    Attributes:
        shards: Where the shards are.
        runner: Who did the work, in words.
        read: Sources read now.
        known: Sources that were there before, or are the same bytes as another.
        failed: Files that could not be read, after a second attempt.
    """

    shards: str
    runner: str
    read: int
    known: int
    failed: list[Member]


def ingest(
    paths: Sequence[Path],
    where: str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    dask: bool | None = None,
    max_unpacked: int = DEFAULT_MAX_UNPACKED,
    progress: Progress | None = None,
) -> Summary:
    """Read recordings into Parquet shards; what is there already is passed over.

    Args:
        paths: Folders, archives and files, under paths that every worker can open, and patterns of such.
        where: A folder, or an address of fsspec, that every worker can write to.
        workers: Processes of this machine; one a core unless given.
        scheduler: Address of a Dask scheduler, whose workers are used instead.
        dask: Whether Dask starts the processes of this machine; where it is installed when None.

    Raises:
        RcaError: A path is missing, nothing could be read, or another ingest writes there.
    """
    n = workers or os.cpu_count() or 1
    limits = Limits(max_unpacked, int(memory_bytes() * _DUCKDB_SHARE / n))
    files = _listed(paths)
    store = Store(where)
    with store.held(), runner(n, scheduler, dask=dask) as runs:
        say = progress or (lambda *_: None)
        works = [Work(f, store.where if "://" in where else store.root, limits) for f in files]
        looked = _look(runs, works, say)
        numbered, known = _number(store, works, looked)
        failed = [m for found in looked for m in found if m.why]
        failed += _read(runs, numbered, say)
        _record_failures(store, failed, works)
    lost = {m.name for m in failed}
    n_read = sum(1 for w in numbered for name in w.numbers or {} if name not in lost)
    if not n_read and not known:
        first = f"; the first: {failed[0].name}: {failed[0].why}" if failed else ""
        raise BundleError(f"none of {len(failed)} files could be read{first}")
    return Summary(where, runs.name, n_read, known, sorted(failed, key=lambda m: m.name))


def _listed(paths: Sequence[Path]) -> list[BundleFile]:
    files: dict[tuple[str, str], BundleFile] = {}
    for path in paths:
        for file in (f for p in _matching(path) for f in walk(p, None)):
            if file.path.name != "bundle.toml":
                here = replace(file, path=file.path.absolute())
                files.setdefault((str(file.path.resolve()), file.part), here)
    if not files:
        raise BundleError("nothing to read in it", path=", ".join(map(str, paths)))
    return list(files.values())


def _matching(path: Path) -> list[Path]:
    """The path itself where it is there, else those that it fits as a pattern, by name.

    A shell that found a pattern in quotes leaves it to us; `**` stands for folders below.
    """
    fitting = glob(str(path), recursive=True)  # noqa: PTH207 - the pattern has its own root
    found = {path} if path.exists() else set(map(Path, fitting))
    if not found:
        raise BundleError("no such file or folder", path=str(path), hint="check the path")
    return sorted(p for p in found if found.isdisjoint(p.parents))  # `**` fits folder and file


def _look(runs: Runner, works: list[Work], say: Progress) -> list[list[Member]]:
    found: list[list[Member]] = [[] for _ in works]
    for done, (i, members) in enumerate(runs.run(look, works), start=1):
        died = [Member(works[i].file.name, works[i].file.part, why=DIED)]
        found[i] = died if members is None else members
        say("looking", done, len(works))
    again = [i for i, members in enumerate(found) if any(m.why for m in members)]
    for n, members in runs.run(look, [works[i] for i in again]):
        found[again[n]] = members or found[again[n]]
    return found


def _number(
    store: Store, works: list[Work], looked: list[list[Member]]
) -> tuple[list[Work], int]:
    """A number for each source that is not there yet, the lowest ones that are free in the order of the listing.

    So a run that goes on after a killed one gives each the number that it had, and writes over what was left.
    """
    records = [r for r in read_records(store) if r["status"] != "failed"]
    keys = {f"{r['part']}-{r['sha256']}" for r in records}
    taken = {int(r["id"]) for r in records}
    free = (number for number in count(1) if number not in taken)
    numbered, known = [], 0
    for work, members in zip(works, looked, strict=True):
        numbers: dict[str, int] = {}
        for member in members:
            if member.why:
                continue
            if member.key in keys:
                known += 1
                continue
            keys.add(member.key)
            numbers[member.name] = next(free)
        if numbers:
            numbered.append(replace(work, numbers=numbers))
    return numbered, known


def _read(runs: Runner, works: list[Work], say: Progress) -> list[Member]:
    """Read all; what fails is tried once more, after everything else."""
    failed: list[Member] = []
    again: list[Work] = []
    for done, (i, members) in enumerate(runs.run(shard, works), start=1):
        say("reading", done, len(works))
        if members is None:
            numbers = works[i].numbers or {}
            failed += [Member(name, works[i].file.part, why=DIED) for name in numbers]
        elif members:
            numbers = works[i].numbers or {}
            again.append(replace(works[i], numbers={m.name: numbers[m.name] for m in members}))
    for i, members in runs.run(shard, again):
        numbers = again[i].numbers or {}
        died = [Member(name, again[i].file.part, why=DIED) for name in numbers]
        failed += died if members is None else members
    return failed


def _record_failures(store: Store, failed: Iterable[Member], works: list[Work]) -> None:
    """Keep a record of each file that failed; those of files that were read now go."""
    new: dict[str, dict[str, Any]] = {}
    for member in failed:
        digest = sha256(f"{member.part}/{member.name}".encode()).hexdigest()
        new[f"failed-{digest}"] = {
            "status": "failed", "name": member.name, "part": member.part, "why": member.why
        }  # fmt: skip
    for record in read_records(store):
        if record["status"] != "failed" or record["key"] in new:
            continue
        name = str(record["name"])
        if any(name == w.file.name or name.startswith(f"{w.file.name}!") for w in works):
            store.remove(f"{RECORDS}/{record['key']}.json")
    for key, facts in new.items():
        keep(store, key, facts)
