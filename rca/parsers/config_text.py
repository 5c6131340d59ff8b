"""Configuration as plain text: environment files, command lines, lists of flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from rca.errors import ParseError
from rca.parsers.config_rows import ConfigRows, flags, words_of
from rca.parsers.config_yaml import subject_of
from rca.parsers.format import Format, Head, Sink
from rca.parsers.stream import read_all

_LIMIT_BYTES = 16_000_000
_PAIR = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_FLAG_LINE = re.compile(r"--[A-Za-z][\w.-]*(?:[= ].*)?\\?")
_COMMAND = re.compile(r"(?:\S+ ){1,12}?--[a-z][\w-]*[= ]")


def _lines(text: str) -> list[str]:
    joined = text.replace("\\\r\n", " ").replace("\\\n", " ")
    stripped = (line.strip() for line in joined.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a text: assignments as they stand, then the flags of its command lines."""
    words: list[str] = []
    for line in _lines(text):
        pair = _PAIR.fullmatch(line)
        if pair and not line.startswith("-"):
            yield pair[1], _unquoted(pair[2])
        else:
            words += words_of(line)
    yield from flags(words)


def _unquoted(value: str) -> str:
    try:
        words = shlex.split(value, comments=True)
    except ValueError:
        return value
    return " ".join(words)


def _is_known(lines: list[str]) -> bool:
    """Whether every line is a setting, or the whole is a command with flags."""
    if not lines:
        return False
    known = [bool(_PAIR.fullmatch(x) or _FLAG_LINE.fullmatch(x)) for x in lines]
    if all(known):
        return True
    commands = [
        not k and bool(_COMMAND.match(" ".join(x.split()) + " "))
        for k, x in zip(known, lines, strict=True)
    ]
    return any(commands) and all(k or c for k, c in zip(known, commands, strict=True))


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, _LIMIT_BYTES)
    if damage:
        sink.note("warning", "truncated", damage, lost=True)
    rows = ConfigRows()
    rows.add_all(subject_of(path), settings(data.decode("utf-8-sig", "replace")))
    if not rows.rows:
        raise ParseError("no setting in it can be read", path=str(path))
    sink.count_elements(len(rows.rows))
    rows.write(sink)


def _recognise(head: Head) -> bool:
    text = head.data.decode("utf-8", "replace").lstrip("\ufeff")
    return (
        "\x00" not in text and text.lstrip()[:1] not in "{[" and _is_known(_lines(text)[:500])
    )


FORMAT = Format("config_text", "config", _recognise, _read)
