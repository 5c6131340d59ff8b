"""Change records: changes.jsonl, a JSON list, or CSV with the same columns."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, sketch
from rca.parsers.stream import read_all
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
_BETWEEN = re.compile(r"[\s,\]\ufeff]*")
_NEXT = re.compile(r"(?:\n|\}\s*,?)\s*(?=\{)")


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


def _records(text: str, *, damaged: bool) -> Iterator[Mapping[str, Any] | None]:
    """The records; None for one that cannot be read."""
    text = text.lstrip()
    if text[:1] == "{":
        return _objects(text, 0)
    if text[:1] == "[":
        return _objects(text, 1)
    return _table(text, damaged=damaged)


def _objects(text: str, at: int) -> Iterator[dict[str, Any] | None]:
    """JSON objects that follow one another, however they are parted; after a damaged one the next."""
    decode = json.JSONDecoder().raw_decode
    while (at := _BETWEEN.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            found, at = decode(text, at)
        except (ValueError, RecursionError):
            found, next_one = None, _NEXT.search(text, at + 1)
            at = next_one.end() if next_one else len(text)
        yield found if isinstance(found, dict) else None


def _table(text: str, *, damaged: bool) -> Iterator[dict[str, Any] | None]:
    """The rows of a table; the last one, of a damaged file or too short, is a part of what it was."""
    if damaged:
        text, _, part = text.rpartition("\n")
        if part.strip():
            yield None
    rows = csv.DictReader(io.StringIO(text, newline=""))
    last = text.count("\n") + 1  # no row ends there when the text ends with a line's end
    try:
        for row in rows:
            cut = rows.line_num == last and None in row.values()
            yield None if cut else {str(k).strip().lower(): v for k, v in row.items()}
    except csv.Error:
        yield None


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, _LIMIT_BYTES)
    rows, bad, example = [], 0, ""
    for record in _records(data.decode("utf-8-sig", "replace"), damaged=bool(damage)):
        row = None if record is None else _row(record)
        if row is None:
            bad += 1
            example = example or str(record or "")[:200]
        else:
            rows.append(row)
    sink.count_elements(len(rows) + bad)
    if bad:
        sink.note(
            "warning",
            "bad_record",
            "records that are damaged, or without a time or a subject",
            count=bad,
            example=example or None,
            lost=True,
        )
    if damage:
        sink.note("warning", "truncated", damage, lost=True)
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
