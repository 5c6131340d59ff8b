"""The wire format of Protocol Buffers, as far as telemetry needs it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | bytes


class WireError(ValueError):
    """Bytes that are no message, or a message that is cut."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("cut or not protobuf")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data: bytes, *, cut: bool = False) -> Iterator[tuple[int, Value]]:
    """Field numbers with their values: integers as unsigned, everything long as bytes.

    Args:
        data: A message.
        cut: Whether its end may be missing; then the last value may be a part of what it was.

    Raises:
        WireError: The bytes are no message, or are cut.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield field, value
            continue
        if wire == 2:
            size, at = varint(data, at)
            if cut and field and at + size > len(data):
                yield field, data[at:]
                return
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise WireError(f"wire type {wire}")
        if field == 0 or at + size > len(data):
            raise WireError("cut or not protobuf")
        part = data[at : at + size]
        at += size
        yield field, part if wire == 2 else int.from_bytes(part, "little")


def signed(value: Value) -> int:
    """An int64 that was read as unsigned."""
    told = number(value)
    return told - (1 << 64) if told >= 1 << 63 else told


def double(value: Value) -> float:
    """A double that was read as a fixed 64-bit integer."""
    return float(struct.unpack("<d", number(value).to_bytes(8, "little"))[0])


def text(value: Value) -> str:
    """A string."""
    return chunk(value).decode("utf-8", "replace")


def chunk(value: Value) -> bytes:
    """Bytes or an inner message."""
    if not isinstance(value, bytes):
        raise WireError("a number where bytes are due")
    return value


def number(value: Value) -> int:
    """A number that is no fixed or signed one."""
    if isinstance(value, bytes):
        raise WireError("bytes where a number is due")
    return value
