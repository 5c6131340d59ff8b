"""VictoriaMetrics' export: one JSON object a series and line, with bare Inf and NaN."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import read_lines
from rca.parsers.metric_rows import Samples, SeriesRows, milliseconds, write_samples
from rca.parsers.stream import Blocks

_BATCH_VALUES = 500_000
# Not JSON: bare infinities and NaN, and null for NaN.
_BARE = re.compile(rb"(?<=[\[,:\s])([+-]?(?:Inf(?:inity)?|NaN|null))(?=[\],\s])")
_START = re.compile(rb'\s*\{\s*"metric"\s*:\s*\{')


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[float]
    timestamps: list[int]


_decode = msgspec.json.Decoder(_Line, strict=False).decode


class _Parsed(NamedTuple):
    number: int
    ts_ns: np.ndarray[Any, np.dtype[np.int64]]
    value: np.ndarray[Any, np.dtype[np.float64]]


def _parse(line: bytes, series: SeriesRows) -> _Parsed:
    """One series; VictoriaMetrics counts whole milliseconds."""
    before, found, after = line.partition(b'"values"')
    mended = _BARE.sub(rb'"\1"', after).replace(b'"+Inf', b'"Inf').replace(b'"null"', b'"NaN"')
    one = _decode(before + found + mended)
    if len(one.values) != len(one.timestamps):
        raise msgspec.ValidationError("as many values as timestamps are due")
    times = milliseconds(np.array(one.timestamps, "i8"))
    return _Parsed(series.number(one.metric), times, np.array(one.values, "f8"))


def _read(path: Path, sink: Sink) -> None:
    blocks = Blocks(path)
    series, parsed, bad, problem = SeriesRows(), [], 0, ""
    for line in read_lines(blocks):
        try:
            parsed.append(_parse(line, series))
        except (msgspec.DecodeError, OverflowError) as error:
            bad, problem = bad + 1, str(error)
    if bad and not parsed:
        raise ParseError(f"not one line can be read: {problem}", path=str(path))
    series.write(sink)
    for batch in _batches(parsed):
        ids = np.repeat([p.number for p in batch], [len(p.value) for p in batch])
        times, values = (np.concatenate([p[i] for p in batch]) for i in (1, 2))
        sink.count_elements(len(values))
        write_samples(sink, Samples(ids.astype("i8"), times, values), series)
    if bad:
        sink.count_elements(bad)
        sink.note(
            "warning", "bad_line", f"lines that are no series: {problem}", count=bad, lost=True
        )
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _batches(parsed: list[_Parsed]) -> Iterator[list[_Parsed]]:
    batch: list[_Parsed] = []
    size = 0
    for one in parsed:
        batch.append(one)
        size += len(one.value)
        if size > _BATCH_VALUES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _recognise(head: Head) -> bool:
    first = head.data.split(b"\n", 1)[0]
    return bool(_START.match(first)) and b'"values"' in first


FORMAT = Format("victoriametrics", "metrics", _recognise, _read)
