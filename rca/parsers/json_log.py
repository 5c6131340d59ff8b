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
from rca.parsers.json_text import first, listed, mapping, read_lines, read_whole, sketch
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


_IDS = {
    **dict.fromkeys(("trace_id", "traceId", "traceID", "traceid", "trace.id"), "trace_id"),
    **dict.fromkeys(("span_id", "spanId", "spanID", "spanid", "span.id"), "span_id"),
}
_SPAN_ONLY = {
    "parentSpanId", "startTime", "startTimeUnixNano", "endTime", "traceGroup",
    "instrumentationScope.name",
}  # fmt: skip
_MOST_FIELDS = 64
_MOST_CHARACTERS = 512


class _Record(NamedTuple):
    """`left_out`: fields that are too many, too long, or no single values."""

    ts_ns: int | None
    service: str | None
    level: str | None
    message: str
    fields: dict[str, Any]
    left_out: int
    line: Line | None = None


def _pick(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    name = _picked(record, names)
    return None if name is None else record[name]


def _picked(record: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((n for n in names if record.get(n) not in (None, "")), None)


def _record(fields: Mapping[str, Any]) -> _Record | None:
    """What a record says; None when it has no message and tells of no request either."""
    message = _pick(fields, _MESSAGE)
    if message is None:
        found = access_lines.of_record(fields)
        return found and _Record(
            found.ts_ns, None, None, found.message, {}, 0, of_access(found)
        )
    time, service = _pick(fields, _TIME), _pick(fields, _SERVICE)
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    ts_ns = (
        point_ns(time if isinstance(time, str) else msgspec.json.encode(time).decode())
        if time
        else None
    )
    name = mapping(service).get("name", service)
    told = {_picked(fields, names) for names in (_TIME, _MESSAGE, _LEVEL, _SERVICE)}
    rest, left_out = _rest({k: v for k, v in fields.items() if k not in told})
    return _Record(
        ts_ns,
        None if name is None else str(name),
        level_of(_pick(fields, _LEVEL)),
        text.rstrip("\n"),
        rest,
        left_out,
    )


def _rest(record: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Single values of a record, those of objects in it as 'object.name', and how many are left out."""
    found: dict[str, Any] = {}
    left_out = 0
    for key, value in record.items():
        inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else None
        for name, one in ({key: value} if inner is None else inner).items():
            if one is None or one == "":
                continue
            if len(found) < _MOST_FIELDS and _is_small(one):
                told = _IDS.get(name)
                found[told or name] = str(one).lower() if told else one
            else:
                left_out += 1
    return found, left_out


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_CHARACTERS
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, float)


def _loki(answer: Any, sink: Sink) -> Iterator[_Record]:
    bad = 0
    for stream in listed(mapping(mapping(answer).get("data")).get("result")):
        labels = mapping(mapping(stream).get("stream"))
        service, level = (
            _pick(labels, _LOKI_SERVICE),
            level_of(_pick(labels, ("level", "detected_level"))),
        )
        for entry in listed(mapping(stream).get("values")):
            if not isinstance(entry, list) or len(entry) < 2:
                bad += 1
                continue
            told = mapping(entry[2]) if entry[2:] else {}
            ts_ns = point_ns(str(entry[0]))
            yield _Record(ts_ns, service, level, str(entry[1]), *_rest({**labels, **told}))
    _note_bad(sink, bad, "entries without a time or a line")


def _lines(path: Path, sink: Sink) -> Iterator[_Record]:
    blocks = Blocks(path)
    bad, problem, kept = 0, "", 0
    for line in read_lines(blocks):
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            bad, problem = bad + 1, str(error)
            continue
        record = _record(fields)
        if record is None:
            bad, problem = bad + 1, "neither a message nor a request"
            continue
        kept += 1
        yield record
    _note_bad(sink, bad, f"lines that are no records: {problem}")
    if bad and not kept:
        raise ParseError(f"not one record can be read: {problem}", path=str(path))
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _note_bad(sink: Sink, count: int, message: str) -> None:
    if count:
        sink.count_elements(count)
        sink.note("warning", "bad_line", message, count=count, lost=True)


def _read(path: Path, sink: Sink) -> None:
    head = read_head(path)
    reader = Reader(sink, path, year_in(head))
    if _is_loki(head):
        answer, whole = read_whole(path, 5, msgspec.json.decode)
        if whole.damage:
            sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
        records = _loki(answer, sink)
    else:
        records = _lines(path, sink)
    left_out = 0
    for record in records:
        left_out += record.left_out
        line = record.line or parse(record.message)
        reader.add(
            record.message, line, record.ts_ns, record.service, record.level, record.fields
        )
    reader.finish()
    if left_out:
        sink.note(
            "info", "fields_left_out", "fields of records that are lists, long or very many",
            count=left_out,
        )  # fmt: skip


def _is_loki(head: Head) -> bool:
    data = mapping(mapping(sketch(head).value).get("data"))
    return data.get("resultType") == "streams"


def _recognise(head: Head) -> bool:
    if _is_loki(head):
        return True
    found = sketch(head).value
    record = mapping(found)
    if _SPAN_ONLY & set(record) or first(found):
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
