"""OTLP's JSON of spans as its binary message, the form in which exporters send it.

Field numbers are those of opentelemetry-proto 1.x; only what `rca.models.otlp` makes is known.
"""

from __future__ import annotations

import struct
from typing import Any

Json = dict[str, Any]


def request(message: Json) -> bytes:
    """An ExportTraceServiceRequest."""
    return b"".join(_put(1, _resource_spans(one)) for one in message["resourceSpans"])


def _resource_spans(message: Json) -> bytes:
    resource = _attributes(1, message["resource"]["attributes"])
    scopes = b"".join(_put(2, _scope_spans(one)) for one in message["scopeSpans"])
    return _put(1, resource) + scopes


def _scope_spans(message: Json) -> bytes:
    spans = b"".join(_put(2, _span(one)) for one in message["spans"])
    return _put(1, _put(1, message["scope"]["name"].encode())) + spans


def _span(span: Json) -> bytes:
    return b"".join((
        _put(1, bytes.fromhex(span["traceId"])),
        _put(2, bytes.fromhex(span["spanId"])),
        _put(4, bytes.fromhex(span.get("parentSpanId", ""))),
        _put(5, span["name"].encode()),
        _number(6, span["kind"]),
        _fixed(7, span["startTimeUnixNano"]),
        _fixed(8, span["endTimeUnixNano"]),
        _attributes(9, span.get("attributes", [])),
        b"".join(
            _put(11, _fixed(1, event["timeUnixNano"]) + _put(2, event["name"].encode()))
            for event in span.get("events", [])
        ),
        _put(15, _number(3, span["status"].get("code", 0))),
    ))  # fmt: skip


def _attributes(field: int, pairs: list[Json]) -> bytes:
    return b"".join(
        _put(field, _put(1, pair["key"].encode()) + _put(2, _value(pair["value"])))
        for pair in pairs
    )


def _value(value: Json) -> bytes:
    if "intValue" in value:
        return _number(3, int(value["intValue"]))
    return _put(1, value["stringValue"].encode())


def _put(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed(field: int, value: str) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", int(value))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])
