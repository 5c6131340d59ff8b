"""Zipkin JSON, version 2 and version 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.span_rows import SpanRow, SpanRows, joined, normal_id, resource_json

_EDGES = {
    "sr": "server",
    "ss": "server",
    "cs": "client",
    "cr": "client",
    "ms": "producer",
    "mr": "consumer",
}


class _Endpoint(msgspec.Struct, rename="camel"):
    service_name: str | None = None
    ipv4: str | None = None
    ipv6: str | None = None
    port: int | None = None


class _Annotation(msgspec.Struct):
    timestamp: int = 0
    value: str = ""
    endpoint: _Endpoint | None = None


class _BinaryAnnotation(msgspec.Struct):
    key: str
    value: Any = None
    endpoint: _Endpoint | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    id: str
    parent_id: str | None = None
    name: str | None = None
    kind: str | None = None
    timestamp: int | None = None
    duration: int | None = None
    shared: bool = False
    local_endpoint: _Endpoint | None = None
    remote_endpoint: _Endpoint | None = None
    tags: dict[str, Any] | None = None
    annotations: list[_Annotation] | None = None
    binary_annotations: list[_BinaryAnnotation] | None = None


_decode_all = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_span = msgspec.json.Decoder(_Span, strict=False).decode


def _spans(data: bytes) -> list[msgspec.Raw]:
    """The spans of a trace, or of a list of traces."""
    parts = _decode_all(data)
    if parts and bytes(parts[0]).lstrip()[:1] == b"[":
        return [span for trace in parts for span in _decode_all(trace)]
    return parts


def _place(endpoint: _Endpoint | None, prefix: str) -> dict[str, Any]:
    if endpoint is None:
        return {}
    told = {
        "service": endpoint.service_name,
        "ip": endpoint.ipv4 or endpoint.ipv6,
        "port": endpoint.port,
    }
    return {f"{prefix}.{key}": value for key, value in told.items() if value is not None}


def _local(span: _Span) -> _Endpoint | None:
    """Who recorded the span; version 1 says it on each annotation."""
    if span.local_endpoint is not None:
        return span.local_endpoint
    noted = [*(span.annotations or ()), *(span.binary_annotations or ())]
    return next((n.endpoint for n in noted if n.endpoint is not None), None)


def _kind(span: _Span) -> str | None:
    if span.kind:
        return span.kind.lower()
    edges = (_EDGES.get(a.value) for a in span.annotations or ())
    return next((edge for edge in edges if edge), None)


def _add(span: _Span, rows: SpanRows) -> None:
    trace_id = normal_id(span.trace_id) or span.trace_id
    span_id = normal_id(span.id) or span.id
    local = _local(span)
    tags = dict(span.tags or {})
    tags |= {b.key: b.value for b in span.binary_annotations or () if b.key not in ("sa", "ca")}
    status = "error" if "error" in tags or tags.get("otel.status_code") == "ERROR" else "unset"
    extra = _place(span.remote_endpoint, "peer") | (
        {"zipkin.shared": True} if span.shared else {}
    )
    start = span.timestamp * 1000 if span.timestamp else None
    rows.add(
        SpanRow(
            trace_id,
            span_id,
            normal_id(span.parent_id),
            (local.service_name if local else None) or None,
            span.name or "",
            _kind(span),
            start,
            None if start is None or span.duration is None else span.duration * 1000,
            status,
            joined(tags | extra, resource_json(_place(local, "endpoint"))),
        )
    )
    for note in span.annotations or ():
        if note.value not in _EDGES:
            rows.add_event(trace_id, span_id, note.timestamp * 1000, note.value, {})


def _read(path: Path, sink: Sink) -> None:
    found, whole = read_whole(path, 2, _spans)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    rows = SpanRows(sink)
    shared, bad, problem = 0, 0, ""
    for raw in cast(list[msgspec.Raw], found):
        try:
            span = _decode_span(raw)
        except msgspec.DecodeError as error:
            bad, problem = bad + 1, str(error)
            continue
        shared += span.shared
        _add(span, rows)
    rows.flush()
    if shared:
        sink.note(
            "info",
            "shared_ids",
            "server spans that share the id of the client's span",
            count=shared,
        )
    if bad:
        sink.count_elements(bad)
        sink.note(
            "warning",
            "bad_span",
            f"spans not as Zipkin has them: {problem}",
            count=bad,
            lost=True,
        )


def _recognise(head: Head) -> bool:
    found = first(sketch(head).value)
    span = mapping(first(found) if isinstance(found, list) else found)
    told = {
        "localEndpoint",
        "annotations",
        "binaryAnnotations",
        "timestamp",
        "duration",
        "kind",
    }
    return {"traceId", "id"} <= set(span) and bool(told & set(span))


FORMAT = Format("zipkin_json", "trace", _recognise, _read)
