"""Spans as OpenTelemetry's console exporter prints them: JSON objects after each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import LIMIT_BYTES, mapping, sketch
from rca.parsers.span_rows import KINDS, SpanRow, SpanRows, joined, normal_id, resource_json
from rca.parsers.stream import read_all
from rca.parsers.times import iso_ns

_STATUS = {"ERROR": "error", "OK": "ok"}


def objects(text: str) -> Iterator[dict[str, Any] | None]:
    """The JSON objects in a text, whatever stands between them; None for one that is cut."""
    decode = json.JSONDecoder().raw_decode
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decode(text, at)
        except (ValueError, RecursionError):
            yield None
            end = text.find("\n{", at + 1)
            if end < 0:
                return
        else:
            yield value if isinstance(value, dict) else None
        at = text.find("{", end)


def _time(text: Any) -> int | None:
    return iso_ns(text) if isinstance(text, str) else None


def _ids(context: Any) -> tuple[str, str]:
    told = mapping(context)
    return normal_id(str(told.get("trace_id", ""))) or "", normal_id(
        str(told.get("span_id", ""))
    ) or ""


def _add(span: dict[str, Any], rows: SpanRows) -> None:
    trace_id, span_id = _ids(span.get("context"))
    start, end = _time(span.get("start_time")), _time(span.get("end_time"))
    kind = str(span.get("kind", "")).rpartition(".")[2].lower()
    resource = mapping(mapping(span.get("resource")).get("attributes"))
    service = resource.get("service.name")
    status = str(mapping(span.get("status")).get("status_code", "")).upper()
    parent = span.get("parent_id")
    rows.add(
        SpanRow(
            trace_id,
            span_id,
            normal_id(parent) if isinstance(parent, str) else None,
            None if service is None else str(service),
            str(span.get("name", "")),
            kind if kind in KINDS else None,
            start,
            None if start is None or end is None else end - start,
            _STATUS.get(status, "unset"),
            joined(mapping(span.get("attributes")), resource_json(resource)),
        )
    )
    for event in span.get("events") or ():
        ts_ns = _time(event.get("timestamp"))
        if ts_ns is not None:
            rows.add_event(
                trace_id,
                span_id,
                ts_ns,
                str(event.get("name", "")),
                mapping(event.get("attributes")),
            )
    for link in span.get("links") or ():
        rows.add_link(
            trace_id, span_id, _ids(link.get("context")), mapping(link.get("attributes"))
        )


def _is_span(found: Any) -> bool:
    return {"context", "start_time", "name"} <= set(mapping(found))


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, LIMIT_BYTES)
    rows = SpanRows(sink)
    bad = 0
    for found in objects(data.decode("utf-8", "replace")):
        if found is not None and _is_span(found):
            _add(found, rows)
        else:
            bad += 1
    rows.flush()
    if damage:
        sink.note("warning", "truncated", damage, lost=True)
    if bad:
        sink.count_elements(bad)
        sink.note(
            "warning", "bad_span", "objects that are cut or no spans", count=bad, lost=True
        )
    if not rows.count:
        raise ParseError("not one span can be read", path=str(path))


def _recognise(head: Head) -> bool:
    found = mapping(sketch(head).value)
    return _is_span(found) and "trace_id" in mapping(found["context"])


FORMAT = Format("otel_console", "trace", _recognise, _read)
