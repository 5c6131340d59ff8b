"""Rows of the table config, and settings as command lines and environments give them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from rca.parsers.format import Sink

_FLAG = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_ENVIRONMENT = ("-e", "--env")
ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)=(.*)", re.DOTALL)
"""A variable and its value, as one word."""
_SECRET = re.compile(
    r"(?i)(secret|passw(or)?d|api[_-]?key|credential|private[_-]?key"
    r"|(^|[_-])(hf|hub|auth|access|bearer|api|refresh|session)[_-]?token)"
)
_SHELL = re.compile(r"(^|/)(ba|da|z|a)?sh$")
_SHELL_OPTION = re.compile(r"-[a-z]*c")
HIDDEN = "<hidden>"


def key_of(flag: str) -> str:
    """The key of a command-line flag: no dashes before it, '_' for those inside."""
    return flag.lstrip("-").replace("-", "_")


def flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Settings among the words of a command line: --a=b, --a b, --a alone as 'true', and -e A=b."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _FLAG.fullmatch(word):
            continue
        name, equals, value = word.partition("=")
        taken: list[str] = []
        if (
            word in _ENVIRONMENT
            and index < len(words)
            and (found := ASSIGNED.fullmatch(words[index]))
        ):
            index += 1
            yield found[1], found[2]
            continue
        if equals:
            taken = [value]
        else:
            while index < len(words) and not _FLAG.fullmatch(words[index]):
                taken.append(words[index])
                index += 1
        yield key_of(name), " ".join(taken) if taken else "true"


def words_of(command: Any) -> list[str]:
    """The words of a command given as text or as a list; what a shell is to run is taken apart."""
    if isinstance(command, str):
        return _without_shell(_split(command))
    parts = [str(part) for part in command] if isinstance(command, list) else []
    return _without_shell(parts)


def _without_shell(words: list[str]) -> list[str]:
    """The words of the inner command of `sh -c '...'`, else the words themselves."""
    for index, word in enumerate(words[:3]):
        if _SHELL_OPTION.fullmatch(word) and index and _SHELL.search(words[index - 1]):
            return [w for script in words[index + 1 :] for w in _split(script)]
    return [w for word in words for w in (_split(word) if "\n" in word else [word])]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:  # an open quote
        return text.split()


def as_text(value: Any) -> str | None:
    """A setting's value as text, as YAML or JSON would write it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class ConfigRows:
    """Gathers settings of one source."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str | None, int | None]] = []

    def add(self, subject: str, key: str, value: Any, ts_ns: int | None = None) -> None:
        """One setting. Values whose key names a secret are not kept."""
        shown = HIDDEN if value is not None and _SECRET.search(key) else as_text(value)
        self.rows.append((subject, key, shown, ts_ns))

    def add_all(
        self, subject: str, pairs: Iterable[tuple[str, Any]], ts_ns: int | None = None
    ) -> None:
        """Several settings of one subject."""
        for key, value in pairs:
            self.add(subject, key, value, ts_ns)

    def write(self, sink: Sink) -> None:
        """All settings to the sink."""
        if not self.rows:
            return
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64())
        names = ("subject", "key", "value", "ts_ns")
        columns = zip(names, kinds, zip(*self.rows, strict=True), strict=True)
        sink.insert("config", pa.table({n: pa.array(c, k) for n, k, c in columns}))
