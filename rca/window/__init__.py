"""Where the incident is: told by the user, or found by the scan of what users feel.

Only symptoms are scanned, latencies and errors: what else moves is evidence for a cause, and no
reason to believe in an incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl

from rca.case import Case
from rca.errors import BundleError
from rca.plain import duration, number, printable
from rca.signals import Signal, load, meanings
from rca.window import counted, objective
from rca.window.magnitude import MIN_RATIO, growth_alone
from rca.window.scan import Found, Scan, find, is_symptom

EASED = 0.7
"""Factor on the scan's bar when an objective, an alert or the user says that there was an incident."""
_HINT_MARGIN_NS = 1_000_000_000
_ALWAYS_ON = (
    "watchdog",
    "infoinhibitor",
    "deadmansswitch",
    "deadmanssnitch",
    "alwaysfiring",
    "heartbeat",
)
"""Alerts that fire to show that alerting works."""
_SEVERITIES = {
    "page": 0,
    "critical": 0,
    "emergency": 0,
    "error": 1,
    "high": 1,
    "major": 1,
    "warning": 2,
    "warn": 2,
}
_ALERT_DELAY_NS = 900 * 1_000_000_000
"""An alert fires up to so long after what it is about: rates over minutes, and `for`."""

_TOO_MUCH_FOR_NONE = 4.0
"""A latency that grew by this factor is not called healthy where there is no baseline: more than bursts of a healthy service do."""


def locate(case: Case, settings: dict[str, Any] | None = None) -> None:
    """Write incident_window: from the user's hint, else from the scan, with what else speaks for one.

    An objective that was broken, an alert that fired and a time that was told on one side only each
    lower the bar of the scan: that there was an incident is then known, and the scan says when.

    Raises:
        BundleError: The settings hold a table or time that cannot be read.
    """
    case.clear(["incident_window"])
    told = _hint(settings or {})
    objectives, _ = objective.read(table(settings or {}, "slo"))
    signals = load(case)
    held = counted.hold(case, objectives, signals)
    spent = held.broken
    _note_unchecked(case, held)
    if told.start_ns is not None and told.end_ns is not None:
        window = _Window(told.start_ns, told.end_ns, _HINT_MARGIN_NS, None, "hint")
        _write(case, [window], _words(spent, window), None)
        return
    claims = [_Claim("slo", b.start_ns, b.end_ns) for b in spent] + _alerts(case)
    if told.start_ns is not None or told.end_ns is not None:
        claims.insert(0, _Claim("hint", told.start_ns or 0, told.end_ns or _LAST_NS))
    marks = [ts for (ts,) in case.rows("SELECT ts_ns FROM change ORDER BY ts_ns")]
    scan = find(signals, marks, ease=EASED if claims else 1.0)
    windows = [w for f in scan.found if (w := _explained(scan, f, claims))] if scan else []
    windows = [told.bounded(w) for w in windows] or _claimed(case, claims)
    windows = windows or _alerted(case, claims, signals)
    if windows:
        threshold = scan.threshold if scan and windows[0].score is not None else None
        _write(case, windows, _words(spent, windows[0]), threshold)
    elif scan is None:
        _write_none(case, "unknown", "no latency or error signal to find an incident in")
    else:
        _write_none(case, *_not_found(scan, [s for s in signals if is_symptom(s)]), scan)


def _note_unchecked(case: Case, held: counted.Held) -> None:
    """Objectives of which the recordings cannot tell whether they were kept."""
    case.execute("DELETE FROM ingest_note WHERE code = 'objective_unchecked'")
    rows = [
        {"level": "info", "code": "objective_unchecked", "message": why, "count": 1, "example": o.text}
        for o, why in held.unchecked
    ]  # fmt: skip
    if rows:
        case.insert("ingest_note", pl.DataFrame(rows))


class _Claim(NamedTuple):
    """Something that says that there was an incident, and about when."""

    by: str
    start_ns: int
    end_ns: int
    name: str = ""
    severity: str | None = None

    def agrees(self, start_ns: int, end_ns: int) -> bool:
        """Whether a stretch is the one meant; an alert fires some time after it began."""
        early = _ALERT_DELAY_NS if self.by == "alert" else 0
        return start_ns <= self.end_ns and end_ns >= self.start_ns - early


