"""Where the incident is: told by the user, or found by the scan of what users feel.

Only symptoms are scanned, latencies and errors: what else moves is evidence for a cause, and no
reason to believe in an incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import polars as pl

from rca.case import Case
from rca.errors import BundleError
from rca.scan import Scan, find
from rca.signals import Signal, load, meanings


def locate(case: Case, settings: dict[str, Any] | None = None) -> None:
    """Write incident_window: from the user's hint when there is one, else from the scan."""
    case.clear(["incident_window"])
    slo = _slo_text(settings or {})
    hint = _hint(settings or {})
    if hint:
        _write(case, [(hint[0], hint[1], None)], step_ns=1_000_000_000, by="hint", slo=slo)
        return
    symptoms = [s for s in load(case) if _is_symptom(s) and len(s.incident.ts_ns)]
    if not symptoms:
        _write_none(case, "unknown", "no latency or error signal to find an incident in", slo)
        return
    marks = [ts for (ts,) in case.rows("SELECT ts_ns FROM change ORDER BY ts_ns")]
    scan = find(symptoms, marks)
    if not scan.found:
        note = "latency and errors stayed within their healthy range"
        _write_none(case, "none", note, slo, scan)
        return
    spans = [
        (scan.start_ns + a * scan.step_ns, scan.start_ns + (b + 1) * scan.step_ns, score)
        for a, b, score in scan.found
    ]
    _write(case, spans, scan.step_ns, "scan", slo, scan.threshold)


def _is_symptom(signal: Signal) -> bool:
    known = meanings().get(signal.role)
    return (
        known is not None and known.layer == "symptom" and signal.source in ("metrics", "trace")
    )


_LAST_S = 2**63 // 1_000_000_000
"""Nanoseconds since 1970 fit 64 bits until then."""


def _table(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name, {})
    if not isinstance(found, dict):
        raise BundleError(
            f"{name} is no table",
            path="bundle.toml",
            hint=f"write [{name}] on a line of its own",
        )
    return found


def _hint(settings: dict[str, Any]) -> tuple[int, int] | None:
    incident = _table(settings, "incident")
    if not incident.get("start") or not incident.get("end"):
        return None
    start, end = (_moment(incident[key], key) for key in ("start", "end"))
    if end <= start:
        raise BundleError(
            "incident ends before it starts", path="bundle.toml", place="[incident]"
        )
    return start, end


def _moment(value: Any, key: str) -> int:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise BundleError(
            f"{value!r} is no time",
            path="bundle.toml",
            place=f"incident.{key}",
            hint="write 2026-05-01T02:17:00Z",
        ) from error
    if moment.tzinfo is None:
        raise BundleError(
            "time without a zone",
            path="bundle.toml",
            place=f"incident.{key}",
            hint="add Z for UTC",
        )
    seconds = int(moment.replace(microsecond=0).timestamp())
    if not 0 <= seconds < _LAST_S:
        raise BundleError(
            f"{value} is not between 1970 and 2262", path="bundle.toml", place=f"incident.{key}"
        )
    return seconds * 1_000_000_000 + moment.microsecond * 1000


def _slo_text(settings: dict[str, Any]) -> str | None:
    slo = _table(settings, "slo")
    return ", ".join(f"{k} {v}" for k, v in slo.items()) or None


def _write(
    case: Case,
    spans: Sequence[tuple[int, int, float | None]],
    step_ns: int,
    by: str,
    slo: str | None,
    threshold: float | None = None,
) -> None:
    rows = [
        {
            "id": i + 1, "status": "incident", "start_ns": start, "end_ns": end, "margin_ns": step_ns,
            "detected_by": by, "slo": slo, "score": score, "threshold": threshold, "note": None,
        }
        for i, (start, end, score) in enumerate(spans)
    ]  # fmt: skip
    case.insert("incident_window", pl.DataFrame(rows, infer_schema_length=None))


def _write_none(
    case: Case, status: str, note: str, slo: str | None, scan: Scan | None = None
) -> None:
    row = {
        "id": 1, "status": status, "detected_by": "scan", "slo": slo, "note": note,
        "score": scan.best if scan else None, "threshold": scan.threshold if scan else None,
    }  # fmt: skip
    case.insert("incident_window", pl.DataFrame([row]))
