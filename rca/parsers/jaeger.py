"""Jaeger's own JSON: what its UI downloads and its query API answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.span_rows import (
    KINDS,
    Gathered,
    Place,
    SpanColumns,
    SpanRows,
    joined_each,
    resource_json,
)
from rca.parsers.stream import read_head

_STATUS = {"ERROR": "error", "OK": "ok"}
_NUMBERS: dict[str, Callable[[str], int | float]] = {"int64": int, "float64": float}
_TRUE = (True, "true", "1", "True")


class Tag(msgspec.Struct, gc=False):
    """A tag or a field of a log."""

    key: str
    value: Any = None
    type: str = "string"


class Reference(msgspec.Struct, gc=False):
    """A reference to another span."""

    spanID: str  # noqa: N815
    traceID: str = ""  # noqa: N815
    refType: str = "CHILD_OF"  # noqa: N815


class Log(msgspec.Struct, gc=False):
    """Something logged in a span."""

    timestamp: int = 0
    fields: list[Tag] | None = None


class Process(msgspec.Struct, gc=False):
    """The process that recorded spans."""

    serviceName: str | None = None  # noqa: N815
    tags: list[Tag] | None = None


class Span(msgspec.Struct, gc=False):
    """A span; times are microseconds."""

    traceID: str  # noqa: N815
    spanID: str  # noqa: N815
    operationName: str = ""  # noqa: N815
    startTime: int | None = None  # noqa: N815
    duration: int | None = None
    parentSpanID: str | None = None  # noqa: N815
    references: list[Reference] | None = None
    tags: list[Tag] | None = None
    logs: list[Log] | None = None
    processID: str | None = None  # noqa: N815
    process: Process | None = None
    warnings: list[str] | None = None


class Trace(msgspec.Struct, gc=False):
    """A trace with the processes that its spans name."""

    spans: list[Span] | None = None
    processes: dict[str, msgspec.Raw] | None = None
    warnings: list[str] | None = None


class _Answer(msgspec.Struct, gc=False):
    data: list[msgspec.Raw] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_trace = msgspec.json.Decoder(Trace, strict=False).decode
_decode_process = msgspec.json.Decoder(Process | None, strict=False).decode
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def values(tags: Iterable[Tag] | None) -> dict[str, Any]:
    """Tags by key, with values of the type they claim."""
    return {
        t.key: t.value if t.type == "string" or not isinstance(t.value, str) else _typed(t)
        for t in tags or ()
    }


def _typed(tag: Tag) -> Any:
    """A value that came as text though it claims to be something else."""
    try:
        if tag.type == "bool":
            return tag.value in _TRUE
        return _NUMBERS[tag.type](tag.value) if tag.type in _NUMBERS else tag.value
    except ValueError:
        return tag.value


@lru_cache(maxsize=1024)
def _place_of(text: bytes) -> Place:
    """The same processes come with every trace."""
    return _place(_decode_process(text))


def _place(process: Process | None) -> Place:
    if process is None:
        return None, b"{}"
    return process.serviceName or None, resource_json(values(process.tags))


class SpanReader:
    """Turns Jaeger spans into rows, and keeps count of the warnings on them."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self.rows = sink, SpanRows(sink)
        self._gathered = Gathered(self._write)

    def add(self, spans: list[Span], places: list[Place]) -> None:
        """Spans, and for each of them who recorded it."""
        self._gathered.add(spans, places)
        for span in spans:
            if span.warnings:
                self.warn(span.warnings)

    def flush(self) -> None:
        """Write what is left."""
        self._gathered.flush()
        self.rows.flush()

    def _write(self, spans: list[Span], places: list[Place]) -> None:
        tags = [values(span.tags) for span in spans]
        starts = [span.startTime * 1000 if span.startTime else None for span in spans]
        columns = SpanColumns(
            [span.traceID for span in spans],
            [span.spanID for span in spans],
            [(self._link(s) if s.references else s.parentSpanID) or None for s in spans],
            [service for service, _ in places],
            [span.operationName for span in spans],
            [_kind(found["span.kind"]) if "span.kind" in found else None for found in tags],
            starts,
            [
                None if span.duration is None or start is None else span.duration * 1000
                for span, start in zip(spans, starts, strict=True)
            ],
            [_status(found) for found in tags],
            joined_each(tags, [resource for _, resource in places]),
        )
        self.rows.add_columns(columns)
        for span in spans:
            if span.logs:
                self._add_logs(span)

    def _add_logs(self, span: Span) -> None:
        for log in span.logs or ():
            fields = values(log.fields)
            named = next((k for k in ("event", "message", "log") if k in fields), None)
            name = str(fields.pop(named)) if named else "log"
            self.rows.add_event(span.traceID, span.spanID, log.timestamp * 1000, name, fields)

    def _link(self, span: Span) -> str | None:
        """The parent among the references; the others become links."""
        parent: Reference | None = None
        for other in span.references or ():
            same = other.traceID in (span.traceID, "")
            if parent is None and same and other.refType == "CHILD_OF":
                parent = other
                continue
            target = other.traceID or span.traceID, other.spanID
            self.rows.add_link(span.traceID, span.spanID, target, {"ref_type": other.refType})
        return parent.spanID if parent else span.parentSpanID

    def warn(self, warnings: Iterable[str]) -> None:
        """Warnings that Jaeger put on a span or a trace."""
        for text in warnings:
            if "adjusted" in text:
                self._sink.note(
                    "info",
                    "clock_skew_adjusted",
                    "Jaeger moved spans to mend clock skew: their times are not as recorded",
                    example=text,
                )
            else:
                self._sink.note(
                    "info", "jaeger_warning", "spans with a warning of Jaeger", example=text
                )


