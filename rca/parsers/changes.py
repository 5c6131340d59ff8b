"""Change records: changes.jsonl, a JSON list, or CSV with the same columns."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_lines, sketch
from rca.parsers.stream import Blocks, read_all
from rca.parsers.times import point_ns

_LIMIT_BYTES = 256_000_000
_NAMES = {
    "id": ("id", "change_id", "uid"),
    "time": ("time", "timestamp", "ts", "at", "date", "when"),
    "kind": ("kind", "type", "category"),
    "subject": ("subject", "target", "resource", "object", "service"),
    "before": ("before", "old", "from", "previous"),
    "after": ("after", "new", "to"),
}
_COLUMNS = ("id", "ts_ns", "kind", "subject", "before", "after", "origin", "details")
_KNOWN = frozenset(name for names in _NAMES.values() for name in names)
_MOST_DETAILS = 4000


def _value(record: Mapping[str, Any], what: str) -> str | None:
    for name in _NAMES[what]:
        value = record.get(name)
        if value is not None and value != "":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return None


def _row(record: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The row of a record; None when it lacks its time or its subject."""
    time, subject = _value(record, "time"), _value(record, "subject")
    ts_ns = point_ns(time) if time else None
    if ts_ns is None or subject is None:
        return None
    before, after = _value(record, "before"), _value(record, "after")
    kind = _value(record, "kind") or "config"
    told = _value(record, "id") or _made_id(ts_ns, kind, subject, before, after)
    return told, ts_ns, kind, subject, before, after, "record", _details(record)


def _details(record: Mapping[str, Any]) -> str | None:
    """The fields that have no column of their own; None when there are none, or too much."""
    rest = {k: v for k, v in record.items() if k not in _KNOWN and v is not None and v != ""}
    text = msgspec.json.encode(rest).decode() if rest else None
    return text if text is None or len(text) <= _MOST_DETAILS else None


def _made_id(*parts: Any) -> str:
    text = "\x1f".join(str(p) for p in parts)
    return "change-" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _records(path: Path) -> Iterator[Mapping[str, Any] | None]:
    """The records; None for one that cannot be read."""
    start = next(iter(Blocks(path, 4096)), b"").lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"{":
        for line in read_lines(Blocks(path)):
            try:
                yield msgspec.json.decode(
                    line.removeprefix(b"\xef\xbb\xbf"), type=dict[str, Any]
                )
            except msgspec.DecodeError:
                yield None
        return
    data, _ = read_all(path, _LIMIT_BYTES)
    text = data.decode("utf-8-sig", "replace")
    if start == b"[":
        try:
            parts = msgspec.json.decode(text, type=list[Any])
        except msgspec.DecodeError as error:
            raise ParseError(f"is damaged JSON: {error}", path=str(path)) from error
        yield from (part if isinstance(part, dict) else None for part in parts)
        return
    try:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            yield {str(k).strip().lower(): v for k, v in row.items()}
    except csv.Error as error:
        raise ParseError(f"is damaged CSV: {error}", path=str(path)) from error


def _read(path: Path, sink: Sink) -> None:
    rows, bad, example = [], 0, ""
    for record in _records(path):
        row = None if record is None else _row(record)
        if row is None:
            bad += 1
            example = example or str(record)[:200]
        else:
            rows.append(row)
    sink.count_elements(len(rows) + bad)
    if bad:
        sink.note(
            "warning",
            "bad_record",
            "records that are damaged, or without a time or a subject",
            count=bad,
            example=example,
            lost=True,
        )
    if bad and not rows:
        raise ParseError("not one change record can be read", path=str(path))
    if rows:
        text, time = pa.string(), pa.int64()
        columns = zip(_COLUMNS, zip(*rows, strict=True), strict=True)
        sink.insert(
            "change",
            pa.table({n: pa.array(c, time if n == "ts_ns" else text) for n, c in columns}),
        )


def _recognise(head: Head) -> bool:
    found = sketch(head).value
    record = mapping(first(found) if isinstance(found, list) else found)
    names = {str(n).lower() for n in record}
    if not record:
        line = head.data.decode("utf-8-sig", "replace").split("\n", 1)[0]
        names = {n.strip().strip('"').lower() for n in line.split(",")}
    timed = names & {*_NAMES["time"]}
    told = names & {*_NAMES["before"], *_NAMES["after"]} or {"id", "kind"} <= names
    return bool(timed and names & {*_NAMES["subject"]} and told)


FORMAT = Format("changes", "change", _recognise, _read)
