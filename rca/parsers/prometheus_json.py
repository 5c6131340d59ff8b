"""Answers of Prometheus' HTTP API: query and query_range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_documents, sketch
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
from rca.parsers.stream import read_head

_NOTHING = msgspec.Raw(b"")
_VALUES = {"value", "values", "histogram", "histograms"}
_LINES = bytes.maketrans(b"]", b"\n")
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
    result_type: str = ""
    result: msgspec.Raw = _NOTHING
    data: msgspec.Raw = _NOTHING
    error: str = ""
    error_type: str = ""
    warnings: list[str] | None = None


class _Matrix(msgspec.Struct, rename="camel"):
    result_type: Literal["matrix", "vector"]
    result: list[_Series]


class _MatrixAnswer(msgspec.Struct, rename="camel"):
    status: Literal["success"]
    data: _Matrix
    warnings: list[str] | None = None


_decode_matrix = msgspec.json.Decoder(_MatrixAnswer, strict=False).decode
_decode_series = msgspec.json.Decoder(list[_Series], strict=False).decode


class _Document(NamedTuple):
    """An answer; `kind` is its result type, '' where it has none."""

    answer: _Answer
    kind: str
    series: list[_Series]


def _decode(data: bytes) -> _Document:
    """An answer, its data alone, or its list of series alone, as promtool prints it."""
    if data.lstrip()[:1] == b"[":
        return _Document(_Answer(), "matrix", _decode_series(data))
    with suppress(msgspec.ValidationError):  # the usual answer is read in one pass
        usual = _decode_matrix(data)
        answer = _Answer(usual.status, warnings=usual.warnings)
        return _Document(answer, usual.data.result_type, usual.data.result)
    answer = msgspec.json.decode(data, type=_Answer)
    inner = _Data(answer.result_type, answer.result)
    if bytes(answer.data).lstrip()[:1] == b"{" and answer.status != "error":
        inner = msgspec.json.decode(answer.data, type=_Data)
    series: list[_Series] = []
    if inner.result_type == "scalar":
        pair = msgspec.json.decode(inner.result, type=tuple[msgspec.Raw, msgspec.Raw])
        series = [_Series(value=msgspec.Raw(b"[%b,%b]" % tuple(map(bytes, pair))))]
    elif inner.result_type in ("matrix", "vector"):
        series = _decode_series(inner.result)
    return _Document(answer, inner.result_type, series)


def _documents(path: Path, sink: Sink) -> Iterator[_Document]:
    """The answer in a file, or one a line."""
    found = sketch(read_head(path))
    depth = 3 if isinstance(found.value, list) else 5 if "data" in mapping(found.value) else 4
    other = "lines that are no answers"
    return read_documents(path, sink, _decode, depth=depth, lines=found.more, other=other)


def _read(path: Path, sink: Sink) -> None:
    found: list[_Series] = []
    reasons, readable = [], 0
    for document in _documents(path, sink):
        for warning in document.answer.warnings or ():
            sink.note(
                "warning", "server_warning", f"the server warned: {warning}", example=warning
            )
        if document.kind in ("matrix", "vector", "scalar"):
            readable += 1
            found += document.series
        else:
            reasons.append(_why_no_samples(document.answer, document.kind))
    if reasons and not readable:
        raise ParseError(
            reasons[0], path=str(path), hint="export samples with /api/v1/query_range"
        )
    if reasons:
        sink.note(
            "warning",
            "no_samples",
            f"an answer among others {reasons[0]}",
            count=len(reasons),
            lost=True,
        )
    try:
        _write(found, SeriesRows(), sink, path)
    except (msgspec.DecodeError, ArithmeticError) as error:
        raise ParseError(
            f"has values that are no [time, value]: {error}", path=str(path)
        ) from error
    if readable and not found:
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
        size += memoryview(one.values).nbytes
        if size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _samples(chunk: Sequence[tuple[int, _Series]], path: Path) -> Samples:
    """The samples of some series.

    [[1.5,"2"],[3,"4"]] becomes the lines ,1.5,2 and ,3,4, which Arrow reads with exact decimals.
    """
    texts, ids, lengths = [], [], []
    for number, one in chunk:
        raw = bytes(one.values) or b"[%b]" % bytes(one.value)
        text = raw.translate(_LINES, b' \t\r\n"[')
        if len(text) > 1:  # the bracket that closes an empty list is a line's end, too
            texts.append(text)
            ids.append(number)
            lengths.append(raw.count(b"[") - 1)
    if not texts:
        return Samples(*(np.empty(0, kind) for kind in ("i8", "i8", "f8")))
    ts_ns, value = read_pairs(b"," + b",".join(texts), str(path))
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
    found = sketch(head).value
    document = mapping(found)
    if document.get("resultType") in ("matrix", "vector"):
        return True
    series = mapping(first(found))
    if isinstance(series.get("metric"), dict) and _VALUES & set(series):
        return True
    known = document.get("status") in ("success", "error")
    return known and ("data" in document or "errorType" in document)


FORMAT = Format("prometheus_json", "metrics", _recognise, _read)