def _kind(told: Any) -> str | None:
    kind = str(told)
    kind = kind if kind in KINDS else kind.lower()
    return kind if kind in KINDS else None


def _status(tags: dict[str, Any]) -> str:
    if "error" in tags and tags["error"] in _TRUE:
        return "error"
    code = tags.get("otel.status_code")
    return "unset" if code is None else _STATUS.get(str(code).upper(), "unset")


def _traces(data: bytes) -> list[msgspec.Raw]:
    """The traces of a document, each still JSON text."""
    if data.lstrip()[:1] == b"[":
        return _decode_parts(data)
    try:
        found = _decode_answer(data).data
    except msgspec.ValidationError:  # one trace instead of a list
        found = None
    if found is not None:
        return found
    document: dict[str, msgspec.Raw] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if "data" not in document:
        return [msgspec.Raw(data)]
    return [document["data"]]


def _read(path: Path, sink: Sink) -> None:
    document = sketch(read_head(path)).value
    if isinstance(document, dict) and document.get("errors") and not document.get("data"):
        raise ParseError(f"holds an error of Jaeger: {document['errors']}", path=str(path))
    wrapped = isinstance(document, dict) and "data" in document
    depth = 3 if isinstance(document, list) else 2
    if wrapped:
        depth = 4 if isinstance(mapping(document)["data"], list) else 3
    traces, whole = read_whole(path, depth, _traces)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    reader = SpanReader(sink)
    for raw in traces:
        try:
            _add_trace(_decode_trace(raw), reader)
        except msgspec.DecodeError as error:
            sink.count_elements(1)
            sink.note(
                "warning", "bad_trace", f"traces not as Jaeger has them: {error}", lost=True
            )
    reader.flush()
    if traces and not reader.rows.count and whole.damage is None:
        sink.note("info", "no_spans", "traces without spans")


def _add_trace(trace: Trace, reader: SpanReader) -> None:
    places = {key: _place_of(bytes(text)) for key, text in (trace.processes or {}).items()}
    spans = trace.spans or []
    reader.add(spans, [places.get(s.processID or "") or _place(s.process) for s in spans])
    if trace.warnings:
        reader.warn(trace.warnings)


def _recognise(head: Head) -> bool:
    document = sketch(head).value
    inner = mapping(document).get("data", document)
    trace = mapping(first(inner) if isinstance(inner, list) else inner)
    if isinstance(trace.get("spans"), list) and ("traceID" in trace or "processes" in trace):
        return True
    answer = mapping(document)
    return not answer.get("data") and {"data", "total", "errors"} <= set(answer)


FORMAT = Format("jaeger_json", "trace", _recognise, _read)
