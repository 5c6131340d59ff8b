"""OTLP JSON: one object or one a line, also as Jaeger's API v3 and Tempo wrap it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_lines, read_whole, sketch
from rca.parsers.span_rows import (
    Gathered,
    Place,
    SpanColumns,
    SpanRows,
    joined_each,
    resource_json,
)
from rca.parsers.stream import Blocks, read_head

_KINDS = ("internal", "server", "client", "producer", "consumer")
_KIND: dict[int | str, str] = {
    **dict(enumerate(_KINDS, start=1)),
    **{f"SPAN_KIND_{kind.upper()}": kind for kind in _KINDS},
}
_STATUS: dict[int | str, str] = {
    1: "ok",
    "STATUS_CODE_OK": "ok",
    2: "error",
    "STATUS_CODE_ERROR": "error",
}


class AnyValue(msgspec.Struct, rename="camel", gc=False):
    """A value of one of OTLP's types; the field that is there says which."""

    string_value: str | None = None
    int_value: int | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None
    array_value: ArrayValue | None = None
    kvlist_value: KeyValues | None = None
    bytes_value: str | None = None


class ArrayValue(msgspec.Struct, gc=False):
    """An array value."""

    values: list[AnyValue] | None = None


class KeyValue(msgspec.Struct, gc=False):
    """An attribute."""

    key: str
    value: AnyValue | None = None


class KeyValues(msgspec.Struct, gc=False):
    """A map value."""

    values: list[KeyValue] | None = None


class _Event(msgspec.Struct, rename="camel", gc=False):
    time_unix_nano: int = 0
    name: str = ""
    attributes: list[KeyValue] | None = None


class _Link(msgspec.Struct, rename="camel", gc=False):
    trace_id: str = ""
    span_id: str = ""
    attributes: list[KeyValue] | None = None


class _Status(msgspec.Struct, gc=False):
    code: int | str | None = None
    message: str = ""


class _Span(msgspec.Struct, rename="camel", gc=False):
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    trace_state: Any = None
    name: str = ""
    kind: int | str | None = None
    start_time_unix_nano: int = 0
    end_time_unix_nano: int = 0
    attributes: list[KeyValue] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None


class _Scope(msgspec.Struct, gc=False):
    name: str = ""
    version: str = ""


class _ScopeSpans(msgspec.Struct, rename="camel", gc=False):
    scope: _Scope | None = None
    instrumentation_library: _Scope | None = None
    spans: list[_Span] | None = None


class Resource(msgspec.Struct, gc=False):
    """Who made the telemetry."""

    attributes: list[KeyValue] | None = None


class _ResourceSpans(msgspec.Struct, rename="camel", gc=False):
    resource: Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None
    instrumentation_library_spans: list[_ScopeSpans] | None = None


class Document(msgspec.Struct, rename="camel", gc=False):
    """A document, or a line of a file of JSON lines."""

    resource_spans: list[_ResourceSpans] | None = None
    batches: list[_ResourceSpans] | None = None
    result: Document | None = None
    trace: Document | None = None
    resource_metrics: list[msgspec.Raw] | None = None
    resource_logs: list[msgspec.Raw] | None = None


_Spans = Gathered[_Span]
_decode = msgspec.json.Decoder(Document, strict=False).decode


def plain(value: AnyValue | None) -> Any:
    """The value itself."""
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return value.int_value
    if value.double_value is not None:
        return value.double_value
    return _rarer(value)


