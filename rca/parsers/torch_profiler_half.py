"""The second half of a large recording, read by a second process at the same time.

The half is only taken when the first half ended exactly where the second begins; where it did not,
because the cut was wrong or the text is damaged, the first process reads on by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from rca import machine, programs, scratch
from rca.parsers.format import Rows, Sink
from rca.parsers.torch_profiler_events import EventTables
from rca.parsers.torch_profiler_reader import BLOCK_BYTES, SEPARATOR, Reader

MIN_BYTES = 67_108_864
_FIRST_SHARE = 0.47  # the first process also writes the rows of both
_SEARCH_BYTES = 1_048_576
_PATIENCE_S = 60.0
_SLOWEST_BYTES_PER_S = 2_000_000  # a fiftieth of what it reads on an idle machine


class Half(NamedTuple):
    """What the second process found; its rows lie in Arrow files, one for each table."""

    tables: dict[str, Path]
    totals: dict[str, Any]
    notes: list[dict[str, Any]]
    n_elements: int
    tail: bytes


def place(path: Path, first: int) -> int | None:
    """Where the second half may begin; None when one process is enough, or all there is.

    Args:
        path: A file that is not compressed.
        first: Where its events begin.
    """
    size = path.stat().st_size
    if size - first < MIN_BYTES or not sys.executable or machine.idle_processors() < 1:
        return None
    with path.open("rb") as file:
        file.seek(first + int((size - first) * _FIRST_SHARE))
        start, text = file.tell(), file.read(_SEARCH_BYTES)
    found = SEPARATOR.search(text)
    return start + found.start() + 1 if found else None


class SecondHalf:
    """A process that reads from a place to the end. Use `with`: it ends with the block."""

    def __init__(self, path: Path, start: int, base_ns: int) -> None:
        self._ends = ExitStack()
        self._folder = self._ends.enter_context(scratch.folder())
        # -P keeps the current directory, which may be a bundle, out of where modules come from.
        command = [sys.executable, "-P", "-m", __name__, str(path.absolute())]
        self._process = programs.start([*command, str(start), str(base_ns), str(self._folder)])
        self._timeout_s = _PATIENCE_S + (path.stat().st_size - start) / _SLOWEST_BYTES_PER_S

    def __enter__(self) -> SecondHalf:
        return self

    def __exit__(self, *_: object) -> None:
        programs.stop(self._process)
        self._ends.close()

    def result(self) -> Half | None:
        """What it found, when it is done; None when it failed, or takes far too long."""
        try:
            failed = self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if failed:
            return None
        folder = self._folder
        said = json.loads((folder / "said.json").read_text())
        tables = {p.stem: p for p in sorted(folder.glob("*.arrow"))}
        return Half(tables, **said, tail=(folder / "tail").read_bytes())


def take(half: Half, tables: EventTables, sink: Sink) -> bytes:
    """Give the rows and notes of the second half to the sink; returns what follows the events."""
    for table, path in half.tables.items():
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                sink.insert(table, _numbered(pa.Table.from_batches([batch]), tables.n_events))
    for note in half.notes:
        sink.note(**note)
    sink.count_elements(half.n_elements)
    tables.absorb(half.totals)
    return half.tail


def _numbered(rows: pa.Table, first_id: int) -> pa.Table:
    at = rows.schema.get_field_index("id")
    if at < 0:
        return rows
    from pyarrow import compute  # takes longer to import than a small file to read

    ids = compute.add(rows.column(at), first_id)
    return rows.set_column(at, rows.schema.field(at), ids)


class _Files:
    """A sink that writes each table to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []
        self.n_elements = 0

    def insert(self, table: str, rows: Rows) -> None:
        """See Sink."""
        if table not in self._writers:
            path = self._folder / f"{table}.arrow"
            self._writers[table] = pa.ipc.new_stream(str(path), rows.schema)
        self._writers[table].write_table(rows)

    def note(self, level: str, code: str, message: str, **more: Any) -> None:
        """See Sink."""
        self.notes.append({"level": level, "code": code, "message": message, **more})

    def describe(self, **_: Any) -> None:
        """See Sink."""

    def count_elements(self, n: int) -> None:
        """See Sink."""
        self.n_elements += n

    def close(self) -> None:
        """Write what is left."""
        for writer in self._writers.values():
            writer.close()


def read_blocks(file: BinaryIO, n_bytes: int | None = None) -> Iterator[bytes]:
    """The next bytes of a file, all of them or so many."""
    left = n_bytes
    while left is None or left > 0:
        block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
        if not block:
            return
        left = None if left is None else left - len(block)
        yield block


def _while_wanted(blocks: Iterator[bytes], folder: Path) -> Iterator[bytes]:
    """The blocks, as long as the process that asked for them lives."""
    asked_by = os.getppid()
    for block in blocks:
        if os.getppid() != asked_by:
            shutil.rmtree(folder, ignore_errors=True)
            sys.exit(1)
        yield block


def main(path: Path, start: int, base_ns: int, folder: Path) -> None:
    """Read from `start` to the end and leave what is found in `folder`."""
    sink = _Files(folder)
    tables = EventTables(sink, base_ns)
    reader = Reader(tables, sink)
    with path.open("rb") as file:
        file.seek(start)
        reader.feed(_while_wanted(read_blocks(file), folder))
    tail = reader.finish()
    sink.close()
    (folder / "tail").write_bytes(tail)
    said = {"totals": tables.totals(), "notes": sink.notes, "n_elements": sink.n_elements}
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
