"""Where in the code to look: functions and operators whose own time grew most."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from rca.case import Case
from rca.fixes.proposal import Proposal
from rca.plain import duration, number, printable

_MOST_EVENTS = 600_000
_SHOWN = 8
_GREW = 1.2
_PYTHON = re.compile(r"(?P<file>[^()]+\.py)\((?P<line>\d+)\): ?(?P<function>.*)")
_RECORD = (
    "No capture shows it: record one with torch.profiler, with_stack=True and record_shapes=True, "
    "on a healthy replica too."
)


class Place(NamedTuple):
    """A function or operator: own time for each matrix multiplication in ns, healthy and now."""

    name: str
    kind: str
    healthy_ns: float | None
    now_ns: float
    calls: float


def propose(case: Case, plain: Proposal) -> Proposal:
    """The proposal with the places to look at first, best first, as a text file."""
    places = find(case)
    if not places:
        return replace(plain, action=f"{plain.action} {_RECORD}")
    first = places[0]
    lines = [f"{i:>2}. {_told(p)}" for i, p in enumerate(places, start=1)]
    note = "Own time (without what it calls) for each matrix multiplication of the captures."
    return replace(
        plain, target=_pointer(first.name),
        action=f"{plain.action} Start at {_told(first)}.",
        content="\n".join(["Proposed by rca: where to look first.", note, "", *lines, ""]),
    )  # fmt: skip


def find(case: Case) -> list[Place]:
    """Python functions, else operators, whose own time grew most; most time where nothing compares."""
    own, calls, units = _own_times(case)
    if not units.get("incident"):
        return []
    names = {key for part, *key_ in own for key in [tuple(key_)] if part == "incident"}
    places = []
    for kind, name in sorted(names):
        now = own["incident", kind, name] / units["incident"]
        before = (
            own.get(("baseline", kind, name), 0.0) / units["baseline"]
            if units.get("baseline")
            else None
        )
        per_unit = calls["incident", kind, name] / units["incident"]
        places.append(Place(name, kind, before, now, per_unit))
    grown = [p for p in places if p.healthy_ns is None or p.now_ns > _GREW * p.healthy_ns]
    # A function with its file and line says more than the operator that it calls.
    grown.sort(key=lambda p: (p.kind != "python", (p.healthy_ns or 0.0) - p.now_ns, p.name))
    return grown[:_SHOWN]


def _own_times(
    case: Case,
) -> tuple[dict[tuple[str, str, str], float], dict[tuple[str, str, str], int], dict[str, int]]:
    """Own time and calls by (part, kind, name), and matrix multiplications by part."""
    rows = case.rows(
        "SELECT s.part, o.source_id, o.pid, o.tid, o.start_ns, o.start_ns + o.dur_ns, o.kind, o.name "
        "FROM cpu_op AS o JOIN source AS s ON s.id = o.source_id "
        "WHERE o.kind IN ('op', 'python') AND o.dur_ns > 0 "
        "ORDER BY o.source_id, o.pid, o.tid, o.start_ns, o.dur_ns DESC LIMIT ?",
        (_MOST_EVENTS,),
    )
    own: dict[tuple[str, str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    stack: list[tuple[int, tuple[str, str, str]]] = []
    thread: tuple[int, int, int] | None = None
    for part, source, pid, tid, start, end, kind, name in rows:
        if thread != (source, pid, tid):
            stack, thread = [], (source, pid, tid)
        while stack and stack[-1][0] <= start:
            stack.pop()
        key = (part, kind, name)
        own[key] += end - start
        calls[key] += 1
        if stack:
            own[stack[-1][1]] -= min(end, stack[-1][0]) - start
        stack.append((end, key))
    units = dict(
        case.rows(
            "SELECT s.part, count(*) FROM cpu_op AS o JOIN source AS s ON s.id = o.source_id "
            "JOIN op_family AS f ON f.name = o.name AND f.role = 'op_gemm' GROUP BY s.part"
        )
    )
    return own, calls, units


def _pointer(name: str) -> str:
    """'file.py:12 function' of a Python frame; an operator's name as it stands."""
    frame = _PYTHON.fullmatch(name)
    text = f"{frame['file']}:{frame['line']} {frame['function']}" if frame else name
    return printable(text.strip(), 160)


def _told(place: Place) -> str:
    was = f"{duration(place.healthy_ns)} → " if place.healthy_ns is not None else ""
    times = f"{number(place.calls)} calls each time"
    return f"{_pointer(place.name)} ({was}{duration(place.now_ns)}, {times})"
