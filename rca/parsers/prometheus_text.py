"""Prometheus' text exposition and OpenMetrics, with time stamps or without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.metric_rows import (
    REFUSED,
    Samples,
    SeriesRows,
    milliseconds,
    seconds_of,
    write_samples,
)
from rca.parsers.stream import Blocks

_LABELS = r'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}'
_FLOAT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"
LINE = (
    rf"^(?P<key>[a-zA-Z_:][a-zA-Z0-9_:.]*(?:[ \t]*{_LABELS})?|{_LABELS})"
    rf"[ \t]+(?P<value>{_FLOAT}|[-+]?(?i:nan|inf|infinity))"
    rf"(?:[ \t]+(?P<ts>{_FLOAT}))?[ \t]*(?:#.*)?\r?$"
)
LABELS = re.compile(_LABELS)
_LINE = re.compile(LINE)
_LABEL = re.compile(
    r'[\s,{]*(?:"((?:[^"\\]|\\.)*)"|([^\s"={},]+))(?:\s*=\s*"((?:[^"\\]|\\.)*)")?[\s,}]*'
)
_ESCAPE = re.compile(r"\\(.)")
_UNESCAPED = {"n": "\n"}
_META = re.compile(r"# *(TYPE|UNIT|EOF)\b *(\S*) *(.*)")
_FIRST_MS = 1e11
_FAMILY = re.compile(r"_(total|created|bucket|sum|count|info|gsum|gcount)$")


class _Families(NamedTuple):
    """What the comment lines tell, by name of the family."""

    types: dict[str, str]
    units: dict[str, str]


def parse_key(key: str) -> dict[str, str]:
    """Labels of a series as an exposition writes it, the name among them as '__name__'."""
    name, brace, rest = key.partition("{")
    labels = {"__name__": name.strip()} if name.strip() else {}
    if brace:
        for quoted, bare, value in _LABEL.findall(rest):
            if quoted and not value and "__name__" not in labels:
                labels["__name__"] = _unescape(quoted)  # {"dotted.name", label="x"}
            else:
                labels[_unescape(quoted) or bare] = _unescape(value)
    return labels


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: _UNESCAPED.get(m[1], m[1]), text) if "\\" in text else text


def family_of(name: str, types: dict[str, str]) -> str:
    """The family that a series belongs to, by the comment lines."""
    return name if name in types else _FAMILY.sub("", name)


def read_text(path: Path, sink: Sink, *, label: str = "sample lines") -> None:
    """Read an exposition into the sink.

    Raises:
        ParseError: Not one line can be read.
    """
    blocks = Blocks(path)
    reader = _Reader(sink, path)
    for text in _whole_lines(blocks):
        reader.add(text)
    reader.finish(label)
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _whole_lines(blocks: Blocks) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        head, newline, tail = (rest + block).rpartition(b"\n")
        if newline:
            yield head
        rest = tail
    if rest:
        yield rest


class _Reader:
    def __init__(self, sink: Sink, path: Path) -> None:
        self._sink, self._path = sink, path
        self._series = SeriesRows()
        self._families = _Families({}, {})
        self._numbers: dict[str, int] = {}
        self._pending: list[tuple[pl.DataFrame, np.ndarray]] = []
        self._bad, self._example, self._open_metrics = 0, "", False

    def add(self, block: bytes) -> None:
        """Some whole lines."""
        lines = pl.Series("line", block.decode("utf-8", "replace").split("\n"), dtype=pl.String)
        for comment in lines.filter(lines.str.starts_with("#")):
            self._learn(comment)
        lines = lines.filter(~lines.str.contains(r"^\s*(#|$)"))
        frame = lines.str.extract_groups(LINE).struct.unnest()
        good = frame["key"].is_not_null()
        if not good.all():
            self._bad += int((~good).sum())
            self._example = self._example or str(lines.filter(~good)[0])[:120]
            frame = frame.filter(good)
        if len(frame):
            self._pending.append((frame.drop("key"), self._number(frame["key"])))

    def _learn(self, comment: str) -> None:
        found = _META.match(comment)
        if found is None:
            return
        if found[1] == "TYPE":
            self._families.types[found[2]] = found[3].strip().lower()
        elif found[1] == "UNIT":
            self._families.units[found[2]] = found[3].strip()
        self._open_metrics |= found[1] == "EOF"

    def _number(self, keys: pl.Series) -> np.ndarray:
        for key in keys.unique(maintain_order=True):
            if key not in self._numbers:
                labels = parse_key(key)
                family = family_of(labels.get("__name__", ""), self._families.types)
                number = self._series.number(
                    labels,
                    told=self._families.types.get(family),
                    unit=self._families.units.get(family),
                )
                if number != REFUSED:  # those are without end, and are not kept
                    self._numbers[key] = number
        table = pl.DataFrame(
            {"key": list(self._numbers), "id": list(self._numbers.values())},
            schema={"key": pl.String, "id": pl.Int64},
        )
        joined = pl.DataFrame({"key": keys}).join(
            table, on="key", how="left", maintain_order="left"
        )
        return joined["id"].fill_null(REFUSED).to_numpy()

    def finish(self, label: str) -> None:
        """Write everything; time stamps are ms in the classic form, seconds in OpenMetrics."""
        if not self._pending:
            raise ParseError(f"no {label} in it can be read", path=str(self._path))
        self._series.write(self._sink)
        untimed = 0
        for frame, numbers in self._pending:
            untimed += frame["ts"].null_count()
            samples = Samples(numbers, self._times(frame["ts"]), _values(frame["value"]))
            self._sink.count_elements(len(numbers))
            write_samples(self._sink, samples, self._series)
        if untimed:
            self._sink.note(
                "warning",
                "no_timestamps",
                "samples without time stamps: taken at the file's modification time",
                count=untimed,
            )
        if self._bad:
            self._sink.count_elements(self._bad)
            self._sink.note(
                "warning",
                "bad_line",
                "lines that are no samples",
                count=self._bad,
                example=self._example,
                lost=True,
            )

    def _times(self, texts: pl.Series) -> np.ndarray:
        present = texts.drop_nulls()
        try:
            if self._open_metrics or _are_seconds(present):
                told = seconds_of(present.to_arrow().cast(pa.string()))
            else:
                told = milliseconds(present.cast(pl.Int64).to_numpy())
        except (pa.ArrowInvalid, pl.exceptions.PolarsError, ArithmeticError) as error:
            raise ParseError(
                f"has a damaged time stamp: {error}", path=str(self._path)
            ) from error
        times = np.full(len(texts), self._path.stat().st_mtime_ns, "i8")
        times[texts.is_not_null().to_numpy()] = told
        return times


def _are_seconds(texts: pl.Series) -> bool:
    """Whether times are seconds: a whole number of ms is larger since 1973."""
    return len(texts) > 0 and float(texts[0]) < _FIRST_MS


def _values(texts: pl.Series) -> np.ndarray:
    return texts.cast(pl.Float64).to_numpy()


def _recognise(head: Head) -> bool:
    lines = head.data.decode("utf-8", "replace").split("\n")
    if len(lines) > 1 and len(head.data) >= 4096:
        lines.pop()  # it may be cut
    lines = [line for line in lines[:200] if line.strip()]
    told = [line for line in lines if line.startswith("#")]
    samples = [line for line in lines if not line.startswith("#")]
    good = sum(_LINE.match(line) is not None for line in samples)
    if any(re.match(r"# (TYPE|HELP) [a-zA-Z_:]", line) for line in told):
        return good > 0 or not samples
    labelled = sum("{" in line for line in samples)
    return bool(samples) and good == len(samples) and (labelled > 0 or len(samples) > 3)


FORMAT = Format("prometheus_text", "metrics", _recognise, read_text)
