"""OTLP logs as JSON: one object or one a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import mapping, read_documents, sketch
from rca.parsers.log_rows import LogRows, level_of
from rca.parsers.otlp import AnyValue, KeyValue, Resource, attributes, plain, starts_with_a_line
from rca.parsers.stream import read_head
from rca.parsers.times import MAX_NS

# Severity numbers come in fours: trace, debug, info, warn, error, fatal.
_SEVERITY = ("debug", "debug", "info", "warning", "error", "critical")


class _Record(msgspec.Struct, rename="camel"):
    time_unix_nano: int = 0
    observed_time_unix_nano: int = 0
    severity_number: int | str = 0
    severity_text: str = ""
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    trace_id: str = ""
    span_id: str = ""


class _Scope(msgspec.Struct, rename="camel"):
    log_records: list[_Record] = []


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: Resource | None = None
    scope_logs: list[_Scope] = []


class Document(msgspec.Struct, rename="camel"):
    """OTLP's ExportLogsServiceRequest."""

    resource_logs: list[_ResourceLogs] = []


_decode = msgspec.json.Decoder(Document, strict=False).decode


def _level(record: _Record) -> str | None:
    told = level_of(record.severity_text) if not record.severity_text.isdigit() else None
    number = record.severity_number
    if told is None and isinstance(number, int) and 1 <= number <= 24:
        return _SEVERITY[(number - 1) // 4]
    return told


def _add(document: Document, rows: LogRows) -> None:
    for group in document.resource_logs:
        resource = attributes(group.resource.attributes if group.resource else None)
        service = resource.get("service.name")
        for scope in group.scope_logs:
            for record in scope.log_records:
                _add_record(record, None if service is None else str(service), rows)


def _add_record(record: _Record, service: str | None, rows: LogRows) -> None:
    body = plain(record.body)
    fields: dict[str, Any] = attributes(record.attributes)
    if record.trace_id:
        fields |= {"trace_id": record.trace_id.lower(), "span_id": record.span_id.lower()}
    message = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    ts_ns = record.time_unix_nano or record.observed_time_unix_nano or None
    if ts_ns is not None and ts_ns > MAX_NS:
        ts_ns = None
    rows.add(ts_ns, service, _level(record), message, fields)


def _documents(path: Path, sink: Sink) -> Iterator[Any]:
    lines = starts_with_a_line(read_head(path))
    other = "lines that are no OTLP JSON"
    return read_documents(path, sink, _decode, depth=6, lines=lines, other=other)


def _read(path: Path, sink: Sink) -> None:
    write(_documents(path, sink), path, sink)


def write(documents: Iterable[Document], path: Path, sink: Sink) -> None:
    """Write the log records of all documents to the sink.

    Raises:
        ParseError: There is none.
    """
    rows = LogRows(sink)
    for document in documents:
        _add(document, rows)
    rows.flush()
    if not rows.count:
        raise ParseError("holds no log records that can be read", path=str(path))


def _recognise(head: Head) -> bool:
    return isinstance(mapping(sketch(head).value).get("resourceLogs"), list)


FORMAT = Format("otlp_logs", "log", _recognise, _read)
