"""OTLP traces in binary: requests as a collector receives them, one or many with their lengths."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.otlp_wire import messages, signal
from rca.parsers.protobuf import Value, WireError, chunk, double, fields, number, signed, text
from rca.parsers.span_rows import SpanRow, SpanRows, joined, resource_json
from rca.parsers.stream import HEAD_BYTES, read_all

_LIMIT_BYTES = 2_147_483_648
_KINDS = (None, "internal", "server", "client", "producer", "consumer")
_STATUS = ("unset", "ok", "error")


def _any(message: bytes) -> Any:
    for field, value in fields(message):
        if field in _VALUES:
            return _VALUES[field](value)
    return None


def _attributes(pairs: list[Value]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        parts = dict(fields(chunk(pair)))
        found[text(parts.get(1, b""))] = _any(chunk(parts[2])) if 2 in parts else None
    return found


def _repeated(message: Value) -> list[Value]:
    return [value for field, value in fields(chunk(message)) if field == 1]


# The fields of an AnyValue; one of them is there.
_VALUES: dict[int, Callable[[Value], Any]] = {
    1: text,
    2: bool,
    3: signed,
    4: double,
    5: lambda value: [_any(chunk(inner)) for inner in _repeated(value)],
    6: lambda value: _attributes(_repeated(value)),
    7: lambda value: base64.b64encode(chunk(value)).decode(),
}


def _gathered(message: bytes, *, cut: bool = False) -> dict[int, list[Value]]:
    """The values of a message by field number; the last one may be a part when it is `cut`."""
    found: dict[int, list[Value]] = {}
    for field, value in fields(message, cut=cut):
        found.setdefault(field, []).append(value)
    return found


def _one(parts: dict[int, list[Value]], field: int) -> Value | None:
    return parts[field][-1] if field in parts else None


def _hex(parts: dict[int, list[Value]], field: int) -> str:
    value = _one(parts, field)
    raw = b"" if value is None else chunk(value)
    return raw.hex() if any(raw) else ""


def _are_ids(trace_id: str, span_id: str) -> bool:
    """Whether the first two fields are a span's ids; in a metric they are its name and description."""
    return len(trace_id) in (0, 32) and len(span_id) in (0, 16)


def _ns(parts: dict[int, list[Value]], field: int) -> int | None:
    value = _one(parts, field)
    return None if value is None else number(value) or None


def _add_span(message: bytes, service: str | None, resource: bytes, rows: SpanRows) -> None:
    parts = _gathered(message)
    trace_id, span_id = _hex(parts, 1), _hex(parts, 2)
    if not _are_ids(trace_id, span_id):
        raise WireError("no spans, perhaps metrics or logs")
    start, end = _ns(parts, 7), _ns(parts, 8)
    kind = _ns(parts, 6) or 0
    status = dict(fields(chunk(_one(parts, 15) or b"")))
    code = number(status.get(3, 0))
    rows.add(
        SpanRow(
            trace_id,
            span_id,
            _hex(parts, 4) or None,
            service,
            text(_one(parts, 5) or b""),
            _KINDS[kind] if kind < len(_KINDS) else None,
            start,
            None if start is None or end is None else end - start,
            _STATUS[code] if code < len(_STATUS) else "unset",
            joined(_sampled(parts) | _attributes(parts.get(9, [])), resource),
        )
    )
    for value in parts.get(11, []):
        event = _gathered(chunk(value))
        name = text(_one(event, 2) or b"")
        rows.add_event(
            trace_id, span_id, _ns(event, 1) or 0, name, _attributes(event.get(3, []))
        )
    for value in parts.get(13, []):
        link = _gathered(chunk(value))
        target = _hex(link, 1), _hex(link, 2)
        rows.add_link(trace_id, span_id, target, _attributes(link.get(4, [])))


def _sampled(parts: dict[int, list[Value]]) -> dict[str, Any]:
    """The trace state of a span in which its sampler says how it decided; else nothing."""
    state = text(_one(parts, 3) or b"")
    return {"tracestate": state} if "ot=" in state else {}


def _add_resource(message: bytes, rows: SpanRows, *, cut: bool) -> None:
    parts = _gathered(message, cut=cut)
    resource = _attributes(_gathered(chunk(_one(parts, 1) or b"")).get(1, []))
    service = resource.get("service.name")
    for group in parts.get(2, []):
        scope = _gathered(chunk(group), cut=cut)
        about = dict(fields(chunk(_one(scope, 1) or b"")))
        name, version = text(about.get(1, b"")), text(about.get(2, b""))
        encoded = resource_json(resource, name, version)
        for span in scope.get(2, []):
            _add_span(chunk(span), None if service is None else str(service), encoded, rows)


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, _LIMIT_BYTES)
    rows = SpanRows(sink)
    found = messages(data)
    if found.rest:
        damage = damage or "the end of the last request is missing"
    try:
        for request in filter(None, (*found.whole, found.rest)):
            cut = request is found.rest
            for field, message in fields(request, cut=cut):
                if field == 1:
                    _add_resource(chunk(message), rows, cut=cut)
    except WireError as error:
        damage = damage or str(error)
    if damage and not rows.count:
        raise ParseError(f"no span in it can be read: {damage}", path=str(path))
    rows.flush()
    if damage:
        sink.note("warning", "truncated", f"cut short: {damage}", lost=True)


def _recognise(head: Head) -> bool:
    """Requests with spans, or a sound one that has none: nothing else begins as they do."""
    if signal(head) == "traces":
        return True
    if head.data[:1] != b"\x0a" or len(head.data) >= HEAD_BYTES:
        return False
    try:
        parts = _gathered(head.data)
        scopes = [scope for group in parts[1] for scope in _gathered(chunk(group)).get(2, [])]
        return set(parts) == {1} and not any(2 in _gathered(chunk(scope)) for scope in scopes)
    except (WireError, KeyError):
        return False


FORMAT = Format("otlp_proto", "trace", _recognise, _read)
