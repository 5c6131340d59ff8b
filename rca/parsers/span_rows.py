"""Rows of the tables span, span_event and span_link, gathered and written in batches."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rca.parsers.format import Sink
from rca.parsers.times import MAX_NS

BATCH_ROWS = 20000
_HEX = re.compile(r"[0-9a-f]+").fullmatch
_NORMAL = "^0*[1-9a-f][0-9a-f]*$"
_ID_BYTES = (8, 16)
_ID_COLUMNS = {"trace_id", "span_id", "parent_id", "linked_trace_id", "linked_span_id"}
_TEXT, _TIME = pa.string(), pa.int64()
_SPAN = pa.schema(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("parent_id", _TEXT),
        ("service", _TEXT),
        ("name", _TEXT),
        ("kind", _TEXT),
        ("start_ns", _TIME),
        ("dur_ns", _TIME),
        ("status", _TEXT),
        ("attributes", _TEXT),
    ]
)
_EVENT = pa.schema(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("ts_ns", _TIME),
        ("name", _TEXT),
        ("attributes", _TEXT),
    ]
)
_LINK = pa.schema(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("linked_trace_id", _TEXT),
        ("linked_span_id", _TEXT),
        ("attributes", _TEXT),
    ]
)
KINDS = {"internal", "server", "client", "producer", "consumer"}
_encode = msgspec.json.Encoder().encode


def normal_id(text: str | None) -> str | None:
    """An id as the schema has it: lower-case hex; None for an absent or all-zero id.

    Takes hex in either case, with or without '0x', and base64 of 8 or 16 bytes; anything else
    stays as it stands.
    """
    if not text:
        return None
    lower = text.lower().removeprefix("0x")
    if _HEX(lower):
        return lower if lower.strip("0") else None
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text
    if len(raw) not in _ID_BYTES:
        return text
    return raw.hex() if any(raw) else None


def to_json(attributes: Mapping[str, Any]) -> bytes:
    """Attributes as the text of a JSON object."""
    return _encode(attributes)


def joined(attributes: Mapping[str, Any], resource: bytes) -> bytes:
    """Attributes of a span and the JSON text of its resource as one JSON object."""
    if not attributes:
        return resource
    if resource == b"{}":
        return _encode(attributes)
    return _encode(attributes)[:-1] + b"," + resource[1:]


def resource_json(resource: Mapping[str, Any], scope: str = "", version: str = "") -> bytes:
    """Attributes of a resource, prefixed, and its instrumentation scope, as a JSON object."""
    found = {f"resource.{key}": value for key, value in resource.items()}
    if scope:
        found["otel.scope.name"] = scope
    if version:
        found["otel.scope.version"] = version
    return _encode(found)


class SpanRow(NamedTuple):
    """One span; ids as they came, attributes the text of a JSON object."""

    trace_id: str
    span_id: str
    parent_id: str | None
    service: str | None
    name: str
    kind: str | None
    start_ns: int | None
    dur_ns: int | None
    status: str
    attributes: bytes


class SpanRows:
    """Gathers spans and writes them to the sink; call `flush` at the end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._spans: list[SpanRow] = []
        self._events: list[tuple[Any, ...]] = []
        self._links: list[tuple[Any, ...]] = []
        self.count = self._without_start = self._without_service = 0

    def add(self, span: SpanRow) -> None:
        """One span."""
        self._spans.append(span)
        self.count += 1
        if span.start_ns is None:
            self._without_start += 1
        if not span.service:
            self._without_service += 1
        if len(self._spans) >= BATCH_ROWS:
            self._write()

    def add_event(
        self, trace_id: str, span_id: str, ts_ns: int, name: str, attributes: Mapping[str, Any]
    ) -> None:
        """One event of a span."""
        self._events.append((trace_id, span_id, ts_ns, name, _encode(attributes)))

    def add_link(
        self, trace_id: str, span_id: str, other: tuple[str, str], attributes: Mapping[str, Any]
    ) -> None:
        """One link from a span to `other`, a trace id and a span id."""
        self._links.append((trace_id, span_id, *other, _encode(attributes)))

    def flush(self) -> None:
        """Write what is left, count the elements, note what is missing."""
        self._write()
        self._sink.count_elements(self.count)
        if self._without_start:
            self._sink.note(
                "warning",
                "no_start",
                "spans without a start time: kept, but on no time axis",
                count=self._without_start,
            )
        if self._without_service:
            self._sink.note(
                "warning",
                "no_service",
                "spans without service.name",
                count=self._without_service,
            )

    def _write(self) -> None:
        tables: tuple[tuple[str, pa.Schema, list[Any]], ...] = (
            ("span", _SPAN, self._spans),
            ("span_event", _EVENT, self._events),
            ("span_link", _LINK, self._links),
        )
        for table, schema, rows in tables:
            if rows:
                self._sink.insert(table, self._table(rows, schema))
                rows.clear()

    def _table(self, rows: list[Any], schema: pa.Schema) -> pa.Table:
        try:
            return _table(rows, schema)
        except (OverflowError, pa.ArrowInvalid):
            sound = [
                row for row in rows if all(abs(v) <= MAX_NS for v in row if isinstance(v, int))
            ]
            self._sink.note(
                "warning",
                "bad_time",
                "spans, events or links with times beyond the year 2262: left out",
                count=len(rows) - len(sound),
                lost=True,
            )
            return _table(sound, schema)


def _table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        _ids(column, field.name) if field.name in _ID_COLUMNS else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _ids(column: tuple[str | None, ...], name: str) -> pa.Array:
    """Ids in normal form; most are already, which Arrow tells faster than a loop."""
    array = pa.array(column, _TEXT)
    if pc.all(pc.match_substring_regex(array, _NORMAL), min_count=0).as_py():
        return array
    if name == "parent_id":
        return pa.array([normal_id(text) for text in column], _TEXT)
    return pa.array([normal_id(text) or text or "" for text in column], _TEXT)
