"""Rows of the tables series, sample and histogram_sample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from rca.errors import ParseError
from rca.parsers.format import Sink
from rca.parsers.times import MAX_NS

_TOO_LATE = "times lie beyond the year 2262; are they in another unit?"
SECONDS = pa.decimal128(38, 9)
_BUCKETS = pa.list_(
    pa.struct([("low", pa.float64()), ("high", pa.float64()), ("count", pa.float64())])
)
# Counters whose names do not end as counters do (Triton, TGI, Ray Serve, DCGM, node_exporter).
_COUNTER = re.compile(
    r"""(?x) (?!.*pending_request_count) .*(_total|_count|_sum|_bucket)
    | nv_inference_(?!pending|.*(histogram|summary)|.*_ratio).*
    | tgi_request_(count|success|failure)
    | ray_.*_(counter|replica_starts)
    | DCGM_FI_DEV_(TOTAL_ENERGY_CONSUMPTION|.*_VIOLATION|PCIE_REPLAY_COUNTER
                  |NVLINK_BANDWIDTH_TOTAL|ECC_.*|(UN)?CORRECTABLE_REMAPPED_ROWS)
    | node_vmstat_(oom_kill|pg.*) | node_(context_switches|intr)_total
    """
).fullmatch
_HISTOGRAM_PART = re.compile(r".*_(bucket|sum|count)").fullmatch
# DCGM's blank values for 64-bit integers and for floating point: unknown, not found, no permission.
_BLANK_INTEGER, _BLANK_DOUBLE = 9.223372036854775e18, (140737488355328.0, 140737488355332.0)


MAX_SERIES = 200_000
"""Label sets of one file; samples of further ones are left out, and a note counts them."""
REFUSED = -1
"""The number of all series beyond."""

_PAIRS = pa_csv.ReadOptions(column_names=["nothing", "seconds", "value"], use_threads=False)


class Samples(NamedTuple):
    """Values of many series; three columns of one length."""

    series_id: np.ndarray[Any, np.dtype[np.int64]]
    ts_ns: np.ndarray[Any, np.dtype[np.int64]]
    value: np.ndarray[Any, np.dtype[np.float64]]


def metric_type(name: str, told: str | None = None) -> str:
    """The type of a series: as its source tells, else by its name.

    Args:
        name: Name of the series.
        told: Type of the family as the source tells, in Prometheus' or OpenMetrics' words.
    """
    if told in ("histogram", "summary", "gaugehistogram") and _HISTOGRAM_PART(name):
        return "gauge" if told == "gaugehistogram" else "counter"
    if told == "summary":
        return "summary"
    if told in ("histogram", "gaugehistogram"):
        return "gauge" if name.endswith("_created") else "histogram"
    if told == "counter":
        return "gauge" if name.endswith("_created") else "counter"
    if told in ("gauge", "info", "stateset"):
        return "gauge"
    return "counter" if _COUNTER(name) else "gauge"


class SeriesRows:
    """Gives numbers to series, and writes them with their types."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, list[tuple[str, str]], str, str | None]] = []
        self._ids: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self.dcgm: list[int] = []
        self._refused: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def number(
        self,
        labels: Mapping[str, str],
        *,
        told: str | None = None,
        unit: str | None = None,
    ) -> int:
        """The number of the series with these labels, its name among them as '__name__'.

        REFUSED for a new one when there are MAX_SERIES already.
        """
        name = labels.get("__name__", "")
        rest = [(k, v) for k, v in labels.items() if k != "__name__"]
        key = name, frozenset(rest)
        known = self._ids.get(key)
        if known is not None:
            return known
        if len(self._rows) >= MAX_SERIES:
            if name in self._refused or len(self._refused) < 1000:
                self._refused[name] = self._refused.get(name, 0) + 1
            return REFUSED
        number = self._ids[key] = len(self._rows)
        self._rows.append((name, rest, metric_type(name, told), unit or None))
        if name.startswith("DCGM_"):
            self.dcgm.append(number)
        return number

    def write(self, sink: Sink) -> None:
        """All series to the sink."""
        if not self._rows:
            return
        names, labels, types, units = zip(*self._rows, strict=True)
        columns = {
            "id": pa.array(range(len(names)), pa.int64()),
            "name": pa.array(names, pa.string()),
            "labels": pa.array(labels, pa.map_(pa.string(), pa.string())),
            "type": pa.array(types, pa.string()),
            "unit": pa.array(units, pa.string()),
        }
        sink.insert("series", pa.table(columns))
        unnamed = sum(not name for name in names)
        if unnamed:
            sink.note(
                "info",
                "unnamed_series",
                "series without a metric name: results of expressions",
                count=unnamed,
            )

    def note_refused(self, sink: Sink, n_samples: int) -> None:
        """Say how many samples are left out, and of which names most."""
        most = sorted(self._refused.items(), key=lambda item: (-item[1], item[0]))[:3]
        sink.note(
            "warning",
            "too_many_series",
            f"samples of label sets beyond the first {MAX_SERIES:,} of the file: left out",
            count=n_samples,
            example=", ".join(f"{name[:80]} ({n:,} label sets)" for name, n in most),
            lost=True,
        )


