"""Configuration as plain text: environment files, command lines, lists of flags, units of systemd."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from rca.errors import ParseError
from rca.parsers.config_rows import ASSIGNED, ConfigRows, flags, words_of
from rca.parsers.config_yaml import subject_of
from rca.parsers.format import Format, Head, Sink
from rca.parsers.lookalikes import of_lines
from rca.parsers.stream import read_all

_LIMIT_BYTES = 16_000_000
_PAIR = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)")
_EXECUTED = re.compile(r"Exec(?:Start|StartPre|StartPost|Reload)")
_FLAG_LINE = re.compile(r"--[A-Za-z][\w.-]*(?:[= ].*)?\\?")
_SECTION = re.compile(r"\[[A-Z][A-Za-z-]*\]")
_SHELL_OPTIONS = re.compile(r"set [-+][a-z]+\b.*")
_COMMAND = re.compile(r"(?:\S+ ){1,12}?--[a-z][\w-]*[= ]")


def _lines(text: str) -> list[str]:
    joined = text.replace("\\\r\n", " ").replace("\\\n", " ")
    stripped = (line.strip() for line in joined.splitlines())
    return [x for x in stripped if x and x[0] not in "#;" and not _SHELL_OPTIONS.fullmatch(x)]


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a text: assignments as they stand, then the flags of its command lines."""
    words: list[str] = []
    for line in _lines(text):
        pair = _PAIR.fullmatch(line)
        if pair and _EXECUTED.fullmatch(pair[1]):
            words += words_of(pair[2])
        elif pair and pair[1] == "Environment":  # of a unit: one or more variables
            found = (ASSIGNED.fullmatch(w) for w in words_of(pair[2]))
            yield from ((f[1], f[2]) for f in found if f)
        elif pair and not line.startswith("-"):
            yield pair[1], _unquoted(pair[2])
        elif not _SECTION.fullmatch(line):
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
    forms = (_PAIR, _FLAG_LINE, _SECTION)
    known = [any(form.fullmatch(x) for form in forms) for x in lines]
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
    lines = _lines(text)[:500]
    is_json = lines[:1] and lines[0][0] in "{[" and not _SECTION.fullmatch(lines[0])
    if "\x00" in text or is_json or not _is_known(lines):
        return False
    return of_lines(head, assigns=True) is None  # a log in logfmt is made of assignments, too


FORMAT = Format("config_text", "config", _recognise, _read)
