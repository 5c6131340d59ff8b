"""What a file is that no format knows: the reason, and the nearest format that is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from rca.parsers.format import Head
from rca.parsers.json_text import first, mapping, sketch

_ANY = "see docs/formats.md for what is read"
_SPANS = "export spans as OTLP JSON or from Jaeger"
_BLOCK = "a block is read through its meta.json"


class Reason(NamedTuple):
    """Why a file is not read, and what to do next."""

    problem: str
    hint: str


_MAGIC = (
    (b"\x85\xbd\x40\xdd", Reason("is a chunk file of a Prometheus TSDB block", _BLOCK)),
    (b"\xba\xaa\xd7\x00", Reason("is the index of a Prometheus TSDB block", _BLOCK)),
    (b"\x01\x30\xba\x30", Reason("is the tombstones file of a Prometheus TSDB block", _BLOCK)),
    (b"PAR1", Reason("is a Parquet file", "export JSON or text instead")),
    (b"\x7fELF", Reason("is a program", _ANY)),
    (b"\x89PNG", Reason("is a picture", _ANY)),
    (b"%PDF", Reason("is a PDF", _ANY)),
)  # fmt: skip
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*(?:[\[{\"\d\]-]|null|true|false))")
_HTML = re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE)
_TEXTS = (
    (re.compile(rb"\s*$"), Reason("is empty", "check how it was exported")),
    (re.compile(rb"[^\0]*\0"), Reason("is binary, of a format that is not known", _ANY)),
    (
        re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE),
        Reason("is a web page, perhaps a login page instead of the export", _ANY),
    ),
    (
        re.compile(
            rb"\s*(?:export\s+(?:default|const)|import\s+[\w{*]|const\s+\w+\s*="
            rb"|module\.exports|#!/|from\s+\w+\s+import|package\s+\w+)"
        ),
        Reason("is source code, not JSON", "export the data itself"),
    ),
)
# Keys of JSON records that look like telemetry but are not, with what they are.
_RECORDS: tuple[tuple[Callable[[set[str]], bool], Reason], ...] = (
    (
        lambda keys: {"severityText", "body"} <= keys or "instrumentationScope.name" in keys,
        Reason("holds log documents of OpenSearch Data Prepper, no spans", _SPANS),
    ),
    (
        lambda keys: {"traceId", "spanId"} <= keys and bool({"traceGroup", "durationInNanos"} & keys),
        Reason("holds span documents of OpenSearch Data Prepper, a schema of its own", _SPANS),
    ),
    (
        lambda keys: {"trace_id", "span_id"} <= keys,
        Reason("holds flat spans with snake_case keys, a schema of its own", _SPANS + "; OTLP JSON lines is nearest"),
    ),
    (
        lambda keys: "messages" in keys or {"prompt", "completion"} <= keys,
        Reason("holds conversations of an LLM application, not a tracing export", _SPANS),
    ),
    (
        lambda keys: {"panels", "templating"} <= keys,
        Reason("is the definition of a Grafana dashboard, no data", "download a panel's data as CSV"),
    ),
)  # fmt: skip


def explain(head: Head) -> Reason:
    """Why no format knows a file."""
    data = head.data
    magic = next((reason for start, reason in _MAGIC if data.startswith(start)), None)
    if magic is not None:
        return magic
    if _JSON.match(data):
        return _of_json(sketch(head).value)
    for pattern, reason in _TEXTS:
        if pattern.match(data):
            return reason
    return Reason("is text without log lines, samples or settings in it", _ANY)


def _of_json(value: Any) -> Reason:
    if value is None:
        return Reason("begins like JSON but is damaged from the start", "export it again")
    record = mapping(first(value) if isinstance(value, list) else value)
    if isinstance(value, list) and not value:
        return Reason("is an empty JSON list", "check how it was exported")
    for fits, reason in _RECORDS:
        if fits(set(record)):
            return reason
    shown = ", ".join(sorted(repr(str(k)[:30]) for k in record)[:6])
    return Reason(f"is JSON of a kind that is not known, with the keys {shown or 'none'}", _ANY)
