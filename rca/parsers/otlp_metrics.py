"""OTLP metrics as JSON: one object or one a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import mapping, read_documents, sketch
from rca.parsers.metric_rows import (
    Histogram,
    Samples,
    SeriesRows,
    write_histograms,
    write_samples,
)
from rca.parsers.otlp import KeyValue, Resource, attributes, starts_with_a_line
from rca.parsers.stream import read_head
from rca.parsers.times import MAX_NS


class _Buckets(msgspec.Struct, rename="camel"):
    offset: int = 0
    bucket_counts: list[int] = []


class _Quantile(msgspec.Struct):
    quantile: float = 0.0
    value: float = 0.0


class _Point(msgspec.Struct, rename="camel"):
    time_unix_nano: int = 0
    attributes: list[KeyValue] | None = None
    as_double: float | None = None
    as_int: int | None = None
    count: int = 0
    sum: float = float("nan")
    bucket_counts: list[int] = []
    explicit_bounds: list[float] = []
    scale: int = 0
    zero_count: int = 0
    zero_threshold: float = 0.0
    positive: _Buckets | None = None
    negative: _Buckets | None = None
    quantile_values: list[_Quantile] = []


class _Points(msgspec.Struct, rename="camel"):
    data_points: list[_Point] = []
    aggregation_temporality: int | str = 0
    is_monotonic: bool = False


class _Metric(msgspec.Struct, rename="camel"):
    name: str = ""
    unit: str = ""
    gauge: _Points | None = None
    sum: _Points | None = None
    histogram: _Points | None = None
    exponential_histogram: _Points | None = None
    summary: _Points | None = None


class _Scope(msgspec.Struct):
    metrics: list[_Metric] = []


class _ResourceMetrics(msgspec.Struct, rename="camel"):
    resource: Resource | None = None
    scope_metrics: list[_Scope] = []


class Document(msgspec.Struct, rename="camel"):
    """OTLP's ExportMetricsServiceRequest."""

    resource_metrics: list[_ResourceMetrics] = []


_decode = msgspec.json.Decoder(Document, strict=False).decode
_DELTA = (1, "AGGREGATION_TEMPORALITY_DELTA")


class _Gathered:
    """Samples and histograms of all documents of a file."""

    def __init__(self) -> None:
        self.series = SeriesRows()
        self.samples: list[tuple[int, int, float]] = []
        self.histograms: list[Histogram] = []
        self.deltas = self.late = 0

    def add(self, document: Document) -> None:
        """All points of a document."""
        for group in document.resource_metrics:
            resource = {
                f"resource.{k}": str(v)
                for k, v in attributes(
                    group.resource.attributes if group.resource else None
                ).items()
            }
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    self._add_metric(metric, resource)

    def _add_metric(self, metric: _Metric, resource: dict[str, str]) -> None:
        counter = metric.sum is not None and metric.sum.is_monotonic
        for told, points in (
            ("gauge", metric.gauge),
            ("counter" if counter else "gauge", metric.sum),
            ("histogram", metric.histogram),
            ("histogram", metric.exponential_histogram),
            ("summary", metric.summary),
        ):
            if points is None:
                continue
            if told in ("counter", "histogram") and points.aggregation_temporality in _DELTA:
                self.deltas += len(points.data_points)
                told = "gauge" if told == "counter" else told  # noqa: PLW2901
            for point in points.data_points:
                if point.time_unix_nano <= MAX_NS:
                    self._add_point(metric, told, point, resource)
                else:
                    self.late += 1

    def _add_point(
        self, metric: _Metric, told: str, point: _Point, resource: dict[str, str]
    ) -> None:
        labels = {k: str(v) for k, v in attributes(point.attributes).items()} | resource
        labels["__name__"] = metric.name
        if told == "summary":
            for part in point.quantile_values:
                number = self.series.number(
                    labels | {"quantile": str(part.quantile)}, told=told
                )
                self.samples.append((number, point.time_unix_nano, part.value))
            return
        number = self.series.number(labels, told=told, unit=metric.unit)
        if told == "histogram":
            buckets = list(_buckets(point))
            self.histograms.append(
                Histogram(number, point.time_unix_nano, _float(point.count), point.sum, buckets)
            )
            return
        value = point.as_double if point.as_double is not None else point.as_int
        self.samples.append(
            (number, point.time_unix_nano, float("nan") if value is None else _float(value))
        )


def _buckets(point: _Point) -> Iterator[tuple[float, float, float]]:
    """Bounds and counts, from explicit bounds or from powers of the base 2 ** 2 ** -scale."""
    infinity = float("inf")
    if point.bucket_counts:
        bounds = [-infinity, *point.explicit_bounds, infinity]
        yield from zip(bounds, bounds[1:], map(_float, point.bucket_counts), strict=False)
        return
    base = _power(2.0, _power(2.0, -point.scale))
    negative, positive = point.negative or _Buckets(), point.positive or _Buckets()
    for index in reversed(range(len(negative.bucket_counts))):
        low, high = (
            _power(base, negative.offset + index),
            _power(base, negative.offset + index + 1),
        )
        yield -high, -low, _float(negative.bucket_counts[index])
    if point.zero_count:
        yield -point.zero_threshold, point.zero_threshold, _float(point.zero_count)
    for index, count in enumerate(positive.bucket_counts):
        yield (
            _power(base, positive.offset + index),
            _power(base, positive.offset + index + 1),
            _float(count),
        )


def _float(number: float) -> float:
    """The number; one of hundreds of digits, which only damage writes, is infinite."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return float("inf")


def _documents(path: Path, sink: Sink) -> Iterator[Any]:
    lines = starts_with_a_line(read_head(path))
    other = "lines that are no OTLP JSON"
    return read_documents(path, sink, _decode, depth=7, lines=lines, other=other)


def _read(path: Path, sink: Sink) -> None:
    write(_documents(path, sink), path, sink)


def write(documents: Iterable[Document], path: Path, sink: Sink) -> None:
    """Write the data points of all documents to the sink.

    Raises:
        ParseError: There is none.
    """
    gathered = _Gathered()
    for document in documents:
        gathered.add(document)
    count = len(gathered.samples) + len(gathered.histograms)
    if not count:
        raise ParseError("holds no data points that can be read", path=str(path))
    gathered.series.write(sink)
    sink.count_elements(count)
    if gathered.samples:
        ids, times, values = zip(*gathered.samples, strict=True)
        samples = Samples(np.array(ids, "i8"), np.array(times, "i8"), np.array(values, "f8"))
        write_samples(sink, samples, gathered.series)
    write_histograms(sink, gathered.histograms)
    if gathered.late:
        sink.count_elements(gathered.late)
        sink.note(
            "warning",
            "bad_time",
            "points with times beyond the year 2262: left out",
            count=gathered.late,
            lost=True,
        )
    if gathered.deltas:
        sink.note(
            "warning",
            "delta_points",
            "points with delta temporality: each is a gain, not a running total",
            count=gathered.deltas,
        )


def _recognise(head: Head) -> bool:
    return isinstance(mapping(sketch(head).value).get("resourceMetrics"), list)


FORMAT = Format("otlp_metrics", "metrics", _recognise, _read)
