"""VictoriaMetrics' export: one JSON object a series and line, with bare Inf and NaN."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import read_lines
from rca.parsers.metric_rows import Samples, SeriesRows, write_samples
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


def _parse(line: bytes) -> _Line:
    before, found, after = line.partition(b'"values"')
    mended = _BARE.sub(rb'"\1"', after).replace(b'"+Inf', b'"Inf').replace(b'"null"', b'"NaN"')
    parsed = _decode(before + found + mended)
    if len(parsed.values) != len(parsed.timestamps):
        raise msgspec.ValidationError("as many values as timestamps are due")
    return parsed


def _read(path: Path, sink: Sink) -> None:
    blocks = Blocks(path)
    series, parsed, bad, problem = SeriesRows(), [], 0, ""
    for line in read_lines(blocks):
        try:
            one = _parse(line)
        except msgspec.DecodeError as error:
            bad, problem = bad + 1, str(error)
            continue
        parsed.append((series.number(one.metric), one))
    if bad and not parsed:
        raise ParseError(f"not one line can be read: {problem}", path=str(path))
    series.write(sink)
    batch, size = [], 0
    for entry in parsed:
        batch.append(entry)
        size += len(entry[1].values)
        if size > _BATCH_VALUES:
            write_samples(sink, _samples(batch), series)
            batch, size = [], 0
    write_samples(sink, _samples(batch), series)
    sink.count_elements(sum(len(one.values) for _, one in parsed) + bad)
    if bad:
        sink.note(
            "warning", "bad_line", f"lines that are no series: {problem}", count=bad, lost=True
        )
    if blocks.damage:
        sink.note("warning", "truncated", blocks.damage, lost=True)


def _samples(batch: Iterable[tuple[int, _Line]]) -> Samples:
    """The samples of some lines; VictoriaMetrics counts whole milliseconds."""
    ids, times, values = [], [], []
    for number, one in batch:
        ids.append(np.full(len(one.values), number, "i8"))
        times.append(np.array(one.timestamps, "i8") * 1_000_000)
        values.append(np.array(one.values, "f8"))
    if not ids:
        return Samples(*(np.empty(0, kind) for kind in ("i8", "i8", "f8")))
    return Samples(np.concatenate(ids), np.concatenate(times), np.concatenate(values))


def _recognise(head: Head) -> bool:
    first = head.data.split(b"\n", 1)[0]
    return bool(_START.match(first)) and b'"values"' in first


FORMAT = Format("victoriametrics", "metrics", _recognise, _read)
