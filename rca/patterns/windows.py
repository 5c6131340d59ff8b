"""Phases of the incident: slices of the recording, grouped by how far each signal is from its healthy range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rca.case import Case
from rca.patterns.grouping import Matrix, group
from rca.patterns.record import rows, squeezed
from rca.plain import role_words
from rca.signals import Points, Signal, Values, load, meanings

_SHORTEST_NS = 5_000_000_000
_FEWEST, _MOST = 16, 400
"""Slices of a recording; longer ones where there would be more."""
_REFERENCE = 8
"""Slices that a healthy reference has, at least."""
_PRESENT = 0.6
"""Share of the slices that a signal must have a value in."""
_SIGNALS = 24
"""Signals that are compared, those that move most: of a hundred quiet ones only the noise would count."""
_MOVING = 0.1
_TELLING = 0.46
"""Mean distance of a phase worth a word: two spreads. A phase of few slices is never quite at 0."""


class _Slices(NamedTuple):
    """Stretches [start + i * width, start + (i + 1) * width) of the incident's recording, ns."""

    start_ns: int
    width_ns: int
    bins: int

    @property
    def starts(self) -> list[int]:
        return [self.start_ns + i * self.width_ns for i in range(self.bins)]


def groups(case: Case) -> list[dict[str, Any]]:
    """Rows of `pattern`, one a phase, in the order of their first slice; none without a window."""
    window = case.rows(
        "SELECT start_ns, margin_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not window:
        return []
    signals = [s for s in load(case) if s.known and s.source not in ("torch_profiler", "gpu")]
    slices = _slices(signals)
    if slices is None:
        return []
    start_ns, margin_ns = window[0]
    features, names = _features(signals, slices, start_ns - margin_ns)
    if not names:
        return []
    grouping = group(features)
    found = rows(
        "signal", grouping, features, names, slices.starts, _MOST, _words, telling=_TELLING
    )
    first = [int(np.argmax(grouping.labels == label)) for label in range(len(found))]
    return [found[label] for label in np.argsort(first)]


def _features(
    signals: Sequence[Signal], slices: _Slices, healthy_until_ns: int
) -> tuple[Matrix, list[str]]:
    """Distances of the signals that move most (slices, signals), and their names.

    What metrics and traces both tell is taken from the traces.
    """
    told = ((_name(s), _deviation(s, slices, healthy_until_ns)) for s in signals)
    moved = {name: values for name, values in told if values is not None}
    swing = {name: float(np.std(values)) for name, values in moved.items()}
    moving = [name for name in moved if swing[name] >= _MOVING]
    names = sorted(moving, key=lambda name: (-swing[name], name))[:_SIGNALS]
    return np.column_stack(
        [moved[name] for name in names] or [np.empty((slices.bins, 0))]
    ), names


def _name(signal: Signal) -> str:
    return f"{signal.role} of {signal.service}" if signal.service else signal.role


def _words(feature: str, is_up: bool) -> str:
    role, of, service = feature.partition(" of ")
    return f"{role_words(role)}{of}{service} {'up' if is_up else 'down'}"


def _slices(signals: Sequence[Signal]) -> _Slices | None:
    """Slices of the recording, as long as a scrape; None where there are too few."""
    times = [s.incident.ts_ns for s in signals if len(s.incident.ts_ns)]
    if not times:
        return None
    start, end = min(int(t[0]) for t in times), max(int(t[-1]) for t in times)
    scrapes = [
        int(np.median(np.diff(s.incident.ts_ns)))
        for s in signals
        if s.source == "metrics" and len(s.incident.ts_ns) > 2
    ]
    scrape = int(np.median(scrapes)) if scrapes else 0
    width = max(_SHORTEST_NS, scrape, (end - start) // _MOST + 1)
    bins = int((end - start) // width) + 1
    return _Slices(start, width, bins) if bins >= _FEWEST else None


def _deviation(signal: Signal, slices: _Slices, healthy_until_ns: int) -> Values | None:
    """Distance from the healthy reference slice by slice; None for a signal that cannot say.

    The reference is the baseline in slices of the same length, else what came before the window; its
    own slices have a mean distance of 0, also where they lie on one side of their median. Slices
    without a value take that between their neighbours.
    """
    values = signal.incident.on_grid(slices.start_ns, slices.width_ns, slices.bins)
    there = np.isfinite(values)
    if there.mean() < _PRESENT:
        return None
    reference = _sliced(signal.baseline, slices.width_ns)
    if len(reference) < _REFERENCE:
        until = (healthy_until_ns - slices.start_ns) // slices.width_ns
        before = values[: max(int(until), 0)]
        reference = before[np.isfinite(before)]
    if len(reference) < _REFERENCE:
        return None
    centre = float(np.median(reference))
    known = meanings()[signal.role]
    spread = max(
        1.4826 * float(np.median(np.abs(reference - centre))),
        0.5 * float(np.std(reference)),
        known.spread * abs(centre),
        known.least,
    )
    at = np.arange(slices.bins)
    shift = squeezed(np.interp(at, at[there], values[there]) - centre, spread)
    moved: Values = shift - squeezed(reference - centre, spread).mean()
    return moved


def _sliced(points: Points, width_ns: int) -> Values:
    """Values of slices in which there is something, however far apart they lie."""
    if not len(points.ts_ns):
        return np.array([])
    _, slot = np.unique(points.ts_ns // width_ns, return_inverse=True)
    values: Values = np.bincount(slot, points.num) / np.bincount(slot, points.den)
    return values
