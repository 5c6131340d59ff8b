"""Logs as JSON: one record a line (Docker, journald, applications), or an answer of Loki."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rca.errors import ParseError
from rca.parsers import access_lines
from rca.parsers.engine_lines import Line, of_access, parse
from rca.parsers.engine_log import Reader, year_in
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_lines, read_whole, sketch
from rca.parsers.log_rows import level_of
from rca.parsers.stream import Blocks, read_head
from rca.parsers.times import point_ns

_TIME = (
    "time",
    "timestamp",
    "ts",
    "@timestamp",
    "datetime",
    "asctime",
    "date",
    "__REALTIME_TIMESTAMP",
)
_MESSAGE = ("message", "msg", "log", "MESSAGE", "line", "event")
_LEVEL = ("level", "severity", "levelname", "lvl", "log.level", "PRIORITY")
_SERVICE = (
    "service",
    "service.name",
    "logger",
    "name",
    "app",
    "container",
    "SYSLOG_IDENTIFIER",
    "_SYSTEMD_UNIT",
)
_LOKI_SERVICE = ("service_name", "app", "container", "job", "pod", "service")


class _Record(NamedTuple):
    ts_ns: int | None
    service: str | None
    level: str | None
    message: str
    line: Line | None = None


def _pick(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((record[n] for n in names if record.get(n) not in (None, "")), None)


def _record(fields: Mapping[str, Any]) -> _Record | None:
    """What a record says; None when it has no message and tells of no request either."""
    message = _pick(fields, _MESSAGE)
    if message is None:
        found = access_lines.of_record(fields)
        return found and _Record(found.ts_ns, None, None, found.message, of_access(found))
    time, service = _pick(fields, _TIME), _pick(fields, _SERVICE)
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    ts_ns = (
        point_ns(time if isinstance(time, str) else msgspec.json.encode(time).decode())
        if time
        else None
    )
    name = mapping(service).get("name", service)
    return _Record(
        ts_ns,
        None if name is None else str(name),
        level_of(_pick(fields, _LEVEL)),
        text.rstrip("\n"),
    )


def _loki(answer: Any) -> Iterator[_Record]:
    for stream in mapping(mapping(answer).get("data")).get("result") or ():
        labels = mapping(mapping(stream).get("stream"))
        service, level = (
            _pick(labels, _LOKI_SERVICE),
            level_of(_pick(labels, ("level", "detected_level"))),
        )
        for entry in mapping(stream).get("values") or ():
            yield _Record(point_ns(str(entry[0])), service, level, str(entry[1]))


def _lines(path: Path, sink: Sink) -> Iterator[_Record]:
    blocks = Blocks(path)
    bad, problem, kept = 0, "", 0
    for line in read_lines(blocks):
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            bad, problem = bad + 1, str(error)
            continue
        record = _record(fields)
        if record is None:
            bad, problem = bad + 1, "neither a message nor a request"
            continue
        kept += 1
        yield record
    if bad:
        sink.count_elements(bad)
        sink.note(
            "warning", "bad_line", f"lines that are no records: {problem}", count=bad, lost=True
        )
    if bad and not kept:
        raise ParseError(f"not one record can be read: {problem}", path=str(path))
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _read(path: Path, sink: Sink) -> None:
    head = read_head(path)
    reader = Reader(sink, path, year_in(head))
    if _is_loki(head):
        answer, whole = read_whole(path, 5, msgspec.json.decode)
        if whole.damage:
            sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
        records = _loki(answer)
    else:
        records = _lines(path, sink)
    for record in records:
        line = record.line or parse(record.message)
        reader.add(record.message, line, record.ts_ns, record.service, record.level)
    reader.finish()


def _is_loki(head: Head) -> bool:
    data = mapping(mapping(sketch(head).value).get("data"))
    return data.get("resultType") == "streams"


def _recognise(head: Head) -> bool:
    if _is_loki(head):
        return True
    found = sketch(head).value
    record = mapping(found)
    if {"traceId", "spanId", "instrumentationScope.name"} & set(record) or first(found):
        return False
    message = _pick(record, _MESSAGE)
    if message is None:
        return access_lines.of_record(record) is not None
    return (
        isinstance(message, str)
        and _pick(record, _TIME) is not None
        and _record(record) is not None
    )


FORMAT = Format("json_log", "log", _recognise, _read)
