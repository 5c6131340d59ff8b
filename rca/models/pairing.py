"""The dear part of an experiment: pairs of runs, and what they show.

Each pair runs every arm once, on the same requests and in short turns drawn anew, so that
a busy machine slows all arms alike. What changes the whole process, its garbage collector,
compiler or threads, cannot take turns and runs one arm after another. The length of a run
follows from the time that is left, so the last pair is not the one that is missing.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from rca.models.arms import Machine, Run, run, run_in_turns
from rca.models.effect import Effect, of_pairs
from rca.models.figures import Figures, log_ratios
from rca.models.screening import ArmRow
from rca.models.settings import Plan

PLACEBO_PAIRS = 3  # enough to see that it does not help
MOST_PAIRS, ENOUGH_PAIRS = 60, 24  # the second where the fix is decided by then
PAIRS = 6  # six of six with one sign happens by chance once in 64 times, four of four in 16
_WARM_UP_S, SHORTEST_S, LONGEST_S = 0.5, 1.5, 6.0
_RESERVE = 0.9  # of the time left is planned; the rest absorbs a busy machine

ArmPlan = Callable[[float], Plan]  # seconds of the run → its plan


@dataclass
class Pairing:
    """Runs by arm, pair for pair."""

    machine: Machine
    arms: Mapping[str, ArmPlan]
    seed: int
    rows: list[ArmRow] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    may_go_on: Callable[[], bool] = lambda: True

    def run(
        self,
        left_s: Callable[[], float],
        grace_s: float,
        is_decided: Callable[[], bool] = lambda: True,
    ) -> int:
        """Run pairs until PAIRS are done or the time is over; returns how many are done.

        A pair that takes longer than was planned is given up once `grace_s` more have passed.

        What time is left after them goes to more runs of the fix and of its reference:
        whether it is as good as healthy is the closest call. After ENOUGH_PAIRS it is asked,
        once, whether that is decided: asking more often would decide by chance.
        """
        self.may_go_on = lambda: left_s() > -grace_s
        cost = self._wall_for_a_second()
        for pair in range(PAIRS):
            arms = self._arms_of(pair)
            length_s = self._length_s(left_s() / (PAIRS - pair), len(self.arms), cost)
            # A busy machine may get calmer: stop only when not even this pair fits.
            length_s = max(SHORTEST_S, length_s)
            if length_s * len(arms) * cost > left_s():
                return pair
            spent = self._pair(pair, arms, length_s)
            if spent is None:
                return pair
            cost = 0.5 * (cost + spent)
        for pair in range(PAIRS, MOST_PAIRS):
            arms = [arm for arm in ("healthy", "control", "fix") if arm in self.arms]
            length_s = self._length_s(left_s(), len(arms), cost)
            if length_s < LONGEST_S or "fix" not in self.arms:
                break
            if pair == ENOUGH_PAIRS and is_decided():
                break
            if self._pair(pair, arms, length_s) is None:
                break
        return PAIRS

    def _arms_of(self, pair: int) -> list[str]:
        return [arm for arm in self.arms if arm != "placebo" or pair < PLACEBO_PAIRS]

    def _length_s(self, left_s: float, arms: int, cost: float) -> float:
        return min(LONGEST_S, _RESERVE * left_s / arms / cost)

    def _pair(self, pair: int, arms: list[str], length_s: float) -> float | None:
        """Run the arms of a pair once each; returns the wall time of a virtual second.

        None, and nothing kept, when the time was over before all had run.
        """
        began = time.monotonic()
        order = random.Random(f"order:{self.seed}:{pair}")
        plans = {arm: self.arms[arm](length_s) for arm in arms}
        found = self._runs(plans, 1000 * self.seed + pair, length_s, order)
        if found is None:
            return None
        for arm, result in found.items():
            self.runs.setdefault(arm, []).append(result)
            shown = result.figures.items()
            self.rows += [ArmRow(arm, pair, "torch", key, value) for key, value in shown]
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

    def mean(self, arm: str, figure: str) -> float:
        """Mean of a figure over an arm's runs."""
        values = [one.figures[figure] for one in self.runs[arm]]
        return sum(values) / len(values)

    def ratios(self, arm: str) -> list[Figures]:
        """Log-ratios to the healthy arm, pair for pair."""
        pairs = zip(self.runs[arm], self.runs["healthy"], strict=False)
        return [log_ratios(after.figures, before.figures) for after, before in pairs]

    def noise(self, figure: str) -> float:
        """How far two equal arms lie apart at most, as a factor of 1 or more."""
        floor = self.effect("control", figure)
        return max(floor.high, 1 / floor.low) if floor else math.inf

    def _wall_for_a_second(self) -> float:
        # A short run pays for what torch does once; then one is timed.
        for length_s in (_WARM_UP_S, SHORTEST_S):
            began = time.monotonic()
            plan = self.arms["healthy"](length_s)
            with self.machine.worker(plan) as worker:
                run(plan, worker, 999, length_s)
        return (time.monotonic() - began) / SHORTEST_S

    def _runs(
        self, plans: Mapping[str, Plan], seed: int, length_s: float, order: random.Random
    ) -> dict[str, Run] | None:
        if any(map(_changes_the_process, plans.values())):
            found: dict[str, Run] = {}
            for arm in order.sample(list(plans), len(plans)):
                one = self._together({arm: plans[arm]}, seed, length_s, order)
                if one is None:
                    return None
                found |= one
            return found
        return self._together(plans, seed, length_s, order)

    def _together(
        self, plans: Mapping[str, Plan], seed: int, length_s: float, order: random.Random
    ) -> dict[str, Run] | None:
        with ExitStack() as stack:
            workers = {
                arm: (plan, stack.enter_context(self.machine.worker(plan)))
                for arm, plan in plans.items()
            }
            return run_in_turns(workers, seed, length_s, order, self.may_go_on)


def _changes_the_process(plan: Plan) -> bool:
    """Whether what one arm does to collector, compiler or threads reaches the others."""
    build = plan.build
    return bool(build.collected_objects or build.static_shapes or plan.args.omp_num_threads > 1)


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
