"""Nsight Systems' own reports (.nsys-rep, .qdrep): exported by nsys, then read as SQLite."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rca import nsys
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
    with path.open("rb") as file:
        packed = compression(file.read(8))
    if not packed:
        _read_report(path, sink, path)
        return
    with tempfile.NamedTemporaryFile(prefix="rca-", suffix=".nsys-rep") as copy:
        blocks = Blocks(path)
        for block in blocks:
            copy.write(block)
        copy.flush()
        if blocks.damage:
            raise ParseError(blocks.damage, path=str(path))
        _read_report(Path(copy.name), sink, path)


def _read_report(report: Path, sink: Sink, name: Path) -> None:
    with nsys.exported(report) as export:
        read_export(export, sink, name=str(name))
    sink.note("info", "exported", "read through an export made by the nsys program")


FORMAT = Format(name="nsys_report", kind="nsys", recognise=recognise, read=read)
