"""GPU metrics of an Nsight Systems export: samples of hardware counters, as metric series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rca.parsers.format import Sink
from rca.parsers.metric_rows import REFUSED, SeriesRows
from rca.parsers.nsys_sqlite_rows import Lost, batches

PREFIX = "nsys_gpu_"
_TALL = """
SELECT typeId AS type, CAST(metricId AS TEXT) AS metric, {time} + {base} AS ts_ns,
    CAST(value AS REAL) AS value
FROM "GPU_METRICS" WHERE {time} IS NOT NULL
"""
# Versions up to 2023 write one JSON object a sampling instant, its keys the names of the metrics.
_WIDE = """
SELECT e.typeId AS type, j.key AS metric, coalesce(e.timestamp, e.rawTimestamp) + {base} AS ts_ns,
    CAST(j.value AS REAL) AS value
FROM GENERIC_EVENTS AS e, json_each(CASE WHEN json_valid(e.data) THEN e.data ELSE '{{}}' END) AS j
WHERE e.typeId IN (SELECT typeId FROM GENERIC_EVENT_TYPES WHERE data LIKE '%GPU Metrics%')
    AND coalesce(e.timestamp, e.rawTimestamp) IS NOT NULL
"""


class Metrics(NamedTuple):
    """Where an export keeps its GPU metrics.

    Attributes:
        query: Columns type, metric, ts_ns, value.
        names: Names of metrics by type and number; what is not in it is a name itself.
    """

    query: str
    names: dict[tuple[int, str], str]


def find(
    columns: dict[str, set[str]], names: list[tuple[int, int, str]], base_ns: int
) -> Metrics | None:
    """Where the samples are, None when there are none.

    Args:
        columns: Columns of the tables GPU_METRICS and GENERIC_EVENTS, as far as they have rows.
        names: Rows (typeId, metricId, metricName) of TARGET_INFO_GPU_METRICS.
        base_ns: What times count from, ns since the Unix epoch.
    """
    tall = columns.get("GPU_METRICS", set())
    if {"typeId", "metricId", "value"} <= tall and tall & {"timestamp", "rawTimestamp"}:
        time = "timestamp" if "timestamp" in tall else "rawTimestamp"
        known = {(kind, str(number)): name for kind, number, name in names}
        return Metrics(_TALL.format(time=time, base=base_ns), known)
    if {"rawTimestamp", "timestamp", "typeId", "data"} <= columns.get("GENERIC_EVENTS", set()):
        return Metrics(_WIDE.format(base=base_ns), {})
    return None


def read(file: Path, metrics: Metrics, sink: Sink, lost: Lost) -> int:
    """Write series and samples; returns the number of samples. `lost`: see `batches`."""
    series = SeriesRows()
    count = 0
    for batch in batches(file, metrics.query, lost):
        rows = pl.DataFrame(pl.from_arrow(batch))
        keys = rows.select("type", "metric").unique(maintain_order=True)
        named = [(kind, metrics.names.get((kind, key), key)) for kind, key in keys.rows()]
        ids = [series.number(_labels(*n), told="gauge", unit=unit_of(n[1])) for n in named]
        numbers = keys.with_columns(pl.Series("series_id", ids, dtype=pl.Int64))
        sound = rows.join(numbers, on=["type", "metric"], maintain_order="left").filter(
            (pl.col("value") >= 0) & (pl.col("series_id") != REFUSED)
        )
        sink.count_elements(rows.height)
        if unsound := rows.height - sound.height:
            sink.note(
                "warning",
                "bad_gpu_metric",
                "samples of GPU metrics that are no numbers, or negative, were left out",
                count=unsound,
                lost=True,
            )
        sink.insert("sample", sound.select("series_id", "ts_ns", "value"))
        count += sound.height
    series.write(sink)
    return count


def _labels(kind: int, name: str) -> dict[str, str]:
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower().replace("%", "percent")).strip("_")
    return {"__name__": PREFIX + slug, "metric": name, "gpu": str(kind & 0xFF)}


def unit_of(name: str) -> str | None:
    """The unit in the brackets that a metric's name ends with, None without any."""
    found = re.search(r"\[([^\]]+)\]$", name)
    return found[1].removeprefix("Throughput ") if found else None
