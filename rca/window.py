"""Where the incident is: told by the user, or found by the scan of what users feel.

Only symptoms are scanned, latencies and errors: what else moves is evidence for a cause, and no
reason to believe in an incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from rca.case import Case
from rca.errors import BundleError
from rca.scan import MIN_RATIO, Found, Scan, find
from rca.signals import load, meanings

_HINT_MARGIN_NS = 1_000_000_000


def locate(case: Case, settings: dict[str, Any] | None = None) -> None:
    """Write incident_window: from the user's hint when there is one, else from the scan."""
    case.clear(["incident_window"])
    slo = _slo_text(settings or {})
    hint = _hint(settings or {})
    if hint:
        _write(case, [_Window(*hint, _HINT_MARGIN_NS, None)], "hint", slo)
        return
    marks = [ts for (ts,) in case.rows("SELECT ts_ns FROM change ORDER BY ts_ns")]
    scan = find(load(case), marks)
    if scan is None:
        _write_none(case, "unknown", "no latency or error signal to find an incident in", slo)
        return
    if not scan.found:
        _write_none(case, "none", _quiet(scan), slo, scan)
        return
    _write(case, [_Window.of(scan, f) for f in scan.found], "scan", slo, scan.threshold)


class _Window(NamedTuple):
    start_ns: int
    end_ns: int
    margin_ns: int
    score: float | None

    @classmethod
    def of(cls, scan: Scan, found: Found) -> _Window:
        return cls(
            *scan.times(found.first, found.last), found.margin_bins * scan.step_ns, found.score
        )


def _quiet(scan: Scan) -> str:
    if not scan.role:
        return "latency and errors stayed within their healthy range"
    what = meanings()[scan.role].meaning
    if scan.best >= scan.threshold:
        return f"nothing that users feel grew by much; {what} rose, by less than {MIN_RATIO - 1:.0%}"
    return (
        f"latency and errors stayed within their healthy range; the largest rise, of {what}, "
        f"came to {scan.best:.1f} standard errors of {scan.threshold:.1f} that an incident needs"
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
    windows: Sequence[_Window],
    by: str,
    slo: str | None,
    threshold: float | None = None,
) -> None:
    rows = [
        {
            "id": i + 1, "status": "incident", **w._asdict(),
            "detected_by": by, "slo": slo, "threshold": threshold, "note": None,
        }
        for i, w in enumerate(windows)
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
