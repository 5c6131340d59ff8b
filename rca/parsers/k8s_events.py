"""Kubernetes events as `kubectl get events -o json` lists them: log lines, and the changes among them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.log_rows import LogRows
from rca.parsers.times import iso_ns

_TIMES = ("eventTime", "firstTimestamp", "lastTimestamp")
# Reasons that tell of a change, with its kind. A probe that fails or a pull is no change.
_CHANGES = {
    "ScalingReplicaSet": "scale",
    "SuccessfulRescale": "scale",
    "Killing": "restart",
    "BackOff": "restart",
    "OOMKilling": "restart",
    "Evicted": "restart",
    "Preempted": "restart",
    "NodeNotReady": "restart",
}
_SCALED = re.compile(r"\bto (\d+)(?: from (\d+))?|New size: (\d+)")
_NAMES = ("id", "ts_ns", "kind", "subject", "before", "after", "origin")


def _when(event: dict[str, Any]) -> int | None:
    told = [event.get(name) for name in _TIMES] + [
        mapping(event.get("metadata")).get("creationTimestamp")
    ]
    return next(
        (ns for t in told if isinstance(t, str) and (ns := iso_ns(t)) is not None), None
    )


def _subject(event: dict[str, Any]) -> tuple[str, str]:
    """What the event is about: its kind in lower case, and its name."""
    about = mapping(event.get("involvedObject") or event.get("regarding"))
    return str(about.get("kind", "object")).lower(), str(about.get("name", ""))


def _change(event: dict[str, Any], ts_ns: int) -> tuple[Any, ...] | None:
    kind = _CHANGES.get(str(event.get("reason")))
    if kind is None:
        return None
    message = str(event.get("message") or event.get("note") or "")
    before, after = None, message
    found = _SCALED.search(message) if kind == "scale" else None
    if found:
        before = f"replicas: {found[2]}" if found[2] else None
        after = f"replicas: {found[1] or found[3]}"
    told = (
        mapping(event.get("metadata")).get("uid")
        or f"event-{ts_ns}-{'/'.join(_subject(event))}"
    )
    return str(told), ts_ns, kind, "/".join(_subject(event)), before, after, "k8s_event"


def _read(path: Path, sink: Sink) -> None:
    document, whole = read_whole(path, 2, msgspec.json.decode)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    rows, changes = LogRows(sink), []
    for item in mapping(document).get("items") or ():
        event = mapping(item)
        ts_ns = _when(event)
        level = "warning" if event.get("type") == "Warning" else "info"
        message = (
            f"{event.get('reason', '')}: {event.get('message') or event.get('note') or ''}"
        )
        fields = {"object": "/".join(_subject(event)), "count": event.get("count") or 1}
        rows.add(ts_ns, _subject(event)[1] or None, level, message, fields)
        change = None if ts_ns is None else _change(event, ts_ns)
        if change is not None:
            changes.append(change)
    rows.flush()
    if not rows.count:
        raise ParseError("holds no events", path=str(path))
    if changes:
        columns = zip(_NAMES, zip(*changes, strict=True), strict=True)
        kinds = {"ts_ns": pa.int64()}
        sink.insert(
            "change", pa.table({n: pa.array(c, kinds.get(n, pa.string())) for n, c in columns})
        )


def _recognise(head: Head) -> bool:
    document = mapping(sketch(head).value)
    event = mapping(first(document.get("items")))
    return "involvedObject" in event or ("regarding" in event and "reason" in event)


FORMAT = Format("k8s_events", "log", _recognise, _read)