def write_samples(sink: Sink, samples: Samples, series: SeriesRows) -> None:
    """Samples to the sink, without those that say 'not supported' and those of refused series."""
    refused = samples.series_id == REFUSED
    if refused.any():
        series.note_refused(sink, int(refused.sum()))
        samples = Samples(*(column[~refused] for column in samples))
    if series.dcgm:
        samples = _without_blanks(sink, samples, series)
    if len(samples.value):
        sink.insert("sample", pa.table(samples._asdict()))
    nan = int(np.isnan(samples.value).sum())
    if nan:
        sink.note("info", "nan", "values are NaN: no value, not zero", count=nan)


def _without_blanks(sink: Sink, samples: Samples, series: SeriesRows) -> Samples:
    low, high = _BLANK_DOUBLE
    value = samples.value
    with np.errstate(invalid="ignore"):
        blank = (value >= _BLANK_INTEGER) & np.isfinite(value) | (value >= low) & (value < high)
    blank &= np.isin(samples.series_id, series.dcgm)
    if not blank.any():
        return samples
    sink.note(
        "info",
        "dcgm_unsupported",
        "DCGM values that mean 'not supported': left out",
        count=int(blank.sum()),
    )
    return Samples(*(column[~blank] for column in samples))


@dataclass(frozen=True)
class Histogram:
    """One value of a native histogram; buckets are (low, high, count)."""

    series_id: int
    ts_ns: int
    count: float
    sum: float
    buckets: Sequence[tuple[float, float, float]]


def write_histograms(sink: Sink, histograms: Sequence[Histogram]) -> None:
    """Native histograms to the sink, without those of refused series."""
    histograms = [h for h in histograms if h.series_id != REFUSED]
    if not histograms:
        return
    names = ("low", "high", "count")
    rows = [[dict(zip(names, b, strict=True)) for b in h.buckets] for h in histograms]
    columns = {
        "series_id": pa.array([h.series_id for h in histograms], pa.int64()),
        "ts_ns": pa.array([h.ts_ns for h in histograms], pa.int64()),
        "count": pa.array([h.count for h in histograms], pa.float64()),
        "sum": pa.array([h.sum for h in histograms], pa.float64()),
        "buckets": pa.array(rows, _BUCKETS),
    }
    sink.insert("histogram_sample", pa.table(columns))


def nanoseconds(seconds: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Decimal seconds with nine places as whole ns: the unscaled numbers are just that.

    Raises:
        OverflowError: A time beyond the year 2262.
    """
    array = seconds.combine_chunks() if isinstance(seconds, pa.ChunkedArray) else seconds
    words = np.frombuffer(array.buffers()[1], dtype="<i8")
    start = array.offset * 2
    low, high = (words[start + i : start + i + 2 * len(array) : 2] for i in (0, 1))
    if (high != low >> 63).any():
        raise OverflowError(_TOO_LATE)
    return low.copy()


def milliseconds(
    times: np.ndarray[Any, np.dtype[np.int64]],
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Whole ms as ns.

    Raises:
        OverflowError: A time beyond the year 2262.
    """
    if len(times) and int(np.abs(times).max()) > MAX_NS // 1_000_000:
        raise OverflowError(_TOO_LATE)
    return times * 1_000_000


def exact_seconds(texts: Sequence[str]) -> pa.Array:
    """Seconds written as text, cut behind the ninth place."""
    from decimal import ROUND_DOWN, Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        cut = [Decimal(t).quantize(Decimal("1e-9"), ROUND_DOWN) for t in texts]
    return pa.array(cut, SECONDS)


def seconds_of(texts: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Times written as seconds, in ns, exactly."""
    try:
        return nanoseconds(texts.cast(SECONDS))
    except pa.ArrowInvalid:  # more than nine places
        return nanoseconds(exact_seconds(texts.to_pylist()))


def read_pairs(csv: bytes, path: str) -> tuple[Any, Any]:
    """Columns ts_ns and value of lines ',seconds,value'.

    Raises:
        ParseError: A line is something else.
    """
    for seconds in (SECONDS, pa.string()):  # as text when there are more than nine places
        convert = pa_csv.ConvertOptions(
            column_types={"seconds": seconds, "value": pa.float64()},
            include_columns=["seconds", "value"],
            null_values=[],
        )
        try:
            table = pa_csv.read_csv(pa.BufferReader(csv), _PAIRS, convert_options=convert)
            times = table["seconds"]
            exact = times if seconds == SECONDS else exact_seconds(times.to_pylist())
            return nanoseconds(exact), table["value"].to_numpy()
        except (pa.ArrowInvalid, ArithmeticError) as error:
            problem = error
    raise ParseError(f"has values that are no [time, value]: {problem}", path=path) from problem