def _rarer(value: AnyValue) -> Any:
    if value.bool_value is not None:
        return value.bool_value
    if value.array_value is not None:
        return [plain(v) for v in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return attributes(value.kvlist_value.values)
    return value.bytes_value


def attributes(pairs: Iterable[KeyValue] | None) -> dict[str, Any]:
    """Attributes by key."""
    if not pairs:
        return {}
    return {pair.key: plain(pair.value) for pair in pairs}


def _resources(document: Document) -> Iterator[_ResourceSpans]:
    yield from document.resource_spans or ()
    yield from document.batches or ()
    for inner in (document.result, document.trace):
        if inner is not None:
            yield from _resources(inner)


def _add(document: Document, spans: _Spans) -> None:
    for group in _resources(document):
        resource = attributes(group.resource.attributes) if group.resource else {}
        service = resource.get("service.name")
        for scope in group.scope_spans or group.instrumentation_library_spans or ():
            by = scope.scope or scope.instrumentation_library
            encoded = resource_json(resource, by.name if by else "", by.version if by else "")
            place = None if service is None else str(service), encoded
            found = scope.spans or []
            spans.add(found, [place] * len(found))


def _write(rows: SpanRows, spans: list[_Span], places: list[Place]) -> None:
    starts = [span.start_time_unix_nano or None for span in spans]
    ends = [span.end_time_unix_nano or None for span in spans]
    columns = SpanColumns(
        [span.trace_id for span in spans],
        [span.span_id for span in spans],
        [span.parent_span_id or None for span in spans],
        [service for service, _ in places],
        [span.name for span in spans],
        [None if span.kind is None else _KIND.get(span.kind) for span in spans],
        starts,
        [
            None if start is None or end is None else end - start
            for start, end in zip(starts, ends, strict=True)
        ],
        ["unset" if span.status is None else _status(span.status) for span in spans],
        joined_each([_told(span) for span in spans], [resource for _, resource in places]),
    )
    rows.add_columns(columns)
    for span in spans:
        if span.events or span.links:
            _add_points(span, rows)


def _status(status: _Status) -> str:
    return "unset" if status.code is None else _STATUS.get(status.code, "unset")


def _told(span: _Span) -> dict[str, Any]:
    """The attributes of a span, and what its status says."""
    found = attributes(span.attributes)
    if span.status is not None and span.status.message:
        found.setdefault("otel.status_description", span.status.message)
    if span.trace_state and "ot=" in str(span.trace_state):  # how the sampler decided
        found.setdefault("tracestate", str(span.trace_state))
    return found


def _add_points(span: _Span, rows: SpanRows) -> None:
    """The events and links of a span."""
    for event in span.events or ():
        rows.add_event(
            span.trace_id, span.span_id, event.time_unix_nano, event.name, attributes(event.attributes),
        )  # fmt: skip
    for link in span.links or ():
        target = link.trace_id, link.span_id
        rows.add_link(span.trace_id, span.span_id, target, attributes(link.attributes))


def _read(path: Path, sink: Sink) -> None:
    rows = SpanRows(sink)
    spans = Gathered(partial(_write, rows))
    if starts_with_a_line(read_head(path)):
        _read_json_lines(path, spans, rows, sink)
    else:
        document, whole = read_whole(path, 7, _decode)
        if whole.damage:
            sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
        _add(cast(Document, document), spans)
    spans.flush()
    rows.flush()


def starts_with_a_line(head: Head) -> bool:
    """Whether the first line is a whole value, or too long for the head to tell."""
    line = head.data.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0].rstrip()
    if len(line) > 1024:
        return True
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _read_json_lines(path: Path, spans: _Spans, rows: SpanRows, sink: Sink) -> None:
    blocks = Blocks(path)
    bad, others, lines = 0, 0, 0
    for line in read_lines(blocks):
        lines += 1
        try:
            document = _decode(line.removeprefix(b"\xef\xbb\xbf"))
        except msgspec.DecodeError as error:
            bad += 1
            problem = str(error)
            continue
        others += document.resource_metrics is not None or document.resource_logs is not None
        _add(document, spans)
    if bad and lines == 1:
        _salvage_only_line(path, spans, sink)
    elif bad:
        sink.count_elements(bad)
        sink.note(
            "warning",
            "bad_line",
            f"lines that are no OTLP JSON: {problem}",
            count=bad,
            lost=True,
        )
    spans.flush()
    if bad and not rows.count:
        raise ParseError(f"none of {lines} lines can be read: {problem}", path=str(path))
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)
    if others:
        sink.note(
            "warning",
            "other_signal",
            "lines of metrics or logs among spans",
            count=others,
            lost=True,
        )


def _salvage_only_line(path: Path, spans: _Spans, sink: Sink) -> None:
    document, whole = read_whole(path, 7, _decode)
    sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    _add(cast(Document, document), spans)


def _recognise(head: Head) -> bool:
    document = mapping(sketch(head).value)
    for wrapper in ("result", "trace"):
        document = mapping(document[wrapper]) if wrapper in document else document
    if isinstance(document.get("resourceSpans"), list):
        return True
    batch = mapping(first(document.get("batches")))
    return "scopeSpans" in batch or "instrumentationLibrarySpans" in batch


FORMAT = Format("otlp_json", "trace", _recognise, _read)
