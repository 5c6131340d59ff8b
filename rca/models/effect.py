"""How two sets of paired runs differ, and how surely."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_RESAMPLES = 1000
_TRIM_FROM = 6


class Effect(NamedTuple):
    """A ratio of two arms over pairs, with what is needed to believe it."""

    ratio: float
    low: float  # bootstrap interval of the ratio, 95 %
    high: float
    cliffs_delta: float  # -1 … 1; how seldom the two sets overlap
    same_sign: bool
    pairs: int

    def as_dict(self) -> dict[str, float | int | bool]:
        """For JSON."""
        return self._asdict()


def of_pairs(
    logs: Sequence[float], after: Sequence[float], before: Sequence[float], seed: int = 0
) -> Effect | None:
    """The effect that log-ratios show, one a pair; None below three sound pairs.

    The ratio is a trimmed mean, and the interval is that of the trimmed mean.

    Args:
        logs: log-ratio of each pair.
        after: the arm's values, for Cliff's delta.
        before: the values that it is compared with.
        seed: of the bootstrap.
    """
    logs = [value for value in logs if math.isfinite(value)]
    if len(logs) < 3:
        return None
    rng = random.Random(seed)
    means = sorted(_middle(rng.choices(logs, k=len(logs))) for _ in range(_RESAMPLES))
    return Effect(
        ratio=math.exp(_middle(logs)),
        low=math.exp(means[round(0.025 * (_RESAMPLES - 1))]),
        high=math.exp(means[round(0.975 * (_RESAMPLES - 1))]),
        cliffs_delta=cliffs_delta(after, before),
        same_sign=all(x > 0 for x in logs) or all(x < 0 for x in logs),
        pairs=len(logs),
    )


def _middle(logs: Sequence[float]) -> float:
    """Mean without the lowest and the highest: one disturbed run must not decide."""
    kept = sorted(logs)[1:-1] if len(logs) >= _TRIM_FROM else logs
    return sum(kept) / len(kept)


def cliffs_delta(after: Sequence[float], before: Sequence[float]) -> float:
    """Share of pairs across both sets where `after` is larger, less the share below."""
    if not after or not before:
        return 0.0
    above = sum((a > b) - (a < b) for a in after for b in before)
    return above / (len(after) * len(before))


def is_monotone(values: Sequence[float], sign: int, slack: float = 0.02) -> bool:
    """Whether values go one way from first to last, small steps back allowed."""
    steps = [sign * (b - a) for a, b in pairwise(values)]
    return all(step >= -slack for step in steps) and sum(steps) > slack
