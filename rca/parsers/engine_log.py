"""Logs as text: vLLM, SGLang, uvicorn, glog, and lines that begin with an ISO time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rca.parsers.config_rows import ConfigRows
from rca.parsers.engine_lines import Line, configuration, parse
from rca.parsers.format import Format, Head, Sink
from rca.parsers.log_rows import LogRows
from rca.parsers.stream import Blocks, read_head
from rca.parsers.text_lines import full_lines
from rca.parsers.times import iso_ns

_YEAR = re.compile(rb"\b(20\d\d)-(?:0[1-9]|1[0-2])-[0-3]\d[T ]\d\d:\d\d")
_DAY_NS = 86_400 * 10**9
_ENOUGH = 0.2
ENGINE = "engine"


class Reader:
    """Turns lines into rows of log and config."""

    def __init__(self, sink: Sink, path: Path, year: int | None) -> None:
        self._sink, self._path, self._year = sink, path, year
        self.rows, self._config = LogRows(sink), ConfigRows()
        self._assumed = 0

    def add(
        self,
        text: str,
        line: Line | None,
        ts_ns: int | None = None,
        service: str | None = None,
        level: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """One line, taken apart or not; what is known from around it fills what it lacks."""
        if line is None:
            self.rows.add(ts_ns, service, level, text.strip(), fields or {})
            return
        when = line.ts_ns if ts_ns is None else ts_ns
        if when is None and line.monthly:
            when = self._dated(line.monthly)
        self.rows.add(
            when, line.service if line.template else service or line.service, line.level or level,
            line.message, {**(fields or {}), **line.fields}, line.template,
        )  # fmt: skip
        for key, value in configuration(line.message):
            self._config.add(ENGINE, key, value, when)
            if key == "version":
                self._sink.describe(producer=f"vLLM {value}")

    def _dated(self, monthly: str) -> int | None:
        """The time of a line that has no year: that of the file, or its last before the file's."""
        self._assumed += 1
        if self._year is not None:
            return iso_ns(f"{self._year}-{monthly}")
        modified = self._path.stat().st_mtime_ns
        year = datetime.fromtimestamp(modified // 10**9, UTC).year
        told = iso_ns(f"{year}-{monthly}")
        return iso_ns(f"{year - 1}-{monthly}") if told and told > modified + _DAY_NS else told

    def finish(self) -> None:
        """Write what is left, and say what was assumed."""
        self.rows.flush()
        self._config.write(self._sink)
        if self._assumed:
            source = "a full date in the file" if self._year else "the file's modification time"
            self._sink.note(
                "info",
                "assumed_year",
                f"times without year and zone: the year is that of {source}, the zone UTC",
                count=self._assumed,
            )


def year_in(head: Head) -> int | None:
    """The year of the first full date in a head."""
    found = _YEAR.search(head.data)
    return int(found[1]) if found else None


def _read(path: Path, sink: Sink) -> None:
    blocks = Blocks(path)
    reader = Reader(sink, path, year_in(read_head(path)))
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            _add(line, reader)
    _add(rest, reader)
    reader.finish()
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _add(line: bytes, reader: Reader) -> None:
    text = line.decode("utf-8", "replace")
    if text.strip():
        reader.add(text, parse(text))


def _recognise(head: Head) -> bool:
    lines = [line for line in full_lines(head) if line.strip()][:300]
    known = sum(parse(line) is not None for line in lines)
    return known > 0 and known >= _ENOUGH * len(lines)


FORMAT = Format("engine_log", "log", _recognise, _read)
