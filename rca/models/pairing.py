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
from typing import TYPE_CHECKING

from rca.models.arms import run
from rca.models.effect import Effect, paired
from rca.models.figures import log_ratios
from rca.models.screening import ArmRow, Figures
from rca.models.settings import Plan

if TYPE_CHECKING:
    from rca.models.worker import Runtime

PLACEBO_PAIRS = 3  # enough to see that it does not help
PAIRS = 6  # six of six with one sign happens by chance once in 64 times, four of four in 16
SHORTEST_S, LONGEST_S = 3.0, 10.0
_RESERVE = 0.9  # of the time left is planned; the rest absorbs a busy machine

ArmPlan = Callable[[float], Plan]  # seconds of the run → its plan


@dataclass
class Pairing:
    """Torch runs by arm, pair for pair."""

    made: Runtime
    arms: Mapping[str, ArmPlan]
    seed: int
    rows: list[ArmRow] = field(default_factory=list)
    figures: dict[str, list[Figures]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def run(self, left_s: Callable[[], float]) -> int:
        """Run pairs until PAIRS are done or the time is over; returns how many are done."""
        rng = random.Random(f"arms:{self.seed}")
        cost = self._wall_for_a_second()
        for pair in range(PAIRS):
            runs_left = (PAIRS - pair) * len(self.arms)
            length_s = min(LONGEST_S, _RESERVE * left_s() / runs_left / cost)
            if length_s < SHORTEST_S:
                return pair
            began = time.monotonic()
            arms = [arm for arm in self.arms if arm != "placebo" or pair < PLACEBO_PAIRS]
            order = rng.sample(arms, len(arms))
            done = {arm: self._run(arm, pair, length_s) for arm in order}
            for arm, figures in done.items():
                self.figures.setdefault(arm, []).append(figures)
            self.seconds.append(length_s)
            spent = (time.monotonic() - began) / len(arms) / length_s
            cost = max(spent, 0.5 * (cost + spent))
        return PAIRS

    def effect(self, arm: str, figure: str) -> Effect | None:
        """An arm's ratio to the healthy service in one figure."""
        if arm not in self.figures:
            return None
        after = [one.get(figure, math.nan) for one in self.figures[arm]]
        return paired(after, self._reference(figure, arm)[: len(after)], self.seed)

    def ratios(self, arm: str) -> list[Figures]:
        """Log-ratios to the healthy arm, pair for pair."""
        pairs = zip(self.figures[arm], self.figures["healthy"], strict=False)
        return [log_ratios(after, before) for after, before in pairs]

    def _reference(self, figure: str, arm: str) -> list[float]:
        """Healthy values; of both healthy runs of a pair, unless one is compared itself."""
        healthy = [one.get(figure, math.nan) for one in self.figures["healthy"]]
        if arm in ("healthy", "control"):
            return healthy
        control = [one.get(figure, math.nan) for one in self.figures["control"]]
        return [math.sqrt(a * b) for a, b in zip(healthy, control, strict=True)]

    def noise(self, figure: str) -> float:
        """How far two equal arms lie apart at most, as a factor of 1 or more."""
        floor = self.effect("control", figure)
        return max(floor.high, 1 / floor.low) if floor else math.inf

    def _wall_for_a_second(self) -> float:
        # The first run pays for what torch does once; the second is timed.
        for _ in range(2):
            began = time.monotonic()
            self._figures(self.arms["healthy"](SHORTEST_S), 999, SHORTEST_S)
        return (time.monotonic() - began) / SHORTEST_S

    def _run(self, arm: str, pair: int, length_s: float) -> Figures:
        figures = self._figures(self.arms[arm](length_s), 1000 * self.seed + pair, length_s)
        self.rows += [ArmRow(arm, pair, "torch", key, value) for key, value in figures.items()]
        return figures

    def _figures(self, plan: Plan, seed: int, length_s: float) -> Figures:
        from rca.models.worker import TorchWorker

        with TorchWorker(plan, self.made) as worker:
            return run(plan, worker, seed, length_s)
