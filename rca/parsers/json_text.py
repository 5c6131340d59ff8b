"""JSON as recordings hold it: cut short, one value a line, or several values after each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rca.errors import ParseError
from rca.parsers.format import Head, Sink
from rca.parsers.stream import Blocks, read_all

LIMIT_BYTES = 4_294_967_296
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)
_CLOSING = bytes.maketrans(b"[{", b"]}")
_SPACE = " \t\r\n\ufeff"


class Whole(NamedTuple):
    """A document that was read as a whole.

    Attributes:
        data: The text, closed again where it was cut.
        damage: What was wrong with it; None for a sound document.
    """

    data: bytes
    damage: str | None


def repair(data: bytes, max_depth: int) -> bytes | None:
    """The document up to its last complete element, with open brackets closed.

    An array `max_depth` brackets deep loses its unfinished last element wholly; what lies less
    deep is kept in part. None when not even the first element is complete.
    """
    stack: list[int] = []
    end, kept = 0, b""
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        cut = token.start()
        if first in b"[{":
            stack.append(first)
            continue
        if first in b"]}":
            if not stack:
                return None
            stack.pop()
            cut = token.end()
        elif first != ord(","):
            continue
        depth = len(stack)
        if 0 < depth <= max_depth and (stack[-1] == ord("[") or depth < max_depth):
            end, kept = cut, bytes(stack)
    return data[:end] + kept[::-1].translate(_CLOSING) if end else None


class Sketch(NamedTuple):
    """What the head of a JSON file shows.

    Attributes:
        value: The first value, as much of it as the head holds; None when it is no JSON.
        more: Whether further values follow the first, as in JSON lines.
    """

    value: Any
    more: bool


def sketch(head: Head) -> Sketch:
    """The first JSON value in a head, cut where the head ends."""
    return _sketch(head.data)


@lru_cache(maxsize=4)
def _sketch(data: bytes) -> Sketch:
    text = data.decode("utf-8", "replace").lstrip(_SPACE)
    if text[:1] not in ("{", "["):
        return Sketch(None, False)
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        return Sketch(value, bool(text[end:].strip(_SPACE)))
    except (ValueError, RecursionError):
        pass
    try:
        closed = repair(text.encode(), 64)
        return Sketch(json.loads(closed) if closed else None, False)
    except (ValueError, RecursionError):
        return Sketch(None, False)


def mapping(value: Any) -> dict[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def first(value: Any) -> Any:
    """The first element of a list; None when there is none."""
    return value[0] if isinstance(value, list) and value else None


def read_whole(path: Path, max_depth: int, decode: Any) -> tuple[Any, Whole]:
    """A document decoded as a whole, salvaged when it is cut short.

    Args:
        path: The file.
        max_depth: See `repair`.
        decode: Called with the text; raises msgspec.DecodeError when it is damaged.

    Raises:
        ParseError: Nothing of it can be kept.
    """
    data, damage = read_all(path, LIMIT_BYTES)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return decode(data), Whole(data, damage)
    except msgspec.ValidationError as error:
        raise ParseError(f"is not as its format has it: {error}", path=str(path)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        problem = damage or f"JSON is damaged: {error}"
    closed = repair(data, max_depth)
    try:
        if closed is not None:
            return decode(closed), Whole(closed, problem)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = str(error)
    raise ParseError(f"nothing in it can be read: {problem}", path=str(path))


def read_lines(blocks: Blocks) -> Iterator[bytes]:
    """The lines of a file that hold more than blanks, without their ends."""
    begun: list[bytes] = []  # of a line, which may go on for many blocks
    for block in blocks:
        first, *others = block.split(b"\n")
        begun.append(first)
        if others:
            whole, begun = b"".join(begun), [others.pop()]
            yield from filter(None, map(bytes.strip, (whole, *others)))
    if last := b"".join(begun).strip():
        yield last


def read_documents(
    path: Path, sink: Sink, decode: Any, *, depth: int, lines: bool, other: str
) -> Iterator[Any]:
    """The document that a file is, or those on its lines; what is lost is said.

    Args:
        path: The file.
        sink: Where notes go.
        decode: See `read_whole`.
        depth: See `repair`.
        lines: Whether it is one document a line.
        other: What lines are that are no document, for people.

    Raises:
        ParseError: It is one document, and nothing of it can be kept.
    """
    if not lines:
        document, whole = read_whole(path, depth, decode)
        if whole.damage:
            sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
        yield document
        return
    blocks = Blocks(path)
    for line in read_lines(blocks):
        try:
            yield decode(line)
        except msgspec.DecodeError as error:
            sink.count_elements(1)
            sink.note("warning", "bad_line", f"{other}: {error}", lost=True)
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)