class _Told(NamedTuple):
    """What the user told of the incident's time; None where nothing was told."""

    start_ns: int | None
    end_ns: int | None

    def bounded(self, window: _Window) -> _Window:
        """The window with the told end in place of the one that was found."""
        start = window.start_ns if self.start_ns is None else self.start_ns
        end = window.end_ns if self.end_ns is None else self.end_ns
        return window._replace(start_ns=start, end_ns=end) if start < end else window


def _explained(scan: Scan, found: Found, claims: Sequence[_Claim]) -> _Window | None:
    """A stretch as a window, when it passes the bar alone or a claim agrees with it."""
    start, end = scan.times(found.first, found.last)
    by = [c.by for c in claims if c.agrees(start, end)]
    alone = found.score >= scan.threshold / (EASED if claims else 1.0)
    if not by and not alone:
        return None
    margin = found.margin_bins * scan.step_ns
    who = "hint" if "hint" in by else "scan" if alone else by[0]
    return _Window(start, end, margin, found.score, who, _paused(scan, found))


def _paused(scan: Scan, found: Found) -> str | None:
    """What a window that reaches over a pause of the recording does not know."""
    if found.pause is None:
        return None
    start, end = scan.times(*found.pause)
    since = datetime.fromtimestamp(start / 1e9, UTC)
    return f"nothing was recorded for {duration(end - start)} of it, from {since:%H:%M:%S} on"


def _claimed(case: Case, claims: Sequence[_Claim]) -> list[_Window]:
    """Windows of claims that need no scan: what the user told, and objectives that were broken."""
    first, last = case.rows(
        "SELECT min(first_ns), max(last_ns) FROM source WHERE part = 'incident'"
    )[0]
    if first is None:
        return []
    found = [
        (max(c.start_ns, first), min(c.end_ns, last), c.by)
        for c in claims
        if c.by in ("hint", "slo")
    ]
    return [
        _Window(start, end, _HINT_MARGIN_NS, None, by)
        for start, end, by in found[:1]
        if start < end
    ]


