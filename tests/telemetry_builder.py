"""Small telemetry made by hand, row by row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rca.case import Case

SECOND = 1_000_000_000
T0 = 1_780_000_000 * SECOND


def add_source(case: Case, kind: str, part: str = "incident", **facts: Any) -> int:
    """A source that was read; returns its id."""
    key = int(case.scalar("SELECT coalesce(max(id), 0) + 1 FROM source"))
    row = {
        "id": key, "part": part, "kind": kind, "format": "made", "path": f"{part}/{kind}{key}",
        "bytes": 1, "sha256": str(key), "n_rows": 1, "status": "ok", "first_ns": T0, **facts,
    }  # fmt: skip
    case.insert("source", pl.DataFrame([row]))
    return key


def add_series(
    case: Case,
    source_id: int,
    name: str,
    labels: Mapping[str, str],
    points: Sequence[tuple[float, float]],
    kind: str = "gauge",
) -> int:
    """A series with (seconds, value) points; returns its id."""
    key = int(case.scalar("SELECT coalesce(max(id), 0) + 1 FROM series"))
    case.execute(
        "INSERT INTO series (id, source_id, name, labels, type) VALUES (?, ?, ?, map(?, ?), ?)",
        [key, source_id, name, list(labels), list(labels.values()), kind],
    )
    rows = [{"series_id": key, "ts_ns": at(s), "value": float(v)} for s, v in points]
    case.insert("sample", pl.DataFrame(rows))
    return key


def at(seconds: float) -> int:
    """That many seconds after T0."""
    return T0 + round(seconds * 1000) * 1_000_000


def add_span(
    case: Case,
    source_id: int,
    trace: str,
    service: str,
    name: str,
    seconds: float,
    dur_s: float = 0.1,
    *,
    span: str = "",
    parent: str | None = None,
    kind: str = "server",
    status: str = "ok",
    **attributes: Any,
) -> None:
    """A span; attribute names have '__' for '.'."""
    row = {
        "source_id": source_id, "trace_id": trace, "span_id": span or f"{trace}-{name}",
        "parent_id": parent, "service": service, "name": name, "kind": kind, "start_ns": at(seconds),
        "dur_ns": round(dur_s * SECOND), "status": status,
        "attributes": json.dumps({k.replace("__", "."): v for k, v in attributes.items()}),
    }  # fmt: skip
    case.insert("span", pl.DataFrame([row]))


def add_config(
    case: Case, source_id: int, subject: str, seconds: float | None = None, **settings: str
) -> None:
    """Settings of one subject."""
    ts_ns = None if seconds is None else at(seconds)
    rows = [
        {"subject": subject, "key": k, "value": v, "ts_ns": ts_ns} for k, v in settings.items()
    ]
    case.insert(
        "config", pl.DataFrame(rows, schema_overrides={"ts_ns": pl.Int64}), source_id=source_id
    )


def add_change(
    case: Case,
    source_id: int,
    key: str,
    seconds: float,
    kind: str,
    subject: str,
    before: str | None,
    after: str | None,
) -> None:
    """A recorded change."""
    row = {
        "id": key, "ts_ns": at(seconds), "kind": kind, "subject": subject, "before": before,
        "after": after, "origin": "record",
    }  # fmt: skip
    case.insert("change", pl.DataFrame([row]), source_id=source_id)
