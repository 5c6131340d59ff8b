"""Nsight Systems' own reports (.nsys-rep, .qdrep): exported by nsys, then read as SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rca import nsys, scratch
from rca.errors import ParseError
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
        ParseError: The file is damaged.
    """
    with plain(path) as report:
        _read_report(report, sink, path)


@contextmanager
def plain(path: Path) -> Iterator[Path]:
    """The report unpacked where it is compressed, else the file itself.

    Raises:
        ParseError: It is compressed and damaged.
    """
    with path.open("rb") as file:
        packed = compression(file.read(8))
    if not packed:
        yield path
        return
    with scratch.folder() as folder:
        copy = folder / "report.nsys-rep"
        blocks = Blocks(path)
        with copy.open("wb") as file:
            file.writelines(blocks)
        if blocks.damage:
            raise ParseError(blocks.damage, path=str(path))
        yield copy


def _read_report(report: Path, sink: Sink, name: Path) -> None:
    with nsys.exported(report) as export:
        read_export(export, sink, name=str(name))
    sink.note("info", "exported", "read through an export made by the nsys program")


FORMAT = Format(name="nsys_report", kind="nsys", recognise=recognise, read=read)
