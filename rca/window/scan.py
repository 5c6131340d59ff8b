"""The scan for an incident: the stretch of time in which symptoms left their healthy range.

Every stretch of bins is a candidate. For each symptom its mean score inside is compared with the
healthy reference and with the rest of the recording; the weaker of the two counts, since what
differs from one of them only differs between days, or was never well. The strongest symptom of the
strongest stretch must pass a bar, which is raised for a system whose own healthy halves differ that
much from each other. Where the incident begins and ends is then fitted as one box to all symptoms
that moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rca.signals import Signal, Values, meanings
from rca.window.daily import flattened
from rca.window.demand import MARK, residuals
from rca.window.magnitude import matters
from rca.window.track import Grid, Track, grid, track

BAR = 4.7
"""Deviation that a stretch must reach, in standard errors, with a baseline."""
BAR_ALONE = 5.2
"""The same without one."""
OWN_FACTOR = 1.15
"""The deviation must exceed what the baseline's halves show between each other by this factor."""
MOST_FOUND = 3
_USUAL_SYMPTOMS = 14
_MAX_BINS = 240
_FEWEST_BINS = 4
_LIVES = 15
"""An incident lasts longer than so many typical requests one after the other."""
_LONGEST_LEAST, _LEAST_ALONE = 6, 8
"""The least length is at most this part of the recording, and without a baseline at least that."""
_FEWEST_OUTSIDE = 6.0
_NO_LEAD_IN = 0.75
"""A deviation that nothing of the recording itself confirms counts by this factor."""
_BETWEEN_DAYS, _WITHIN_DAY = 0.1, 0.05
"""Standard deviation of a mean score between healthy times, whatever their length."""
_MOVED = 0.6
"""A symptom that reaches this part of the strongest one's deviation helps to place the window."""
_BASELINE_SHARE = 0.5
_DROP = 5.5
"""Twice the log likelihood ratio at which an end of the window is contradicted.

The bins of a service resemble each other: with the 95 % point of independent ones (3.84) the told
interval held the true start in 0.85 of bundles, with this in more than 0.9.
"""
_PLACED = 1.0
"""The largest margin of a stretch, as a share of it, with which it may widen another one."""
_PAUSE_BINS, _PAUSE_GAPS = 6, 4
"""Nothing recorded for so many bins, and for so many times the usual gap, is a pause of the recording."""
_NOT_SCANNED = ("slow_requests",)
"""The same requests again, cut at a quantile of the baseline."""


_Mask = npt.NDArray[np.bool_]


class Found(NamedTuple):
    """One stretch: bins first to last, and the largest distance of an end to a likely other one.

    `pause` is the longest stretch of bins inside of it in which nothing was recorded, if there is a pause.
    """

    first: int
    last: int
    score: float
    margin_bins: int
    role: str
    pause: tuple[int, int] | None = None


@dataclass(frozen=True)
class Scan:
    """Result of a scan.

    Attributes:
        found: Stretches that passed, strongest first.
        threshold: Deviation that had to be reached.
        best: Largest deviation seen.
        role: Symptom that showed it.
    """

    start_ns: int
    step_ns: int
    found: list[Found]
    threshold: float
    best: float
    role: str = ""
    best_span: tuple[int, int] = field(default=(0, 0))

    def times(self, first: int, last: int) -> tuple[int, int]:
        """Start and end of bins first to last, ns since the Unix epoch."""
        return (
            self.start_ns + first * self.step_ns,
            self.start_ns + (last + 1) * self.step_ns,
        )


def is_symptom(signal: Signal) -> bool:
    """Whether users feel it."""
    known = meanings().get(signal.role)
    return (
        known is not None
        and known.layer == "symptom"
        and signal.source in ("metrics", "trace")
        and signal.role not in _NOT_SCANNED
    )


