"""What captures were bound by: the states of gpu_bound over all devices of a side, in words."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from rca.case import Case, sql_text
from rca.plain import percent

STATES = {
    "compute": "compute",
    "comm": "communication",
    "copy": "copies",
    "sync": "idle while a thread waits for the GPU",
    "launch": "idle while work is on its way from its launch",
    "idle": "idle with nothing launched",
}
_BOUND = {
    "compute": "compute-bound",
    "comm": "communication-bound",
    "copy": "copy-bound",
    "sync": "sync-bound",
    "launch": "launch-bound",
    "idle": "host-bound",
}
_MOST = 0.5
_SMALL = 0.01


Sides = dict[str, dict[str, float]]
_known: WeakKeyDictionary[Case, tuple[int, Sides]] = WeakKeyDictionary()


def shares(case: Case) -> Sides:
    """By side the share of each state in the devices' spans, largest first; empty without GPU work.

    Worked out once for terminal and documents, and again when a recorded table has changed.
    """
    known = _known.get(case)
    if known is None or known[0] != case.generation:
        found: Sides = {}
        for part, state, share in case.rows(sql_text("report", "bound")):
            found.setdefault(part, {})[state] = share
        known = _known[case] = (case.generation, found)
    return known[1]


def name(states: dict[str, float]) -> str:
    """'launch-bound' where a state has half of the time; else which one has most."""
    first = next(iter(states))
    if states[first] >= _MOST:
        return _BOUND[first]
    return f"bound by no one thing, most by {STATES[first]}"


def line(case: Case) -> str:
    """The incident's captures in one line; empty without GPU work."""
    states = shares(case).get("incident")
    if not states:
        return ""
    told = ", ".join(
        f"{STATES[state]} {percent(share)}"
        for state, share in states.items()
        if share >= _SMALL
    )
    return f"{name(states)}: {told}"
