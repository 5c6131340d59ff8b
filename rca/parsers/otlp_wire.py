"""OTLP's binary messages: how files hold them, what they are, and the same as OTLP's JSON has it.

Field numbers are those of opentelemetry-proto 1.x (metrics, logs, common and resource).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rca.errors import ParseError
from rca.parsers.format import Head, Sink
from rca.parsers.protobuf import (
    Value,
    WireError,
    chunk,
    double,
    fields,
    number,
    signed,
    text,
    varint,
)
from rca.parsers.stream import read_all

Signal = Literal["traces", "metrics", "logs"]
_LIMIT_BYTES = 2_147_483_648
_GROUP = 0x0A  # key of field 1, a message: with it begins each request of any signal


class Field(NamedTuple):
    """One field of a message as JSON has it.

    Attributes:
        name: Its name in JSON.
        read: Makes the value.
        repeated: Whether it is a list.
        inner: The message that it is; then `read` is not used.
        holds: Whether it is a container of which a part is of use.
    """

    name: str
    read: Callable[[Value], Any] = text
    repeated: bool = False
    inner: str | None = None
    holds: bool = False


def _zigzag(value: Value) -> int:
    told = number(value)
    return (told >> 1) ^ -(told & 1)


def _packed(form: str) -> Callable[[Value], list[Any]]:
    """Numbers of eight bytes, packed or one alone."""

    def read(value: Value) -> list[Any]:
        data = value if isinstance(value, bytes) else value.to_bytes(8, "little")
        return [n for (n,) in struct.iter_unpack(form, data[: len(data) // 8 * 8])]

    return read


def _varints(value: Value) -> list[int]:
    if not isinstance(value, bytes):
        return [value]
    found, at = [], 0
    while at < len(value):
        told, at = varint(value, at)
        found.append(told)
    return found


def _hex(value: Value) -> str:
    return chunk(value).hex()


def _base64(value: Value) -> str:
    return base64.b64encode(chunk(value)).decode()


def _many(name: str, inner: str, *, holds: bool = False) -> Field:
    return Field(name, repeated=True, inner=inner, holds=holds)


_NUMBERS, _DOUBLES = _packed("<Q"), _packed("<d")
_ATTRIBUTES = _many("attributes", "key_value")
_TIME, _COUNT, _SUM = (
    Field("timeUnixNano", number),
    Field("count", number),
    Field("sum", double),
)
_POINTS, _TEMPORALITY = "dataPoints", Field("aggregationTemporality", number)
_MESSAGES: dict[str, dict[int, Field]] = {
    "metrics": {1: _many("resourceMetrics", "resource_metrics", holds=True)},
    "resource_metrics": {1: Field("resource", inner="resource"), 2: _many("scopeMetrics", "scope_metrics", holds=True)},
    "scope_metrics": {2: _many("metrics", "metric")},
    "logs": {1: _many("resourceLogs", "resource_logs", holds=True)},
    "resource_logs": {1: Field("resource", inner="resource"), 2: _many("scopeLogs", "scope_logs", holds=True)},
    "scope_logs": {2: _many("logRecords", "log_record")},
    "resource": {1: _ATTRIBUTES},
    "key_value": {1: Field("key"), 2: Field("value", inner="any")},
    "any": {
        1: Field("stringValue"), 2: Field("boolValue", bool), 3: Field("intValue", signed),
        4: Field("doubleValue", double), 5: Field("arrayValue", inner="array"),
        6: Field("kvlistValue", inner="kvlist"), 7: Field("bytesValue", _base64),
    },
    "array": {1: _many("values", "any")},
    "kvlist": {1: _many("values", "key_value")},
    "metric": {
        1: Field("name"), 3: Field("unit"), 5: Field("gauge", inner="numbers"), 7: Field("sum", inner="numbers"),
        9: Field("histogram", inner="histogram"), 10: Field("exponentialHistogram", inner="exponential"),
        11: Field("summary", inner="summary"),
    },
    "numbers": {1: _many(_POINTS, "number"), 2: _TEMPORALITY, 3: Field("isMonotonic", bool)},
    "number": {3: _TIME, 4: Field("asDouble", double), 6: Field("asInt", signed), 7: _ATTRIBUTES},
    "histogram": {1: _many(_POINTS, "histogram_point"), 2: _TEMPORALITY},
    "histogram_point": {
        3: _TIME, 4: _COUNT, 5: _SUM, 6: Field("bucketCounts", _NUMBERS, repeated=True),
        7: Field("explicitBounds", _DOUBLES, repeated=True), 9: _ATTRIBUTES,
    },
    "exponential": {1: _many(_POINTS, "exponential_point"), 2: _TEMPORALITY},
    "exponential_point": {
        1: _ATTRIBUTES, 3: _TIME, 4: _COUNT, 5: _SUM, 6: Field("scale", _zigzag), 7: Field("zeroCount", number),
        8: Field("positive", inner="buckets"), 9: Field("negative", inner="buckets"), 14: Field("zeroThreshold", double),
    },
    "buckets": {1: Field("offset", _zigzag), 2: Field("bucketCounts", _varints, repeated=True)},
    "summary": {1: _many(_POINTS, "summary_point")},
    "summary_point": {3: _TIME, 4: _COUNT, 5: _SUM, 6: _many("quantileValues", "quantile"), 7: _ATTRIBUTES},
    "quantile": {1: Field("quantile", double), 2: Field("value", double)},
    "log_record": {
        1: _TIME, 2: Field("severityNumber", number), 3: Field("severityText"), 5: Field("body", inner="any"),
        6: _ATTRIBUTES, 9: Field("traceId", _hex), 10: Field("spanId", _hex), 11: Field("observedTimeUnixNano", number),
    },
}  # fmt: skip


def decode(data: bytes, message: str, *, cut: bool = False) -> dict[str, Any]:
    """A message as OTLP's JSON has it; unknown fields are passed over.

    Args:
        data: The message.
        message: Its kind, for example 'metrics'.
        cut: Whether its end may be missing; then what is complete is kept.

    Raises:
        WireError: It is no such message.
    """
    known = _MESSAGES[message]
    found: dict[str, Any] = {}
    for field, value in fields(data, cut=cut):
        told = known.get(field)
        if told is None:
            continue
        if told.inner is not None:
            try:
                read: Any = decode(chunk(value), told.inner, cut=cut and told.holds)
            except WireError:
                if not cut:
                    raise
                break  # the last one, of which the end is missing
            read = [read] if told.repeated else read
        else:
            read = told.read(value)
        if told.repeated:
            found.setdefault(told.name, []).extend(read)
        else:
            found[told.name] = read
    return found


class Messages(NamedTuple):
    """The requests in a file.

    Attributes:
        whole: Those that are complete.
        rest: The beginning of one whose end is missing, b'' without one.
    """

    whole: list[bytes]
    rest: bytes


def messages(data: bytes) -> Messages:
    """The requests in a file: one alone, or many with their lengths in front.

    A collector's file exporter writes lengths as four bytes, the largest first; protobuf's own
    libraries write them as varints.
    """
    length = next((read for read in (_four_bytes, _one_varint) if _fits(data, read)), None)
    if length is None:
        try:
            for _ in fields(data):
                pass
        except WireError:
            return Messages([], data)
        return Messages([data], b"")
    whole: list[bytes] = []
    at = 0
    while at < len(data):
        size, begin = length(data, at)
        if begin + size > len(data):
            return Messages(whole, data[begin:])
        whole.append(data[begin : begin + size])
        at = begin + size
    return Messages(whole, b"")


def _four_bytes(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def _one_varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        return varint(data, at)
    except WireError:
        return 0, len(data)


def _fits(data: bytes, length: Callable[[bytes, int], tuple[int, int]]) -> bool:
    """Whether a length and a request stand at the start, and where it ends another one or nothing."""
    size, begin = length(data, 0)
    if size < 2 or begin >= len(data) or data[begin] != _GROUP:
        return False
    end = begin + size
    if end > len(data):  # cut; a request alone begins as field 1 does, lengths of files do not
        return data[0] != _GROUP
    if end == len(data):
        return True
    follows, at = length(data, end)
    return at >= len(data) or follows == 0 or data[at] == _GROUP


def signal(head: Head) -> Signal | None:
    """What a file of binary OTLP holds, by its first item; None when it is something else.

    Items are told apart by their first fields: a span begins with two ids of 16 and 8 bytes, a
    metric with its name, a log record with a time.
    """
    if not head.data or (head.data[0] not in (_GROUP, 0) and _GROUP not in head.data[1:6]):
        return None
    found = messages(head.data)
    try:
        return _told(found.whole[0] if found.whole else found.rest)
    except WireError:
        return None


def _told(message: bytes) -> Signal | None:
    for value in _inner(_inner(_inner([message], 1), 2), 2):
        item = dict(fields(value, cut=True))
        first, second = item.get(1), item.get(2)
        if (
            isinstance(first, bytes)
            and isinstance(second, bytes)
            and (len(first), len(second)) == (16, 8)
        ):
            return "traces"
        if isinstance(first, int) or isinstance(item.get(11), int):
            return "logs"
        if isinstance(first, bytes) and any(
            isinstance(item.get(f), bytes) for f in (5, 7, 9, 10, 11)
        ):
            return "metrics"
    return None


def _inner(outer: Iterable[bytes], wanted: int) -> Iterator[bytes]:
    """The messages in one field of messages whose ends may be missing."""
    for message in outer:
        for field, value in fields(message, cut=True):
            if field == wanted:
                yield chunk(value)


def read(path: Path, message: str, sink: Sink) -> Iterator[dict[str, Any]]:
    """The requests in a file, see `decode`; what is cut is said.

    Raises:
        ParseError: Nothing of it can be read.
    """
    data, damage = read_all(path, _LIMIT_BYTES)
    found = messages(data)
    count = 0
    try:
        for whole in found.whole:
            yield decode(whole, message)
            count += 1
        if found.rest:
            damage = damage or "the end of the last request is missing"
            yield decode(found.rest, message, cut=True)
            count += 1
    except WireError as error:
        damage = damage or str(error)
    if damage and not count:
        raise ParseError(f"nothing in it can be read: {damage}", path=str(path))
    if damage:
        sink.note("warning", "truncated", f"cut short: {damage}", lost=True)
