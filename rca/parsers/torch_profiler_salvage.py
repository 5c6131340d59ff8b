"""Events out of damaged profiler text, one by one; slow, and only used where damage is."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

MAX_EVENT_CHARS = 16_777_216
_LITERAL_CHARS = 32  # a number, a word or an escape may be cut in two
_INT64 = range(-(2**63), 2**63)
_BETWEEN = re.compile(r"[\s,]*")
_NEXT = re.compile(r"\},\s*(?=\{)")
_NAME = re.compile(r'("name":\s*")(.*?)("\s*,\s*"(?:pid|ph|cat|tid|ts)":)', re.DOTALL)
_LONE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NOT_FINITE = re.compile(r"(:\s*)-?(?:nan|inf|infinity)(?=\s*[,}])", re.IGNORECASE)
_IDS = (
    "External id", "external id", "correlation", "device", "context", "bytes", "Bytes",
    "registers per thread", "shared memory", "graph id", "Total Allocated", "Total Reserved",
    "Device Id", "Device Type", "Group size", "In msg nelems", "Out msg nelems", "Seq",
)  # fmt: skip
_TEXTS = (
    "stream",
    "kind",
    "grid",
    "block",
    "Input Dims",
    "Input dims",
    "Input type",
    "Addr",
    "name",
    "labels",
    "Collective name",
    "Process Group Name",
    "Process Group ID",
    "Process Group Description",
    "Process Group Ranks",
    "dtype",
)


class Walk(NamedTuple):
    """What was found in a piece of text.

    Attributes:
        events: The events as objects; numbers with a fraction are their text.
        repaired: How many of them had to be mended.
        lost: Elements that could not be read.
        example: Beginning of the first element that was lost or mended.
        rest: Text that is not complete yet, or what follows the end of the array.
        closed: Whether the array ended.
    """

    events: list[dict[str, Any]]
    repaired: int
    lost: int
    example: str | None
    rest: str
    closed: bool


def _constant(_name: str) -> None:
    return None


_decoder = json.JSONDecoder(parse_float=str, parse_constant=_constant, strict=False)


def _decode(text: str, at: int = 0) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, at)
    except RecursionError as error:
        raise json.JSONDecodeError("nested too deeply", text, at) from error


def walk(text: str, *, final: bool) -> Walk:
    """Every element that can be read; after a damaged one, reading goes on at the next.

    Args:
        text: Elements of the array, from the beginning of one.
        final: Nothing follows. Otherwise an element that reaches the end is left in `rest`.
    """
    events: list[dict[str, Any]] = []
    at = repaired = lost = 0
    example = None
    while (at := _BETWEEN.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        if text[at] == "]":
            return Walk(events, repaired, lost, example, text[at + 1 :], True)
        try:
            event, end = _decode(text, at)
        except ValueError as error:
            if not final and _reaches_end(error, text, at):
                break
            event, place = _mended(text, at, final)
            if place is None:
                break
            end = place
            example = example or text[at : at + 200]
            repaired += event is not None
        if isinstance(event, dict):
            events.append(event)
        else:
            lost += 1
            example = example or text[at : at + 200]
        at = end
    if at < len(text) and (final or len(text) - at > MAX_EVENT_CHARS):
        lost, example, at = lost + 1, example or text[at : at + 200], len(text)
    return Walk(events, repaired, lost, example, text[at:], False)


def _reaches_end(error: ValueError, text: str, at: int) -> bool:
    """Whether an element is damaged only in that its end is missing yet."""
    if len(text) - at > MAX_EVENT_CHARS:
        return False
    place = getattr(error, "pos", 0)
    return place >= len(text) - _LITERAL_CHARS or "Unterminated string" in str(error)


def _mended(text: str, at: int, final: bool) -> tuple[Any, int | None]:
    """A damaged element made readable, or None, and where the next begins.

    No place means that the end of the element is not there.
    """
    found = _NEXT.search(text, at)
    last = found.start() + 1 if found else _last_brace(text, at) if final else None
    if last is None:
        return None, None
    piece = _NOT_FINITE.sub(r"\1null", text[at:last])
    piece = _LONE.sub(r"\\\\", _NAME.sub(_quoted, piece, count=1))
    try:
        return _decode(piece)[0], last
    except ValueError:
        return None, found.end() if found else None


def _last_brace(text: str, at: int) -> int | None:
    end = re.compile(r"\}\s*\]").search(text, at)
    return end.start() + 1 if end else None


def _quoted(match: re.Match[str]) -> str:
    name = re.sub(r'(?<!\\)"', r"\"", match[2])
    return match[1] + name + match[3]


def plain(event: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """An event with nothing in it that a strict reader refuses, and how many numbers were dropped.

    Only what becomes a column is kept. Whole numbers beyond 64 bits become None.
    """
    args = event.get("args")
    kept: dict[str, Any] = {}
    dropped = 0
    if isinstance(args, dict):
        for key in _IDS:
            if key in args:
                kept[key] = _int64(args[key])
                dropped += kept[key] is None and isinstance(args[key], int)
        kept |= {key: _text(args[key]) for key in _TEXTS if key in args}
        if str(event.get("cat")).lower() == "cuda_profiler_range":  # its keys are counters
            kept = {
                k: v for k, v in args.items() if isinstance(v, int | float) and abs(v) < 2**63
            }
    top: dict[str, Any] = {
        key: _text(event[key])
        for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")
        if key in event
    }
    return {**top, "args": kept}, dropped


def _int64(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number in _INT64 else None


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
    if value is None:
        return None
    return json.dumps(value, separators=(",", ":"))
