"""Settings as Python prints them: {'a': 1, 'b': Config(c='x')}, or a=1, b=Config(c='x')."""

from __future__ import annotations

import re
from collections.abc import Iterator

_OPEN, _CLOSE = "([{<", ")]}>"
_PAIR = re.compile(r"\s*(?:'([^']+)'\s*:|\"([^\"]+)\"\s*:|([A-Za-z_]\w*)=)\s*(.*)", re.DOTALL)
_NESTED = re.compile(r"(?:[A-Za-z_][\w.]*)?\((.*)\)|\{(.*)\}", re.DOTALL)
_MAX_DEPTH = 6
_WORDS = {"None": None, "True": "true", "False": "false"}


def parts(text: str) -> Iterator[str]:
    """The text between commas that stand in no bracket and in no string."""
    depth, start, quote = 0, 0, ""
    escaped = False
    for at, letter in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def settings(text: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str | None]]:
    """Keys and values; keys of nested objects are joined by dots, values are as in YAML."""
    inner = _NESTED.fullmatch(text.strip())
    body = (inner[1] if inner[1] is not None else inner[2]) if inner else text
    for part in parts(body):
        pair = _PAIR.fullmatch(part.strip())
        if pair is None:
            continue
        key, value = prefix + (pair[1] or pair[2] or pair[3]), pair[4].strip()
        nested = _NESTED.fullmatch(value)
        if (
            nested
            and depth < _MAX_DEPTH
            and _PAIR.match((nested[1] or nested[2] or "").strip())
        ):
            yield from settings(value, f"{key}.", depth + 1)
        else:
            yield key, _WORDS[value] if value in _WORDS else unquoted(value)


def unquoted(value: str) -> str:
    """A value as people would write it: no quotes, and no brackets around a single element."""
    single = re.fullmatch(r"\[('[^']*'|\"[^\"]*\")\]", value)
    value = single[1] if single else value
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
