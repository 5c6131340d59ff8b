"""OTLP metrics in binary: requests as a collector receives them, one or many with their lengths."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rca.parsers.format import Format, Head, Sink
from rca.parsers.otlp_metrics import Document, write
from rca.parsers.otlp_wire import read, signal


def _read(path: Path, sink: Sink) -> None:
    requests = read(path, "metrics", sink)
    write((msgspec.convert(r, Document, strict=False) for r in requests), path, sink)


def _recognise(head: Head) -> bool:
    return signal(head) == "metrics"


FORMAT = Format("otlp_proto_metrics", "metrics", _recognise, _read)
