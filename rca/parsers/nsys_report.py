"""Nsight Systems' own reports (.nsys-rep, .qdrep): exported by nsys, then read as SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rca import nsys, scratch
from rca.errors import NsysError, ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.nsys_sqlite import read_export
from rca.parsers.stream import Blocks, compression


def recognise(head: Head) -> bool:
    """Whether it is a report of Nsight Systems."""
    return head.data.startswith(nsys.REPORT_MAGIC)


def read(path: Path, sink: Sink) -> None:
    """Write what the report holds to the sink.

    Raises:
        NsysError: There is no nsys program, or it cannot read this report.
        ParseError: It is compressed and damaged, and nsys makes nothing of what is left.
    """
    with _unpacked(path) as (report, damage):
        try:
            _read_report(report, sink, path)
        except NsysError as error:
            if damage:
                said = str(error).replace(f"{report}: ", "")
                raise ParseError(f"{damage}; {said}", path=str(path)) from error
            raise
        if damage:
            sink.note("warning", "truncated", damage, lost=True)


@contextmanager
def plain(path: Path) -> Iterator[Path]:
    """The report unpacked where it is compressed, else the file itself.

    Raises:
        ParseError: It is compressed and damaged.
    """
    with _unpacked(path) as (report, damage):
        if damage:
            raise ParseError(damage, path=str(path))
        yield report


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[Path, str | None]]:
    """The same, or what is left of it, and what was wrong."""
    with path.open("rb") as file:
        packed = compression(file.read(8))
    if not packed:
        yield path, None
        return
    with scratch.folder() as folder:
        copy = folder / "report.nsys-rep"
        blocks = Blocks(path)
        with copy.open("wb") as file:
            file.writelines(blocks)
        yield copy, blocks.damage


def _read_report(report: Path, sink: Sink, name: Path) -> None:
    with nsys.exported(report) as export:
        read_export(export, sink, name=str(name))
    sink.note("info", "exported", "read through an export made by the nsys program")


FORMAT = Format(name="nsys_report", kind="nsys", recognise=recognise, read=read)