def find(
    signals: Sequence[Signal], marks_ns: Sequence[int] = (), *, ease: float = 1.0
) -> Scan | None:
    """Scan the incident side; see the module's text.

    Args:
        signals: All signals; those of the layer 'symptom' are scanned, on others demand is known.
        marks_ns: Times of changes: a start that is nearly as good as the best and has one is taken.
        ease: Factor on the bar, below 1 when something else says that there was an incident.

    Returns:
        None when there is no symptom to scan.
    """
    symptoms = [s for s in signals if is_symptom(s) and len(s.incident.ts_ns)]
    if not symptoms:
        return None
    scanned = [flattened(s) for s in symptoms] + residuals(signals)
    on = grid(symptoms, _MAX_BINS)
    tracks = _tracks(scanned, on)
    with_baseline = any(t.healthy > 0 for t in tracks)
    if with_baseline:
        tracks = [t for t in tracks if t.healthy > 0]
    least = _least_bins(symptoms, on)
    if not with_baseline:
        least = max(least, on.bins // _LEAST_ALONE)
    bar = _bar(len(tracks), with_baseline)
    if with_baseline:
        bar = max(bar, OWN_FACTOR * _own(scanned, on, least))
    bar *= ease
    marks = sorted({(m - on.start_ns) // on.step_ns for m in marks_ns})
    demand = [s for s in signals if s.role == "arrival_rate" and len(s.incident.ts_ns)]
    found: list[Found] = []
    best, role, span = 0.0, "", (0, 0)
    while tracks and len(found) < MOST_FOUND:
        one = _strongest(tracks, on, least, marks)
        if one is None:
            break
        if one.score > best:
            best, role, span = one.score, one.role, (one.first, one.last)
        if one.score < bar:
            break
        tracks = [t.without(one.first, one.last) for t in tracks]
        times = on.start_ns + one.first * on.step_ns, on.start_ns + (one.last + 1) * on.step_ns
        if matters(scanned, demand, *times):
            found.append(one)
            scanned = [_outside(s, on, one) for s in scanned]
            # Measured by itself: a first incident is no unrest of a healthy service.
            tracks = tracks if with_baseline else _tracks(scanned, on)
    return Scan(on.start_ns, on.step_ns, _joined(found), bar, best, role, span)


def _joined(found: Sequence[Found]) -> list[Found]:
    """Stretches that touch each other are one incident, which was not equally bad all the time."""
    kept: list[Found] = []
    for one in found:
        near = next((k for k in kept if _touch(k, one)), None)
        if near is None:
            kept.append(one)
            continue
        if not _placed(one):
            continue
        kept[kept.index(near)] = near._replace(
            first=min(near.first, one.first),
            last=max(near.last, one.last),
            margin_bins=max(near.margin_bins, one.margin_bins),
            pause=near.pause or one.pause,
        )
    return kept


def _placed(one: Found) -> bool:
    """Whether its ends are known well enough to widen a stronger incident by it.

    What is left of a recording without its incident always has a stretch that is worse than the rest; where
    that stretch could as well begin or end anywhere, it is the lead-in that is needed to compare with.
    """
    seen = one.last - one.first + 1
    if one.pause is not None:
        seen -= one.pause[1] - one.pause[0] + 1
    return one.margin_bins <= seen * _PLACED


def _touch(one: Found, other: Found) -> bool:
    between = max(one.first, other.first) - min(one.last, other.last) - 1
    return between <= min(one.margin_bins, other.margin_bins)


def _tracks(signals: Sequence[Signal], on: Grid) -> list[Track]:
    """Tracks of those signals that have enough points."""
    return [t for s in signals if (t := track(s, on))]


def _outside(signal: Signal, on: Grid, one: Found) -> Signal:
    """The signal without the points of a stretch that was found."""
    times = signal.incident.ts_ns
    low = on.start_ns + one.first * on.step_ns
    high = on.start_ns + (one.last + 1) * on.step_ns
    return replace(signal, incident=signal.incident.pick((times <= low) | (times > high)))


def _bar(symptoms: int, with_baseline: bool) -> float:
    """More symptoms have more ways to stray: as the largest of so many normal deviates grows."""
    bar = BAR if with_baseline else BAR_ALONE
    return math.sqrt(bar**2 + 2.0 * math.log(max(symptoms / _USUAL_SYMPTOMS, 1.0)))


def _least_bins(symptoms: Sequence[Signal], on: Grid) -> int:
    lives = [
        float(np.median((s.baseline if len(s.baseline.ts_ns) else s.incident).values))
        for s in symptoms
        if s.role in ("e2e_latency", "gateway_latency")
    ]
    longest = max((v for v in lives if math.isfinite(v)), default=0.0)
    wanted = math.ceil(_LIVES * longest * 1e9 / on.step_ns)
    return max(min(wanted, on.bins // _LONGEST_LEAST), _FEWEST_BINS)


def _own(signals: Sequence[Signal], on: Grid, least: int) -> float:
    """Largest deviation that the baseline's halves show against each other."""
    times = [s.baseline.ts_ns for s in signals if len(s.baseline.ts_ns)]
    start, end = min(int(t[0]) for t in times), max(int(t[-1]) for t in times)
    middle = (start + end) // 2
    bins = int((end - middle) // on.step_ns) + 2
    if not 2 * least <= bins <= 4 * _MAX_BINS:
        return 0.0
    largest = 0.0
    for begin, test in ((middle, (middle + 1, end)), (start, (start, middle))):
        halves = [
            _halved(s, test, (start, middle) if begin == middle else (middle + 1, end))
            for s in signals
        ]
        half = Grid(begin - on.step_ns, on.step_ns, bins)
        tracks = [t for s in halves if (t := track(s, half)) and t.healthy > 0]
        one = _strongest(tracks, half, least, ()) if tracks else None
        largest = max(largest, one.score if one else 0.0)
    return largest


def _halved(signal: Signal, test: tuple[int, int], reference: tuple[int, int]) -> Signal:
    return Signal(
        signal.source,
        signal.role,
        signal.service,
        signal.subject,
        signal.baseline.between(*test),
        signal.baseline.between(*reference),
    )


def _between(values: Values) -> Values:
    """Sums over bins [i, j), for all i and j."""
    sums = np.concatenate(([0.0], values.cumsum()))
    return sums[None, :] - sums[:, None]


def _deviation(one: Track, allowed: _Mask) -> Values:
    """Deviation of each stretch in standard errors, the weaker of both comparisons."""
    inside, excess = _between(one.weight), _between(one.excess)
    outside = one.weight.sum() - inside
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = excess / inside
        rest = (one.excess.sum() - excess) / outside
        within = (mean - rest) / np.sqrt(one.tau * (1 / inside + 1 / outside) + _WITHIN_DAY**2)
        found = within
        if one.healthy:
            days = mean / np.sqrt(one.tau * (1 / inside + 1 / one.healthy) + _BETWEEN_DAYS**2)
            found = np.where(
                outside >= _FEWEST_OUTSIDE, np.minimum(days, within), days * _NO_LEAD_IN
            )
    sound = allowed & (inside >= _FEWEST_OUTSIDE)
    if not one.healthy:
        sound &= outside >= _FEWEST_OUTSIDE
    deviation: Values = np.where(sound, found, -np.inf)
    return deviation


def _gain(one: Track, allowed: _Mask) -> Values:
    """Twice the log likelihood that a level of its own in a stretch adds."""
    inside, excess = _between(one.weight), _between(one.excess)
    outside = one.weight.sum() - inside + _BASELINE_SHARE * one.healthy
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = excess / inside - (one.excess.sum() - excess) / outside
        gain = gap**2 * inside * outside / (inside + outside) / one.tau
    found: Values = np.where(allowed & (gap > 0) & (inside > 0) & (outside > 0), gain, 0.0)
    return found


def _box(moved: Sequence[Track], allowed: _Mask) -> tuple[Values, int, int]:
    """The gain of each stretch, mean of the tracks, and the bins [a, b) of the largest."""
    gain: Values = np.sum([_gain(t, allowed) for t in moved], axis=0) / len(moved)
    a, b = (int(x) for x in np.unravel_index(int(np.argmax(gain)), gain.shape))
    return gain, a, b


def _strongest(
    tracks: Sequence[Track], on: Grid, least: int, marks: Sequence[int]
) -> Found | None:
    ends = np.arange(on.bins + 1)
    allowed = ends[None, :] - ends[:, None] >= least
    peaks = np.array([float(_deviation(t, allowed).max()) for t in tracks])
    strongest = int(np.argmax(peaks))
    best = float(peaks[strongest])
    if not best > 0:
        return None
    moved = [t for t, p in zip(tracks, peaks, strict=True) if p >= _MOVED * best]
    _, a, b = _box(moved, allowed)
    gain, a, b = _box([t.beside(a, b - 1) for t in moved], allowed)
    pauses = _pauses(np.sum([t.weight for t in tracks], axis=0) > 0)
    a, b = _without_pauses(a, b, pauses)
    starts = np.flatnonzero(gain[:, b] >= gain[a, b] - _DROP)
    stops = np.flatnonzero(gain[a] >= gain[a, b] - _DROP)
    margin = max(a - starts[0], starts[-1] - a, b - stops[0], stops[-1] - b, 1)
    marked = [m for m in marks if starts[0] <= m <= starts[-1] and m < b - 1]
    a = max(marked, key=lambda m: float(gain[m, b]), default=a)
    inner = [p for p in pauses if a <= p[0] and p[1] < b]
    pause = max(inner, key=lambda p: p[1] - p[0], default=None)
    return Found(a, b - 1, best, int(margin), _named(tracks[strongest].signal), pause)


def _pauses(filled: _Mask) -> list[tuple[int, int]]:
    """Stretches of bins, first and last, between others in which nothing was recorded."""
    places = np.flatnonzero(filled)
    if len(places) < 3:
        return []
    gaps = np.diff(places)
    least = max(_PAUSE_BINS, _PAUSE_GAPS * float(np.median(gaps)))
    return [(int(places[i]) + 1, int(places[i + 1]) - 1) for i in np.flatnonzero(gaps > least)]


def _without_pauses(a: int, b: int, pauses: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Bins [a, b) less a pause of the recording at either end: it is no part of what was seen.

    Any end within a pause explains the recordings alike, so the margin covers it.
    """
    for first, last in pauses:
        if first <= a <= last < b - 1:
            a = last + 1
        if a < first < b <= last + 1:
            b = first
    return a, b


def _named(signal: Signal) -> str:
    return signal.role.removesuffix(MARK)
