"""Alerts: Alertmanager's API and webhooks, and Prometheus' /api/v1/alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.times import iso_ns

_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("severity", pa.string()),
        ("labels", pa.string()),
        ("annotations", pa.string()),
    ]
)
_FIRING = {"firing", "active", "suppressed", "pending"}


def _alerts(document: Any) -> list[Any]:
    """The alerts of a document: a list, {"alerts": ...} or {"data": {"alerts": ...}}."""
    if isinstance(document, list):
        return [a for d in document for a in (mapping(d).get("alerts") or [d])]
    inner = mapping(mapping(document).get("data", document))
    found = inner.get("alerts", mapping(document).get("data"))
    return found if isinstance(found, list) else []


def _row(alert: dict[str, Any]) -> tuple[Any, ...] | None:
    labels, annotations = mapping(alert.get("labels")), mapping(alert.get("annotations"))
    start = alert.get("startsAt") or alert.get("activeAt")
    start_ns = iso_ns(start) if isinstance(start, str) else None
    if start_ns is None:
        return None
    told = alert.get("status", alert.get("state"))
    state = mapping(told).get("state", told)
    end = alert.get("endsAt")
    end_ns = iso_ns(end) if isinstance(end, str) and not end.startswith("0001-") else None
    if state in _FIRING:
        end_ns = None  # the time at which it would be dropped, not when it ended
    severity = labels.get("severity")
    return (
        str(labels.get("alertname", "")),
        start_ns,
        end_ns,
        None if severity is None else str(severity),
        msgspec.json.encode(labels),
        msgspec.json.encode(annotations),
    )


def _read(path: Path, sink: Sink) -> None:
    document, whole = read_whole(path, 4, msgspec.json.decode)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    alerts = [mapping(a) for a in _alerts(document)]
    rows = [row for row in (_row(a) for a in alerts) if row is not None]
    sink.count_elements(len(alerts))
    if not alerts:
        sink.note("info", "no_alerts", "no alert was active")
    if len(rows) < len(alerts):
        sink.note(
            "warning",
            "bad_alert",
            "alerts without a start",
            count=len(alerts) - len(rows),
            lost=True,
        )
        if not rows:
            raise ParseError("not one alert can be read", path=str(path))
    if rows:
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
        ]
        sink.insert("alert", pa.Table.from_arrays(columns, schema=_SCHEMA))


def _recognise(head: Head) -> bool:
    document = sketch(head).value
    inner = mapping(document).get("data", document)
    listed = mapping(inner).get("alerts", inner if isinstance(inner, list) else None)
    if listed == [] and "alerts" in mapping(inner):
        return True
    alert = mapping(first(listed))
    alert = mapping(first(alert["alerts"])) if "alerts" in alert else alert
    return "labels" in alert and bool({"startsAt", "activeAt"} & set(alert))


FORMAT = Format("alerts_json", "alert", _recognise, _read)
