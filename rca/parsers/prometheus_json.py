"""Answers of Prometheus' HTTP API: query and query_range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.metric_rows import (
    Histogram,
    Samples,
    SeriesRows,
    exact_seconds,
    nanoseconds,
    read_pairs,
    write_histograms,
    write_samples,
)

_NOTHING = msgspec.Raw(b"")
_CHUNK_BYTES = 8_000_000
_NO_SAMPLES = {
    "alerts": "active alerts",
    "groups": "rules",
    "activeTargets": "scrape targets",
    "headStats": "statistics of the TSDB",
    "result": "an answer without resultType",
}


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: msgspec.Raw = _NOTHING
    value: msgspec.Raw = _NOTHING
    histograms: list[tuple[msgspec.Raw, _Native]] | None = None
    histogram: tuple[msgspec.Raw, _Native] | None = None


class _Native(msgspec.Struct):
    count: float
    sum: float
    buckets: list[tuple[int, float, float, float]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = _NOTHING


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    data: msgspec.Raw = _NOTHING
    error: str = ""
    error_type: str = ""
    warnings: list[str] | None = None


_decode_series = msgspec.json.Decoder(list[_Series], strict=False).decode


def _decode(data: bytes) -> tuple[_Answer, _Data | None, list[_Series]]:
    answer = msgspec.json.decode(data, type=_Answer)
    inner: _Data | None = None
    if bytes(answer.data).lstrip()[:1] == b"{" and answer.status != "error":
        inner = msgspec.json.decode(answer.data, type=_Data)
    series = (
        _decode_series(inner.result)
        if inner and inner.result_type in ("matrix", "vector")
        else []
    )
    return answer, inner, series


def _read(path: Path, sink: Sink) -> None:
    (answer, data, found), whole = read_whole(path, 5, _decode)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    for warning in answer.warnings or ():
        sink.note("warning", "server_warning", f"the server warned: {warning}", example=warning)
    kind = data.result_type if data else ""
    if data is None or kind not in ("matrix", "vector", "scalar"):
        raise ParseError(
            _why_no_samples(answer, kind),
            path=str(path),
            hint="export samples with /api/v1/query_range",
        )
    try:
        if kind == "scalar":
            pair = msgspec.json.decode(data.result, type=tuple[msgspec.Raw, msgspec.Raw])
            found = [_Series(value=msgspec.Raw(b"[%b,%b]" % tuple(map(bytes, pair))))]
        _write(found, SeriesRows(), sink, path)
    except (msgspec.DecodeError, ArithmeticError) as error:
        raise ParseError(
            f"has values that are no [time, value]: {error}", path=str(path)
        ) from error
    if not found:
        sink.note("info", "empty_result", "the query found no series")


def _write(found: Sequence[_Series], series: SeriesRows, sink: Sink, path: Path) -> None:
    numbers = [
        series.number(s.metric, told="histogram" if s.histogram or s.histograms else None)
        for s in found
    ]
    series.write(sink)
    for chunk in _chunks(list(zip(numbers, found, strict=True))):
        samples = _samples(chunk, path)
        sink.count_elements(len(samples.value))
        write_samples(sink, samples, series)
    histograms = list(_histograms(zip(numbers, found, strict=True)))
    sink.count_elements(len(histograms))
    write_histograms(sink, histograms)


def _chunks(found: Sequence[tuple[int, _Series]]) -> Iterator[list[tuple[int, _Series]]]:
    chunk: list[tuple[int, _Series]] = []
    size = 0
    for number, one in found:
        chunk.append((number, one))
        size += len(bytes(one.values))
        if size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _samples(chunk: Sequence[tuple[int, _Series]], path: Path) -> Samples:
    """The samples of some series.

    [[1.5,"2"],[3,"4"]] becomes the lines 1.5,2 and 3,4, which Arrow reads with exact decimals.
    """
    texts, ids, lengths = [], [], []
    for number, one in chunk:
        raw = bytes(one.values) or bytes(one.value)
        text = raw.translate(None, b' \t\r\n"').strip(b"[]").replace(b"],[", b"\n")
        if text:
            texts.append(text)
            ids.append(number)
            lengths.append(text.count(b"\n") + 1)
    if not texts:
        return Samples(*(np.empty(0, kind) for kind in ("i8", "i8", "f8")))
    ts_ns, value = read_pairs(b"\n".join(texts) + b"\n", str(path))
    if len(value) != sum(lengths):
        raise ParseError("has values that are no [time, value]", path=str(path))
    return Samples(np.repeat(np.array(ids, "i8"), lengths), ts_ns, value)


def _histograms(found: Any) -> Iterator[Histogram]:
    for number, one in found:
        pairs = [*(one.histograms or ()), *([one.histogram] if one.histogram else ())]
        if pairs:
            times = nanoseconds(exact_seconds([bytes(ts).decode() for ts, _ in pairs]))
            for ts_ns, (_, native) in zip(times, pairs, strict=True):
                buckets = [b[1:] for b in native.buckets]
                yield Histogram(number, int(ts_ns), native.count, native.sum, buckets)


def _why_no_samples(answer: _Answer, kind: str) -> str:
    if answer.status == "error":
        return f"is an error of the server: {answer.error_type}: {answer.error}"
    if kind == "string":
        return "holds a string, no samples"
    if kind:
        return f"holds a result of type {kind!r}, which has no samples"
    try:
        data = msgspec.json.decode(bytes(answer.data) or b"null")
    except msgspec.DecodeError:
        return "holds something damaged, no samples"
    if isinstance(data, list):
        of = "metric names or label values" if isinstance(first(data), str) else "label sets"
        return (
            f"holds a list of {of}, no samples" if data else "holds an empty list, no samples"
        )
    known = next((text for key, text in _NO_SAMPLES.items() if key in mapping(data)), None)
    return f"holds {known or 'metadata'}, no samples"


def _recognise(head: Head) -> bool:
    document = mapping(sketch(head).value)
    if document.get("status") not in ("success", "error"):
        return False
    return "data" in document or "errorType" in document


FORMAT = Format("prometheus_json", "metrics", _recognise, _read)
