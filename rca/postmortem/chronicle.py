"""When what happened: the timeline, and how long it took until somebody was told."""

from __future__ import annotations

from dataclasses import dataclass

from rca.answer import Answer, wording
from rca.case import Case
from rca.plain import duration, printable

_LOOK_BACK_NS = 3_600_000_000_000
_FULL = {"kv_usage", "gpu_memory", "waiting", "pool_waiters", "host_memory"}


@dataclass(frozen=True)
class Said:
    """A sentence and the ids of what it rests on."""

    text: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """One line of the timeline."""

    ts_ns: int
    what: str
    source: str
    cites: tuple[str, ...] = ()


def events_of(case: Case, answer: Answer) -> list[Event]:
    """Changes, onsets of the evidence, alerts and the window, in the order of time."""
    window = answer.window
    events = [*changes_of(answer), *_onsets(answer), *alerts_of(case, answer)]
    if window.start_ns is not None and window.end_ns is not None:
        events.append(
            Event(window.start_ns, "the incident window begins", str(window.detected_by))
        )
        events.append(
            Event(
                window.end_ns,
                "the recordings end, and the incident with them: no recovery is shown"
                if answer.is_open
                else "the incident window ends; the recordings go on",
                str(window.detected_by),
            )
        )
    return sorted(events, key=lambda e: (e.ts_ns, e.what))


def changes_of(answer: Answer) -> list[Event]:
    """Changes from an hour before the window until its end."""
    window = answer.window
    first = (window.start_ns or 0) - _LOOK_BACK_NS
    return [
        Event(c.ts_ns, f"{c.kind}: {printable(c.subject, 80)}{before_after(c.before, c.after)}",
              f"change {c.id}", cites_of_change(answer, c.id))
        for c in answer.changes.values()
        if window.start_ns is not None and first <= c.ts_ns <= (window.end_ns or 0)
    ]  # fmt: skip


def alerts_of(case: Case, answer: Answer) -> list[Event]:
    """When each alert first fired, from an hour before the window until its end."""
    return [
        Event(ts, f"alert {printable(name, 80)} fires", "alert")
        for name, ts in _alerts(case, answer)
    ]


def _onsets(answer: Answer) -> list[Event]:
    lead = answer.leading
    ids = list(lead.evidence) if lead else [e.id for e in answer.strongest(5)]
    moved = [e for e in answer.cited(ids) if e.onset_ns is not None and e.direction != "event"]
    events = []
    for item in moved:
        kind = (
            "symptom" if item.is_symptom else "saturation" if item.role in _FULL else "movement"
        )
        events.append(
            Event(
                item.onset_ns or 0, f"{kind}: {wording.movement(item)}", item.source, (item.id,)
            )
        )
    return events


def _alerts(case: Case, answer: Answer) -> list[tuple[str, int]]:
    window = answer.window
    if window.start_ns is None:
        return []
    return case.rows(
        "SELECT name, min(a.start_ns + s.shift_ns) AS ts FROM alert a JOIN source s ON s.id = a.source_id "
        "WHERE s.part = 'incident' GROUP BY name HAVING ts BETWEEN ? AND ? ORDER BY ts, name LIMIT 20",
        [window.start_ns - _LOOK_BACK_NS, window.end_ns],
    )


def detection_of(case: Case, answer: Answer) -> Said:
    """Time from the first symptom to the first alert."""
    onsets = [
        e
        for e in answer.evidence.values()
        if e.is_symptom and e.onset_ns and e.direction != "flat"
    ]
    first = min(onsets, key=lambda e: e.onset_ns or 0, default=None)
    began = first.onset_ns if first else answer.window.start_ns
    if began is None:
        return Said("No incident window, hence no detection gap.")
    fired = [(ts, name) for name, ts in _alerts(case, answer) if ts >= began]
    cites = (first.id,) if first else ()
    if not fired:
        return Said(
            "No alert fired in the recordings after the first symptom: nobody was told, or the alerts are not in the bundle.",
            cites,
        )
    ts, name = min(fired)
    return Said(
        f"Detection gap: {duration(ts - began)} from the first symptom to the alert {printable(name, 80)}.",
        cites,
    )


def cites_of_change(answer: Answer, change_id: str) -> tuple[str, ...]:
    """Evidence that speaks of a change."""
    found = [
        e.id
        for e in answer.evidence.values()
        if e.source == "change" and e.subject == change_id
    ]
    return tuple(found[:1])


def before_after(before: str | None, after: str | None) -> str:
    """A change as `: before → after`, empty when neither is known."""
    if before is None and after is None:
        return ""
    return f": {printable(before or '(unset)', 80)} → {printable(after or '(unset)', 80)}"
