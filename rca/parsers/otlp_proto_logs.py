"""OTLP logs in binary: requests as a collector receives them, one or many with their lengths."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rca.parsers.format import Format, Head, Sink
from rca.parsers.otlp_logs import Document, write
from rca.parsers.otlp_wire import read, signal


def _read(path: Path, sink: Sink) -> None:
    requests = read(path, "logs", sink)
    write((msgspec.convert(r, Document, strict=False) for r in requests), path, sink)


def _recognise(head: Head) -> bool:
    return signal(head) == "logs"


FORMAT = Format("otlp_proto_logs", "log", _recognise, _read)
