"""How much a signal moved between the healthy reference and the incident window.

The reference of a signal is the baseline or the lead-in before the window, whichever differs less
from the window: what differs from one of them only, differs between days and not because of the
incident. Strength is g = tanh(z / 4) × |Cliff's delta|, with z the shift on the reference's robust
scale; it needs both a large shift and little overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from rca.case import Case
from rca.signals import CAPTURES, Meaning, Points, Signal, Values, groups, meanings

FLAT = 0.25
"""Strength below which a signal counts as unmoved."""
_RESAMPLES = 300
MIN_POINTS = 3
_MIN_EARLY = 8
_CLEARANCE = 4
"""The lead-in ends this part of the window's length before it."""
_SHARE_FLOOR = 0.05
_BLOCKS = 8


@dataclass(frozen=True)
class Span:
    """The incident window with the margin of its ends, ns since the Unix epoch.

    Attributes:
        others: Start and end of further incidents of the recording, which are no reference.
    """

    start_ns: int
    end_ns: int
    margin_ns: int
    others: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Move:
    """One signal's move.

    Attributes:
        side: 'baseline' or 'lead-in': where the reference comes from.
        strength: From -1 to 1, see the module.
    """

    signal: Signal
    side: str
    reference: Points
    observed: Points
    strength: float

    @property
    def direction(self) -> str:
        """'up', 'down' or 'flat'; of a group also 'new' and 'gone', where one side has none of it."""
        if abs(self.strength) < FLAT:
            return "flat"
        if self.signal.role in groups():
            if not self.reference.num.any():
                return "new"
            if not self.observed.num.any():
                return "gone"
        return "up" if self.strength > 0 else "down"

    @property
    def effect(self) -> float | None:
        """Natural logarithm of observed / reference, None when a side is zero or negative."""
        before, after = self.reference.pooled(), self.observed.pooled()
        return float(np.log(after / before)) if before > 0 and after > 0 else None


def incident_span(case: Case) -> Span | None:
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' ORDER BY id"
    )
    if not rows:
        return None
    (start_ns, end_ns, margin_ns), *others = rows
    return Span(start_ns, end_ns, margin_ns, tuple((a - m, b + m) for a, b, m in others))


def whole_span(case: Case) -> Span | None:
    first, last = case.rows(
        "SELECT min(first_ns), max(last_ns) FROM source WHERE part = 'incident'"
    )[0]
    has_baseline = case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'")
    return Span(first, last, 0) if has_baseline and first is not None else None


def measure(signal: Signal, span: Span) -> Move | None:
    """The move of a signal, None when a side has too few points.

    Captures are taken when somebody was alarmed, often after the window: a capture of the
    incident side stands for the incident whenever it was made.
    """
    capture = signal.source in CAPTURES
    observed = (
        signal.incident if capture else signal.incident.between(span.start_ns, span.end_ns)
    )
    fewest = 1 if capture else MIN_POINTS
    if len(observed.ts_ns) < fewest:
        return None
    sides = [("baseline", signal.baseline)]
    if not capture:
        sides.append(("lead-in", _lead_in(signal.incident, span)))
    usable = [(name, points) for name, points in sides if len(points.ts_ns) >= fewest]
    measured = [(strength(signal, p, observed), name, p) for name, p in usable]
    # A negative count or an overflow has no strength, and would make every score NaN.
    measured = [m for m in measured if np.isfinite(m[0])]
    if not measured:
        return None
    g, name, reference = min(measured, key=lambda m: abs(m[0]))
    if len({np.sign(m[0]) for m in measured if abs(m[0]) >= FLAT}) > 1:
        g = 0.0  # up against one reference and down against the other: it drifts
    return Move(signal, name, reference, observed, g)


