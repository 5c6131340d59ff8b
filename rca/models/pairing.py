"""The dear part of an experiment: shuffled pairs of torch runs, and what they show.

Each pair runs every arm once, on the same requests, in an order drawn anew. The length of
a run follows from the time that is left, so the last pair is not the one that is missing.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from rca.models.arms import Run, run
from rca.models.effect import Effect, of_pairs
from rca.models.figures import Figures, log_ratios
from rca.models.screening import ArmRow
from rca.models.settings import Plan

if TYPE_CHECKING:
    from rca.models.worker import Runtime

PLACEBO_PAIRS = 3  # enough to see that it does not help
MOST_PAIRS = 24
PAIRS = 6  # six of six with one sign happens by chance once in 64 times, four of four in 16
SHORTEST_S, LONGEST_S = 2.0, 6.0
_RESERVE = 0.9  # of the time left is planned; the rest absorbs a busy machine

ArmPlan = Callable[[float], Plan]  # seconds of the run → its plan


@dataclass
class Pairing:
    """Torch runs by arm, pair for pair."""

    made: Runtime
    arms: Mapping[str, ArmPlan]
    seed: int
    rows: list[ArmRow] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def run(self, left_s: Callable[[], float]) -> int:
        """Run pairs until PAIRS are done or the time is over; returns how many are done.

        What time is left after them goes to more runs of the fix and of its reference:
        whether it is as good as healthy is the closest call.
        """
        cost = self._wall_for_a_second()
        for pair in range(PAIRS):
            arms = self._arms_of(pair)
            length_s = self._length_s(left_s() / (PAIRS - pair), len(self.arms), cost)
            # A busy machine may get calmer: stop only when not even this pair fits.
            length_s = max(SHORTEST_S, length_s)
            if length_s * len(arms) * cost > left_s():
                return pair
            spent = self._pair(pair, arms, length_s)
            cost = 0.5 * (cost + spent)
        for pair in range(PAIRS, MOST_PAIRS):
            arms = [arm for arm in ("healthy", "control", "fix") if arm in self.arms]
            length_s = self._length_s(left_s(), len(arms), cost)
            if length_s < LONGEST_S or "fix" not in self.arms:
                break
            self._pair(pair, arms, length_s)
        return PAIRS

    def _arms_of(self, pair: int) -> list[str]:
        return [arm for arm in self.arms if arm != "placebo" or pair < PLACEBO_PAIRS]

    def _length_s(self, left_s: float, arms: int, cost: float) -> float:
        return min(LONGEST_S, _RESERVE * left_s / arms / cost)

    def _pair(self, pair: int, arms: list[str], length_s: float) -> float:
        """Run the arms of a pair once each; returns the wall time of a virtual second."""
        began = time.monotonic()
        for arm in random.Random(f"order:{self.seed}:{pair}").sample(arms, len(arms)):
            self.runs.setdefault(arm, []).append(self._run(arm, pair, length_s))
        self.seconds.append(length_s)
        return (time.monotonic() - began) / len(arms) / length_s

    def effect(self, arm: str, figure: str) -> Effect | None:
        """An arm's ratio to the healthy service in one figure.

        Both healthy runs of a pair are the reference, unless one is compared itself.
        """
        if arm not in self.runs:
            return None
        against = ["healthy"] if arm in ("healthy", "control") else ["healthy", "control"]
        logs: list[float] = []
        for pair, after in enumerate(self.runs[arm]):
            each = [_log_ratio(after, self.runs[one][pair], figure) for one in against]
            logs.append(sum(each) / len(each))
        values, healthy = (
            [one.figures.get(figure, math.nan) for one in self.runs[name]]
            for name in (arm, "healthy")
        )
        return of_pairs(logs, values, healthy, self.seed)

    def ratios(self, arm: str) -> list[Figures]:
        """Log-ratios to the healthy arm, pair for pair."""
        pairs = zip(self.runs[arm], self.runs["healthy"], strict=False)
        return [log_ratios(after.figures, before.figures) for after, before in pairs]

    def noise(self, figure: str) -> float:
        """How far two equal arms lie apart at most, as a factor of 1 or more."""
        floor = self.effect("control", figure)
        return max(floor.high, 1 / floor.low) if floor else math.inf

    def _wall_for_a_second(self) -> float:
        # The first run pays for what torch does once; the second is timed.
        for _ in range(2):
            began = time.monotonic()
            self._torch(self.arms["healthy"](SHORTEST_S), 999, SHORTEST_S)
        return (time.monotonic() - began) / SHORTEST_S

    def _run(self, arm: str, pair: int, length_s: float) -> Run:
        result = self._torch(self.arms[arm](length_s), 1000 * self.seed + pair, length_s)
        shown = result.figures.items()
        self.rows += [ArmRow(arm, pair, "torch", key, value) for key, value in shown]
        return result

    def _torch(self, plan: Plan, seed: int, length_s: float) -> Run:
        from rca.models.worker import TorchWorker

        with TorchWorker(plan, self.made) as worker:
            return run(plan, worker, seed, length_s)


def _log_ratio(after: Run, before: Run, figure: str) -> float:
    """How an arm differs from another on the same requests.

    Medians of few requests jump; the median of the ratios, request for request, does not.
    Percentiles that no single request has are compared as they are.
    """
    logs = [
        math.log(after.requests[key][figure] / before.requests[key][figure])
        for key in after.requests.keys() & before.requests.keys()
        if figure in after.requests[key] and before.requests[key][figure] > 0
        if after.requests[key][figure] > 0
    ]
    if logs:
        return median(logs)
    high, low = after.figures.get(figure, math.nan), before.figures.get(figure, math.nan)
    return math.log(high / low) if high > 0 and low > 0 else math.nan
