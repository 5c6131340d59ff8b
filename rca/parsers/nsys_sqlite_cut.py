"""SQLite files that were cut: made such that SQLite reads what is left of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rca import scratch
from rca.parsers.format import Sink
from rca.parsers.stream import Blocks, compression

_HEADER_BYTES = 100
_LARGEST_PAGE = 65_536  # which the header writes as 1
_LARGEST_FILE = 2**40


@contextmanager
def readable(path: Path, sink: Sink) -> Iterator[Path]:
    """The file itself, or where it is compressed or cut a copy that SQLite reads; a cut is said."""
    with path.open("rb") as file:
        packed = compression(file.read(8))
    if not packed and not _missing_pages(path):
        yield path
        return
    with scratch.folder() as folder:
        copy, damage = folder / "export.sqlite", None
        if packed:
            blocks = Blocks(path)
            with copy.open("wb") as file:
                file.writelines(blocks)
            damage = blocks.damage
        else:
            shutil.copyfile(path, copy)
        if missing := _missing_pages(copy):
            damage = f"{damage or 'the file is cut short'}: {missing:,} pages of the database are missing"
            _add_missing(copy)
        if damage:
            sink.note("warning", "truncated", damage, lost=True)
        yield copy


def _layout(file: Path) -> tuple[int, int]:
    """Bytes of a page, 0 where the header does not say, and how many there should be."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return 0, 0
    size = int.from_bytes(header[16:18], "big")
    return _LARGEST_PAGE if size == 1 else size, int.from_bytes(header[28:32], "big")


def _missing_pages(file: Path) -> int:
    size, pages = _layout(file)
    return max(pages - file.stat().st_size // size, 0) if size else 0


def _add_missing(file: Path) -> None:
    """Put empty pages in their place, which take no room on disk: SQLite reads nothing of a file with fewer.

    A page that is cut itself is emptied, too. Where the header asks for more than any file has, it is let be.
    """
    size, pages = _layout(file)
    if size * pages <= _LARGEST_FILE:
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size // size * size)
            opened.truncate(size * pages)