def _lead_in(points: Points, span: Span) -> Points:
    """The points before the window, well before it where there are enough.

    A fault that grows slowly begins before anybody feels it. Other incidents are left out.
    """
    for start, end in span.others:
        points = points.pick((points.ts_ns < start) | (points.ts_ns > end))
    clear = span.start_ns - max(span.margin_ns, (span.end_ns - span.start_ns) // _CLEARANCE)
    early = points.pick(points.ts_ns < clear)
    if len(early.ts_ns) >= _MIN_EARLY:
        return early
    return points.pick(points.ts_ns < span.start_ns - span.margin_ns)


def strength(signal: Signal, reference: Points, observed: Points) -> float:
    """g = tanh(z / 4) × |Cliff's delta|, from -1 to 1; for rare events by their numbers alone.

    Of what is counted the number must have moved as well: the weaker of both holds, and where one
    side has none of it the number alone.

    Points are pooled into some eight blocks of neighbours first: the question is whether the
    level moved, and single requests overlap whatever the level does.
    """
    known = _meaning(signal)
    by_number = 0.0
    if known and (known.events or known.counted):
        by_number = float(np.tanh(poisson_z(reference, observed) / 4.0))
        if known.events or not (reference.num.any() and observed.num.any()):
            return by_number
    size = max(1, min(len(reference.ts_ns), len(observed.ts_ns)) // _BLOCKS)
    before, after = reference.blocks(size).values, observed.blocks(size).values
    centre = float(np.mean(before)) if len(before) < 20 else median(before)
    spread = max(robust_spread(before), _floor(signal, centre))
    shift = (trimmed_mean(after) - trimmed_mean(before)) / spread
    level = float(np.tanh(shift / 4.0)) * abs(cliffs_delta(before, after))
    if known is None or not known.counted:
        return level
    return min(level, by_number, key=abs) if level * by_number > 0 else 0.0


def _meaning(signal: Signal) -> Meaning | None:
    return meanings().get(signal.role) or groups().get(signal.role)


def poisson_z(reference: Points, observed: Points) -> float:
    """Deviation of an event count from what the reference's rate lets expect (Anscombe's root)."""
    seconds_before, seconds_after = float(reference.den.sum()), float(observed.den.sum())
    if not seconds_before or not seconds_after:
        return 0.0
    share = seconds_after / seconds_before
    root = (
        np.sqrt(max(float(observed.num.sum()), 0.0) + 0.375),
        np.sqrt(share * (max(float(reference.num.sum()), 0.0) + 0.375)),
    )
    return float(2.0 * (root[0] - root[1]) / np.sqrt(1.0 + share))


def median(values: Values) -> float:
    """The middle of at least one value; numpy's own takes many times as long for a few."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return float((ordered[middle - 1] + ordered[middle]) / 2)


def robust_spread(values: Values) -> float:
    """Median deviation from the median as a standard deviation, at least half the plain one."""
    deviation = 1.4826 * median(np.abs(values - median(values)))
    return max(deviation, 0.5 * float(np.std(values)))


def trimmed_mean(values: Values) -> float:
    """Mean without the outer tenths on both sides."""
    if len(values) < 10:
        return float(np.mean(values))
    cut = len(values) // 10
    return float(np.mean(np.sort(values)[cut : len(values) - cut]))


def _floor(signal: Signal, centre: float) -> float:
    known = _meaning(signal)
    if known is None:
        return max(_SHARE_FLOOR * abs(centre), 1e-12)
    return max(known.spread * abs(centre), known.least)


def cliffs_delta(before: Values, after: Values) -> float:
    """P(after > before) - P(after < before), from -1 to 1; by sorting, so that size does not matter."""
    ordered = np.sort(before)
    above = np.searchsorted(ordered, after, side="left").sum()
    below = (len(before) - np.searchsorted(ordered, after, side="right")).sum()
    return float((above - below) / (len(before) * len(after)))


def interval(reference: Points, observed: Points, seed: int) -> tuple[float, float] | None:
    """95 % bootstrap interval of the log ratio, resampling blocks of neighbouring points."""
    if len(reference.ts_ns) < 4 or len(observed.ts_ns) < 4:
        return None
    random = np.random.default_rng(seed)
    sides = []
    for points in (reference, observed):
        n = len(points.ts_ns)
        block = max(1, round(n ** (1 / 3)))
        starts = random.integers(0, n, (_RESAMPLES, -(-n // block)))
        total = block_sums(points.den, starts, block)
        sides.append(block_sums(points.num, starts, block) / np.where(total > 0, total, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(sides[1] / sides[0])
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) < _RESAMPLES // 2:
        return None
    low, high = np.percentile(ratio, (2.5, 97.5))
    return float(low), float(high)


def block_sums(values: Values, starts: npt.NDArray[np.int64], block: int) -> Values:
    """Sums of resamples as long as the values, (resamples,): blocks from their starts, round the end.

    Args:
        starts: Where each block begins, (resamples, blocks); the last block is cut to fit.
    """
    whole, last = starts[:, :-1], starts[:, -1]
    cut = len(values) - block * whole.shape[1]
    round_the_end = np.concatenate([values, values[:block]])
    of_block, of_cut = (
        sliding_window_view(round_the_end, size).sum(axis=1) for size in (block, cut)
    )
    sums: Values = of_block[whole].sum(axis=1) + of_cut[last]
    return sums