def _alerted(case: Case, claims: Sequence[_Claim], signals: Sequence[Signal]) -> list[_Window]:
    """The window of the gravest alert while which no symptom was recorded; those that fired at once are one.

    Where symptoms were recorded, it was the scan that found nothing.
    """
    felt = [s.incident for s in signals if is_symptom(s)]
    heard = [
        c
        for c in claims
        if c.by == "alert"
        and (c.severity is None or c.severity in _SEVERITIES)
        and not any(len(p.between(c.start_ns, c.end_ns).ts_ns) for p in felt)
    ]
    first, last = _recorded(case)
    if not heard or first is None or last is None:
        return []
    gravest = min(heard, key=lambda c: (_SEVERITIES.get(c.severity or "", 3), c.start_ns))
    start, end = max(gravest.start_ns, first), min(gravest.end_ns, last)
    if start >= end or (start == first and end == last):  # it fired all the time: no incident
        return []
    end = max(min(c.end_ns, last) for c in heard if c.start_ns <= end and c.end_ns >= start)
    margin = max(min(_ALERT_DELAY_NS, (start - first) // 2), _HINT_MARGIN_NS)
    note = (
        f"the time of alert {printable(gravest.name, 80)}: it fires some time after what it is about, so the incident "
        f"may have begun up to {duration(_ALERT_DELAY_NS)} earlier; no latency and no error was recorded meanwhile"
    )
    return [_Window(start, end, margin, None, "alert", note)]


def _recorded(case: Case) -> tuple[int | None, int | None]:
    """First and last time of the incident's telemetry, alerts themselves aside."""
    first, last = case.rows(
        "SELECT min(first_ns), max(last_ns) FROM source WHERE part = 'incident' "
        "AND (kind <> 'alert' OR NOT EXISTS (SELECT 1 FROM source WHERE part = 'incident' "
        "AND kind <> 'alert' AND last_ns IS NOT NULL))"
    )[0]
    return first, last


def _alerts(case: Case) -> list[_Claim]:
    """Alerts that fired on the incident side and not while all was well."""
    rows = case.rows(
        """
        SELECT a.start_ns, coalesce(a.end_ns, (SELECT max(last_ns) FROM source WHERE part = 'incident')),
            a.name, lower(a.severity)
        FROM alert AS a
        JOIN source AS s ON s.id = a.source_id
        WHERE s.part = 'incident'
            AND coalesce(lower(a.severity), '') NOT IN ('none', 'info')
            AND regexp_replace(lower(a.name), '[^a-z]', '', 'g') NOT IN (SELECT unnest(?))
            AND a.name NOT IN (SELECT b.name FROM alert AS b JOIN source AS t ON t.id = b.source_id
                WHERE t.part = 'baseline')
        ORDER BY a.start_ns, a.name
        """,
        (list(_ALWAYS_ON),),
    )
    return [_Claim("alert", *row) for row in rows if row[1] is not None and row[1] > row[0]]


def _words(spent: Sequence[objective.Broken], window: _Window) -> str | None:
    """Objectives that were broken in the window."""
    said = [b.words for b in spent if b.start_ns < window.end_ns and b.end_ns > window.start_ns]
    return ", ".join(said) or None


class _Window(NamedTuple):
    start_ns: int
    end_ns: int
    margin_ns: int
    score: float | None
    detected_by: str
    note: str | None = None


def _not_found(scan: Scan, symptoms: Sequence[Signal]) -> tuple[str, str]:
    """Status and note where the scan found nothing: 'none', or 'unknown' where that would say too much."""
    if scan.role and not any(len(s.baseline.ts_ns) for s in symptoms):
        grown = growth_alone(symptoms, *scan.times(*scan.best_span))
        if grown is not None and grown[0] >= _TOO_MUCH_FOR_NONE:
            times, what = number(grown[0]), meanings()[grown[1]].meaning
            return "unknown", (
                f"{what} was {times} times that of the rest for a while, and without a baseline nothing tells "
                "what is usual: give one with --baseline, or the time with --window"
            )
    return "none", _quiet(scan)


def _quiet(scan: Scan) -> str:
    if not scan.role:
        return "latency and errors stayed within their healthy range"
    what = meanings()[scan.role].meaning
    if scan.best >= scan.threshold:
        return f"nothing that users feel grew by much; {what} rose, by less than {MIN_RATIO - 1:.0%} or than demand did"
    return (
        f"latency and errors stayed within their healthy range; the largest rise, of {what}, "
        f"came to {scan.best:.1f} standard errors of {scan.threshold:.1f} that an incident needs"
    )


_LAST_S = 2**63 // 1_000_000_000
"""Nanoseconds since 1970 fit 64 bits until then."""
_LAST_NS = _LAST_S * 1_000_000_000


def table(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of bundle.toml, empty where it has none.

    Raises:
        BundleError: It is something else than a table.
    """
    found = settings.get(name, {})
    if not isinstance(found, dict):
        raise BundleError(
            f"{name} is no table",
            path="bundle.toml",
            hint=f"write [{name}] on a line of its own",
        )
    return found


def _hint(settings: dict[str, Any]) -> _Told:
    incident = table(settings, "incident")
    start, end = (
        _moment(incident[key], key) if incident.get(key) else None for key in ("start", "end")
    )
    if start is not None and end is not None and end <= start:
        raise BundleError(
            "incident ends before it starts", path="bundle.toml", place="[incident]"
        )
    return _Told(start, end)


def _moment(value: Any, key: str) -> int:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise BundleError(
            f"{str(value)!r} is no time",
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


def _write(
    case: Case, windows: Sequence[_Window], slo: str | None, threshold: float | None
) -> None:
    rows = [
        {
            "id": i + 1, "status": "incident", **w._asdict(),
            "slo": slo if i == 0 else None, "threshold": threshold,
        }
        for i, w in enumerate(windows)
    ]  # fmt: skip
    case.insert("incident_window", pl.DataFrame(rows, infer_schema_length=None))


def _write_none(case: Case, status: str, note: str, scan: Scan | None = None) -> None:
    row = {
        "id": 1, "status": status, "detected_by": "scan", "slo": None, "note": note,
        "score": scan.best if scan else None, "threshold": scan.threshold if scan else None,
    }  # fmt: skip
    case.insert("incident_window", pl.DataFrame([row]))
