"""How two sets of paired runs differ, and how surely."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_RESAMPLES = 1000


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


def paired(after: Sequence[float], before: Sequence[float], seed: int = 0) -> Effect | None:
    """The effect in `after` against `before`, pair by pair; None below three sound pairs."""
    pairs = [
        (a, b)
        for a, b in zip(after, before, strict=True)
        if math.isfinite(a) and math.isfinite(b) and a > 0 and b > 0
    ]
    if len(pairs) < 3:
        return None
    logs = [math.log(a / b) for a, b in pairs]
    rng = random.Random(seed)
    means = sorted(sum(rng.choices(logs, k=len(logs))) / len(logs) for _ in range(_RESAMPLES))
    return Effect(
        ratio=math.exp(sum(logs) / len(logs)),
        low=math.exp(means[round(0.025 * (_RESAMPLES - 1))]),
        high=math.exp(means[round(0.975 * (_RESAMPLES - 1))]),
        cliffs_delta=cliffs_delta([a for a, _ in pairs], [b for _, b in pairs]),
        same_sign=all(x > 0 for x in logs) or all(x < 0 for x in logs),
        pairs=len(pairs),
    )


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
