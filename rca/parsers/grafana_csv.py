"""CSV as Grafana's panels download it: a time column and one column a series."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.metric_rows import Samples, SeriesRows, write_samples
from rca.parsers.prometheus_text import LABELS, parse_key
from rca.parsers.stream import read_all
from rca.parsers.text_lines import full_lines
from rca.parsers.times import point_ns

_LIMIT_BYTES = 1_073_741_824
_TIME_NAMES = {"time", "timestamp", "date", "datetime", "ts"}
_SEP = re.compile(r'\s*"?sep=(.)"?\s*')
_NUMBER = re.compile(
    r"\s*([-+]?(?:[\d]+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?|NaN|[-+]?Inf(?:inity)?)\s*([^\d\s].*)?"
)
_SCALE = {
    "": 1.0, "%": 1.0, "ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0,
    "mins": 60.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0, "K": 1e3, "Mil": 1e6, "Bil": 1e9,
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20,
    "GiB": 2.0**30, "TiB": 2.0**40, "req/s": 1.0, "reqps": 1.0, "ops/s": 1.0, "tokens/s": 1.0,
    "B/s": 1.0, "W": 1.0, "°C": 1.0,
}  # fmt: skip


def _labels_of(column: str) -> dict[str, str]:
    """Labels in a column's header: the last {...} of it, else the header is the name.

    Joined frames repeat the labels; a legend before them is left out.
    """
    found = list(LABELS.finditer(column))
    usable = [f for f in found if "=" in f[0]]
    if usable:
        return parse_key(usable[-1][0]) | _named(column[: usable[-1].start()], usable[-1][0])
    return {"__name__": column.strip()}


def _named(before: str, braces: str) -> dict[str, str]:
    words = before.split()
    if "__name__" in braces or not words or words[-1].endswith("}"):
        return {}
    return {"__name__": words[-1]}


def value_of(cell: str) -> float | None:
    """The number in a cell, raw or as Grafana formats it (12.5%, 1.20 s); None when it is none."""
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return None
    unit = (found[2] or "").strip()
    if unit not in _SCALE:
        return None
    text = found[1]
    if "," in text:
        text = (
            text.replace(",", "")
            if "." in text or re.search(r",\d{3}(,|$)", text)
            else text.replace(",", ".")
        )
    return float(text) * _SCALE[unit]


def _rows(path: Path) -> tuple[list[list[str]], str | None]:
    data, damage = read_all(path, _LIMIT_BYTES)
    text = data.decode("utf-8-sig", "replace")
    first, _, rest = text.partition("\n")
    told = _SEP.fullmatch(first)
    text = rest if told else text
    header = text.partition("\n")[0]
    delimiter = told[1] if told else max(",;\t", key=header.count)
    try:
        table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise ParseError(f"is damaged CSV: {error}", path=str(path)) from error
    return [row for row in table if any(row)], damage


def _read(path: Path, sink: Sink) -> None:
    rows, damage = _rows(path)
    series = SeriesRows()
    numbers = [series.number(_labels_of(column)) for column in rows[0][1:]]
    ids, times, values = [], [], []
    bad, example = 0, ""
    for row in rows[1:]:
        ts_ns = point_ns(row[0])
        for number, cell in zip(numbers, row[1:], strict=False):
            if not cell.strip():
                continue  # a gap, not a zero
            value = value_of(cell)
            if value is None or ts_ns is None:
                bad, example = bad + 1, f"{row[0]}: {cell}"[:120]
                continue
            ids.append(number)
            times.append(ts_ns)
            values.append(value)
    if bad and not ids:
        raise ParseError(f"holds no [time, number], for example {example!r}", path=str(path))
    series.write(sink)
    sink.count_elements(len(ids) + bad)
    write_samples(
        sink, Samples(np.array(ids, "i8"), np.array(times, "i8"), np.array(values)), series
    )
    if bad:
        sink.note(
            "warning",
            "bad_cell",
            "cells that are no numbers",
            count=bad,
            example=example,
            lost=True,
        )
    if damage:
        sink.note("warning", "truncated", damage, lost=True)


def _recognise(head: Head) -> bool:
    lines = [line for line in full_lines(head) if line.strip()]
    if lines and _SEP.fullmatch(lines[0]):
        lines = lines[1:]
    if len(lines) < 2:
        return False
    first = re.split(r"[,;\t]", lines[0], maxsplit=1)
    second = re.split(r"[,;\t]", lines[1], maxsplit=1)
    if len(first) < 2 or len(second) < 2 or first[0].strip(' "').lower() not in _TIME_NAMES:
        return False
    cells = re.split(r"[,;\t]", second[1])
    numeric = all(not c.strip(' "') or value_of(c.strip(' "')) is not None for c in cells)
    return point_ns(second[0].strip(' "')) is not None and numeric


FORMAT = Format("grafana_csv", "metrics", _recognise, _read)
