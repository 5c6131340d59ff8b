"""Results of `vllm bench serve` and SGLang's `bench_serving`: one JSON object a run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rca.errors import ParseError
from rca.parsers.csv_table import Points, note_zone
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import mapping, read_lines, repair, sketch
from rca.parsers.stream import Blocks, read_all
from rca.parsers.times import iso_ns

_LIMIT_BYTES = 1_073_741_824
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)")
_RESULT = {"request_throughput", "output_throughput", "mean_ttft_ms"}
_SETTINGS = (
    "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "dataset_name",
    "request_rate", "max_concurrency", "burstiness", "num_prompts",
)  # fmt: skip
_NOT_MEASURED = {*_SETTINGS, "date"}


def date_ns(text: Any) -> int | None:
    """The `date` of a result in ns since the Unix epoch, taken for UTC; None if it is none."""
    found = _DATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = found.groups()
    return iso_ns(f"{year}-{month}-{day} {hour}:{minute}:{second}")


def _records(path: Path) -> tuple[list[dict[str, Any]], list[str], str | None]:
    """Results in a file, lines that are none, and the damage of the file.

    A pretty-printed object is read whole; `--append-result` writes one a line.
    """
    data, damage = read_all(path, _LIMIT_BYTES)
    # What is not one object has one a line, or is damaged.
    with suppress(ValueError):
        whole = json.loads(data.decode("utf-8-sig", "replace"))
        return [mapping(whole)], [], damage
    found, bad = [], []
    for line in read_lines(Blocks(path)):
        text = line.decode("utf-8-sig", "replace")
        try:
            found.append(mapping(json.loads(text)))
        except ValueError:
            bad.append(text[:120])
    whole_keys = None if any(found) else repair(data, 2)
    if whole_keys is None:
        return found, bad, damage
    try:
        kept = mapping(json.loads(whole_keys.decode("utf-8-sig", "replace")))
    except ValueError:
        return found, bad, damage
    return [kept], [], damage or "JSON is cut short"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _add(points: Points, record: Mapping[str, Any], ts_ns: int) -> int:
    """Add a result; returns how many lists of single requests are left out."""
    labels = {k: str(record[k]) for k in _SETTINGS if record.get(k) is not None}
    lists = 0
    for key, value in record.items():
        if isinstance(value, list):
            lists += bool(value)
        elif _is_number(value) and key not in _NOT_MEASURED:
            name = re.sub(r"[^A-Za-z0-9_]+", "_", key)
            points.add(f"bench_serve_{name}", labels, ts_ns, float(value))
    return lists


def _read(path: Path, sink: Sink) -> None:
    records, bad, damage = _records(path)
    points = Points()
    untimed = lists = 0
    for record in records:
        ts_ns = date_ns(record.get("date"))
        untimed += ts_ns is None
        lists += _add(points, record, path.stat().st_mtime_ns if ts_ns is None else ts_ns)
    if not len(points):
        raise ParseError("holds no whole result", path=str(path), hint="write it again")
    points.write(sink, path)
    if untimed < len(records):
        note_zone(sink)
    _note(sink, untimed, lists, bad, damage)


def _note(sink: Sink, untimed: int, lists: int, bad: list[str], damage: str | None) -> None:
    if untimed:
        message = "results without a date: taken at the file's modification time"
        sink.note("warning", "no_timestamps", message, count=untimed)
    if lists:
        message = "lists of single requests, which have no times of day: left out"
        sink.note("info", "per_request", message, count=lists)
    if bad:
        message = "lines that are no results"
        sink.note("warning", "bad_line", message, count=len(bad), example=bad[0], lost=True)
        sink.count_elements(len(bad))
    if damage:
        sink.note("warning", "truncated", damage, lost=True)


def _recognise(head: Head) -> bool:
    record = mapping(sketch(head).value)
    dated = date_ns(record.get("date")) is not None
    started = {"num_prompts", "request_rate"} <= set(record) and "model_id" in record
    return set(record) >= _RESULT or (dated and started)


FORMAT = Format("bench_serve_json", "metrics", _recognise, _read)
