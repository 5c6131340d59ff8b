"""Rows of the table log, and the template of a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from rca.parsers.format import Sink

BATCH_ROWS = 50_000
_SCHEMA = pa.schema(
    [
        ("ts_ns", pa.int64()),
        ("service", pa.string()),
        ("level", pa.string()),
        ("template", pa.string()),
        ("message", pa.string()),
        ("fields", pa.string()),
    ]
)
_LEVELS = {
    "trace": "debug", "debug": "debug", "verbose": "debug", "info": "info", "notice": "info",
    "information": "info", "i": "info", "d": "debug", "w": "warning", "warn": "warning",
    "warning": "warning", "e": "error", "err": "error", "error": "error", "severe": "error",
    "f": "critical", "fatal": "critical", "critical": "critical", "crit": "critical",
    "alert": "critical", "emerg": "critical", "panic": "critical", "dpanic": "critical",
}  # fmt: skip
_SYSLOG = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")
_VARIABLE = re.compile(
    r"""(?x)
      [a-z][a-z0-9+.-]*://[^\s'",)\]]+              # addresses
    | (?<![\w.])(?:[\w.-]*/){2,}[\w.\-]*            # paths of two parts and more
    | (?<!\w)/[\w.\-]+                              # a path of one part
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b
    | \b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b   # hex ids
    | \b\w+-[0-9a-f]{8,}\b                          # ids with a prefix, such as cmpl-...
    | (?<![\w.])[-+]?\d+(?:[.,:x]\d+)*(?:e[-+]?\d+)?(?:\s?%|[kKMGT]i?B?\b|[munµ]?s\b|x\b)?
    """
)
_SPACE = re.compile(r"\s+")


def template(message: str) -> str:
    """The message with numbers, ids, paths and addresses replaced by '<*>', in one line."""
    return _SPACE.sub(" ", _VARIABLE.sub("<*>", message)).strip()


def level_of(word: Any) -> str | None:
    """The level that a word or a syslog number stands for; None when it is none."""
    if isinstance(word, int) or (isinstance(word, str) and word.isdigit()):
        number = int(word)
        if 0 <= number < len(_SYSLOG):
            return _SYSLOG[number]
        return {
            10: "debug",
            20: "info",
            30: "info",
            40: "warning",
            50: "error",
            60: "critical",
        }.get(number)
    return _LEVELS.get(str(word).lower()) if word else None


class LogRows:
    """Gathers log lines and writes them to the sink; call `flush` at the end."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rows: list[tuple[Any, ...]] = []
        self.count = self.timed = 0

    def add(
        self,
        ts_ns: int | None,
        service: str | None,
        level: str | None,
        message: str,
        fields: Mapping[str, Any],
        mined: str | None = None,
    ) -> None:
        """One line; `mined` is its template where it is known better than by the message alone."""
        told = template(message) if mined is None else mined
        row = ts_ns, service, level, told, message, msgspec.json.encode(fields)
        self._rows.append(row)
        self.count += 1
        self.timed += ts_ns is not None
        if len(self._rows) >= BATCH_ROWS:
            self._write()

    def flush(self) -> None:
        """Write what is left and count the elements."""
        self._write()
        self._sink.count_elements(self.count)
        if self.count > self.timed:
            self._sink.note(
                "info", "no_time", "lines without a time", count=self.count - self.timed
            )

    def _write(self) -> None:
        if self._rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._rows, strict=True), _SCHEMA, strict=True)
            ]
            self._sink.insert("log", pa.Table.from_arrays(columns, schema=_SCHEMA))
            self._rows.clear()
