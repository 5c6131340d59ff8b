"""A symptom on a grid of time: how far it is from its healthy reference, bin by bin.

Points become normal scores by their rank in the reference, cut off at both ends, so that no burst
of a few seconds weighs more than a level that has moved for minutes. Requests of one bin share
their fate, bins resemble their neighbours: both are measured on the reference (intra-class
correlation; long-run variance with Bartlett's weights) and shrunk towards what services show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from rca.signals import Points, Signal, Times, Values, meanings

MIN_POINTS = 6
_CUT = 1.8
"""Normal scores beyond count as this."""
_LEAST_VARIANCE = 0.05
_LEAST_DEVIATION = 2.0
"""Of a share, as a multiple of what it strays by at any level."""
_LEAST_ERRORS = 0.005
"""Share of errors that any service has."""
_USUAL_LIKENESS, _LIKENESS_BINS = 0.3, 10
"""Correlation within a bin that is assumed, and how many bins of a reference outweigh it."""
_USUAL_TAU, _TAU_BINS = 1.4, 40
"""Long-run variance against the variance, likewise."""
_FARTHEST_LAG = 12
_MAX_BINS = 5000


class Grid(NamedTuple):
    """Bins (start + i * step, start + (i + 1) * step] in ns: a scrape closes its bin."""

    start_ns: int
    step_ns: int
    bins: int

    def sums(self, times: Times, values: Values) -> tuple[Values, Values]:
        """Numbers of points and sums of values, bin by bin; what lies outside is left out."""
        slot = (times - 1 - self.start_ns) // self.step_ns
        inside = (slot >= 0) & (slot < self.bins)
        counts = np.bincount(slot[inside], minlength=self.bins)
        return (
            counts.astype(np.float64),
            np.bincount(slot[inside], values[inside], self.bins).astype(np.float64),
        )


@dataclass(frozen=True)
class Track:
    """One symptom on the grid.

    Attributes:
        weight: Effective number of observations, bin by bin.
        excess: Sum of scores above the reference's mean, bin by bin.
        tau: Variance of a sum of scores for each effective observation.
        healthy: Effective number of observations of a separate reference, 0 when there is none.
    """

    signal: Signal
    weight: Values
    excess: Values
    tau: float
    healthy: float

    def beside(self, first: int, last: int) -> Track:
        """The same, its variance at least what is left when bins first to last have a level of their own.

        A stall now and then is calm while all is well: how far an incident's own bins differ from
        each other is seen in the incident only.
        """
        left = _flat(self.weight, self.excess, first, last + 1)
        return replace(self, tau=max(self.tau, float((left**2).sum() / self.weight.sum())))

    def without(self, first: int, last: int) -> Track:
        """The same with bins first to last taken out."""
        weight, excess = self.weight.copy(), self.excess.copy()
        weight[first : last + 1] = excess[first : last + 1] = 0.0
        return replace(self, weight=weight, excess=excess)


def grid(signals: Sequence[Signal], most_bins: int) -> Grid:
    """A grid over the incident side: the metrics' own step, or one that puts requests into bins."""
    times = [s.incident.ts_ns for s in signals if len(s.incident.ts_ns)]
    start, end = min(int(t[0]) for t in times), max(int(t[-1]) for t in times)
    steps = [
        int(np.median(np.diff(s.incident.ts_ns)))
        for s in signals
        if s.source == "metrics" and len(s.incident.ts_ns) > 2
    ]
    step = int(np.median(steps)) if steps else (end - start) // 100
    step = max(step, 1_000_000_000, (end - start) // most_bins + 1)
    return Grid(start - step, step, int((end - start) // step) + 2)


def track(signal: Signal, on: Grid) -> Track | None:
    """The track of a symptom, None when a side has too few points."""
    reference, observed = _sound(signal.baseline), _sound(signal.incident)
    alone = len(signal.baseline.ts_ns) == 0
    reference = observed if alone else reference
    if min(len(reference.ts_ns), len(observed.ts_ns)) < MIN_POINTS:
        return None
    score = _Scoring(signal.role, reference.values)
    healthy = score(reference.values)
    level, variance = float(healthy.mean()), max(float(healthy.var()), _LEAST_VARIANCE)
    counts, sums = _reference_bins(reference, healthy - level, on)
    likeness = _likeness(counts, sums, variance)
    weight, excess = _weighted(counts, sums, likeness)
    if alone:
        excess = _without_best_step(weight, excess)
    tau = max(_long_run(weight, excess, variance), variance)
    counts, sums = on.sums(observed.ts_ns, score(observed.values) - level)
    known = 0.0 if alone else float(weight.sum())
    return Track(signal, *_weighted(counts, sums, likeness), tau, known)


def _sound(points: Points) -> Points:
    return points.pick(np.isfinite(points.values))


class _Scoring:
    """Scores of values against a reference."""

    def __init__(self, role: str, reference: Values) -> None:
        known = meanings().get(role)
        self.is_share = known is not None and known.unit == "share"
        self.cut = np.inf if role == "error_share" else _CUT
        self.ordered = np.sort(reference)
        self.mean, deviation = float(reference.mean()), float(reference.std())
        least = _LEAST_DEVIATION * (known.least if known else 0.0)
        if role == "error_share":
            least = float(np.sqrt(_LEAST_ERRORS))
        self.deviation = max(deviation, least)

    def __call__(self, values: Values) -> Values:
        if self.is_share:
            scores = (values - self.mean) / self.deviation
        else:
            below = np.searchsorted(self.ordered, values, side="left")
            upto = np.searchsorted(self.ordered, values, side="right")
            scores = ndtri(((below + upto) / 2 + 0.5) / (len(self.ordered) + 1))
        cut: Values = np.clip(scores, -self.cut, self.cut)
        return cut


def _reference_bins(points: Points, scores: Values, on: Grid) -> tuple[Values, Values]:
    start = int(points.ts_ns[0]) - on.step_ns
    bins = int((points.ts_ns[-1] - start) // on.step_ns) + 1
    # A baseline with gaps of days must not become millions of bins: points stand in order instead.
    if bins > _MAX_BINS:
        return np.ones(len(scores)), scores
    return Grid(start, on.step_ns, bins).sums(points.ts_ns, scores)


def _likeness(counts: Values, sums: Values, variance: float) -> float:
    """Correlation of two observations of one bin, by moments, 0 to 1."""
    pairs = variance * float((counts * (counts - 1)).sum())
    seen = float((sums**2 - counts * variance).sum()) / pairs if pairs > 0 else 0.0
    bins = int((counts > 1).sum())
    mixed = (seen * bins + _USUAL_LIKENESS * _LIKENESS_BINS) / (bins + _LIKENESS_BINS)
    return min(max(mixed, 0.0), 1.0)


def _weighted(counts: Values, sums: Values, likeness: float) -> tuple[Values, Values]:
    weight = counts / (1.0 + likeness * np.maximum(counts - 1.0, 0.0))
    return weight, weight * sums / np.maximum(counts, 1.0)


def _long_run(weight: Values, excess: Values, variance: float) -> float:
    bins = len(excess)
    lags = max(1, min(round(bins / 8), _FARTHEST_LAG, bins - 1))
    seen = sum(
        (1.0 if k == 0 else 2.0 * (1.0 - k / (lags + 1)))
        * float((excess[k:] * excess[: bins - k]).sum())
        for k in range(lags + 1)
    ) / float(weight.sum())
    return (seen * bins + _USUAL_TAU * variance * _TAU_BINS) / (bins + _TAU_BINS)


def _without_best_step(weight: Values, excess: Values) -> Values:
    """What is left when the stretch that differs most from the rest is brought to its level.

    Without it an incident would be taken for the service's own unrest.
    """
    n, s = np.concatenate(([0.0], weight.cumsum())), np.concatenate(([0.0], excess.cumsum()))
    inside, total = n[None, :] - n[:, None], s[None, :] - s[:, None]
    outside = n[-1] - inside
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = total / inside - (s[-1] - total) / outside
        gain = np.where((inside > 0) & (outside > 0), gap**2 * inside * outside, -1.0)
    a, b = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return _flat(weight, excess, int(a), int(b))


def _flat(weight: Values, excess: Values, a: int, b: int) -> Values:
    """The excess when bins [a, b) and the others are each brought to their own mean."""
    inside, total = weight[a:b].sum(), excess[a:b].sum()
    level = np.full(len(weight), (excess.sum() - total) / max(weight.sum() - inside, 1e-9))
    level[a:b] = total / max(inside, 1e-9)
    left: Values = excess - weight * level
    return left
