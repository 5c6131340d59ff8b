"""Rows of the tables span, span_event and span_link, gathered and written in batches."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from rca.parsers.durations import flaw_of
from rca.parsers.format import Sink
from rca.parsers.times import MAX_NS

_T = TypeVar("_T")
_AT_ONCE = 256
BATCH_ROWS = 4096  # they stay in the processor's cache until they are columns
_HEX = re.compile(r"[0-9a-f]+").fullmatch
_HEX_DIGITS = b"0123456789abcdef"
_ID_BYTES = (8, 16)
_ID_COLUMNS = {"trace_id", "span_id", "parent_id", "linked_trace_id", "linked_span_id"}
_TEXT, _TIME = pa.string(), pa.int64()
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
_encoder = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


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


def joined_each(
    attributes: Iterable[Mapping[str, Any]], resources: Sequence[bytes]
) -> list[bytes]:
    """`joined` for many spans at once, which is cheaper than one by one."""
    ends = {r: b"}" if r == b"{}" else b"," + r[1:] for r in set(resources)}
    texts = _encode_lines(attributes).split(b"}\n")[:-1]  # inside of JSON no line ends
    return [
        resource if text == b"{" else text + ends[resource]
        for text, resource in zip(texts, resources, strict=True)
    ]


def resource_json(resource: Mapping[str, Any], scope: str = "", version: str = "") -> bytes:
    """Attributes of a resource, prefixed, and its instrumentation scope, as a JSON object."""
    found = {f"resource.{key}": value for key, value in resource.items()}
    if scope:
        found["otel.scope.name"] = scope
    if version:
        found["otel.scope.version"] = version
    return _encode(found)


class SpanRow(msgspec.Struct, gc=False):
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


_SPAN_FIELDS = SpanRow.__struct_fields__
_SPAN = pa.schema([(name, _TIME if name.endswith("_ns") else _TEXT) for name in _SPAN_FIELDS])
_SPAN_COLUMNS = tuple(map(attrgetter, _SPAN_FIELDS))

Place = tuple[str | None, bytes]
"""Who recorded a span: the name of the service, the resource as the text of a JSON object."""


class SpanColumns(NamedTuple):
    """Spans as columns, each a field of SpanRow."""

    trace_id: list[str]
    span_id: list[str]
    parent_id: list[str | None]
    service: list[str | None]
    name: list[str]
    kind: list[str | None]
    start_ns: list[int | None]
    dur_ns: list[int | None]
    status: list[str]
    attributes: list[bytes]


class Gathered(Generic[_T]):
    """Spans as their format has them, gathered for a function that takes many; call `flush` at the end.

    To handle columns costs less than to handle spans, but many of them no longer fit into the
    processor's cache.
    """

    def __init__(self, write: Callable[[list[_T], list[Place]], None]) -> None:
        self._write = write
        self._spans: list[_T] = []
        self._places: list[Place] = []

    def add(self, spans: list[_T], places: list[Place]) -> None:
        """Spans, and for each of them who recorded it."""
        for first in range(0, len(spans), _AT_ONCE):
            self._spans += spans[first : first + _AT_ONCE]
            self._places += places[first : first + _AT_ONCE]
            if len(self._spans) >= _AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Hand over what waits."""
        spans, places = self._spans, self._places
        self._spans, self._places = [], []
        if spans:
            self._write(spans, places)


class SpanRows:
    """Gathers spans and writes them to the sink; call `flush` at the end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rows: list[SpanRow] = []
        self._columns: tuple[list[Any], ...] = tuple([] for _ in _SPAN)
        self._spans = SpanColumns(*self._columns)  # the same ones by name
        self._events: list[tuple[Any, ...]] = []
        self._links: list[tuple[Any, ...]] = []
        self._written = self._without_start = self._without_service = 0

    @property
    def count(self) -> int:
        """How many spans were added."""
        return self._written + len(self._spans.name) + len(self._rows)

    def add(self, span: SpanRow) -> None:
        """One span."""
        self._rows.append(span)
        if len(self._rows) >= BATCH_ROWS:
            self._write()

    def add_columns(self, spans: SpanColumns) -> None:
        """Many spans, at best not more than BATCH_ROWS; cheaper than one by one."""
        added: tuple[list[Any], ...] = spans
        for column, more in zip(self._columns, added, strict=True):
            column.extend(more)
        if len(self._spans.name) >= BATCH_ROWS:
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
        if self._rows:
            for column, get in zip(self._columns, _SPAN_COLUMNS, strict=True):
                column.extend(map(get, self._rows))
            self._rows.clear()
        if self._spans.name:
            self._written += len(self._spans.name)
            self._without_start += self._spans.start_ns.count(None)
            self._without_service += sum(map(self._spans.service.count, (None, "")))
            self._sink.insert("span", self._judged(self._table(self._columns, _SPAN)))
            for column in self._columns:
                column.clear()
        for table, schema, rows in (
            ("span_event", _EVENT, self._events),
            ("span_link", _LINK, self._links),
        ):
            if rows:
                columns = list(zip(*rows, strict=True))
                rows.clear()
                self._sink.insert(table, self._table(columns, schema))

    def _judged(self, spans: pa.Table) -> pa.Table:
        """Spans with why the duration of each is none; those that were measured wrong are said."""
        durations = pl.DataFrame({"dur_ns": pl.from_arrow(spans["dur_ns"])})
        flaw = durations.select(flaw_of(pl.col("dur_ns")).cast(pl.String).alias("flaw"))["flaw"]
        wrong = (flaw.is_not_null() & (flaw != "no_duration")).arg_true()
        if len(wrong):
            first = wrong[0]
            self._sink.note(
                "warning", "bad_duration",
                "spans with a negative or absurd duration: kept, but no sum and no request counts them",
                count=len(wrong), example=f"{spans['name'][first].as_py()}: {flaw[first]}",
            )  # fmt: skip
        return spans.append_column("flaw", flaw.to_arrow())

    def _table(self, columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
        try:
            return _table(columns, schema)
        except (OverflowError, pa.ArrowInvalid):
            rows = list(zip(*columns, strict=True))
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
            left = list(zip(*sound, strict=True)) if sound else [()] * len(schema)
            return _table(left, schema)


def _table(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    arrays = [
        _ids(column, field.name) if field.name in _ID_COLUMNS else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _ids(column: Sequence[str | None], name: str) -> pa.Array:
    """Ids in normal form; most are already, which arithmetic tells faster than a loop."""
    array = pa.array(column, _TEXT)
    if _are_normal(array):
        return array
    if name == "parent_id":
        return pa.array([normal_id(text) for text in column], _TEXT)
    return pa.array([normal_id(text) or text or "" for text in column], _TEXT)


def _are_normal(ids: pa.Array) -> bool:
    """Whether all that are not NULL are lower-case hex and not all zero."""
    there = ids.drop_null()
    if not len(there):
        return True
    _, offsets, data = there.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(there) + 1]
    text = data.to_pybytes()[: starts[-1]]
    if not np.diff(starts).all() or text.translate(None, _HEX_DIGITS):
        return False
    maybe_zero = np.flatnonzero(np.frombuffer(text, np.uint8)[starts[:-1]] == ord("0"))
    return all(id_.strip("0") for id_ in there.take(maybe_zero).to_pylist())
