"""OTLP's binary messages, built field by field."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def put(field: int, value: bytes | str | int) -> bytes:
    """A field: bytes and text with their length, numbers as varints."""
    if isinstance(value, int):
        return varint(field << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def fixed(field: int, value: int | float) -> bytes:
    form = "<d" if isinstance(value, float) else "<Q" if value >= 0 else "<q"
    return varint(field << 3 | 1) + struct.pack(form, value)


def attribute(number: int, key: str, value: bytes) -> bytes:
    return put(number, put(1, key) + put(2, value))


def request(*items: bytes, service: str = "chat") -> bytes:
    """One resource, one scope, these items: the same shape for spans, metrics and logs."""
    resource = put(1, attribute(1, "service.name", put(1, service)))
    scope = put(1, put(1, "lib"))
    return put(1, resource + put(2, scope + b"".join(put(2, i) for i in items)))
