"""The cheap and exact part of an experiment: what the twin says of each candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from rca.models.arms import run_twin
from rca.models.effect import is_monotone
from rca.models.fault import Fault
from rca.models.figures import Figures, log_ratios
from rca.models.modelled_counts import count
from rca.models.ranking import DEAD_BAND
from rca.models.settings import Plan

DOSES = (0.5, 1.0, 2.0)
SEEDS = (101, 102)
SECONDS = 30.0
STANDS_OUT = 3.0  # times the noise of equal services
_MORE_EQUAL = 4  # with those of SEEDS fifteen pairs
# Counts for a token follow the mix of prompts and answers in so few steps.
COUNTED = (
    "ops_per_step", "allocations_per_step", "syncs_per_token",
    "op_copies", "op_converts", "op_sorts", "op_syncs", "op_compiles",
)  # fmt: skip
OP_FIGURES = frozenset(
    {*COUNTED, "ops_per_token", "gemm_rows_per_token", "allocations_per_token"}
)
COUNTED_STEPS = 40


class ArmRow(NamedTuple):
    """One figure of one run."""

    arm: str  # healthy, control, fault, fix, placebo or candidate:ID
    pair: int
    engine: str  # torch or twin
    figure: str
    value: float


class DoseResponse(NamedTuple):
    """A figure's log-ratio to the healthy service at dose 0 and at each of DOSES."""

    figure: str
    values: list[float]
    monotone: bool

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "figure": self.figure,
            "doses": [0.0, *DOSES],
            "log_ratios": self.values,
            "monotone": self.monotone,
        }


@dataclass
class Screening:
    """Twin runs of the healthy service and of candidates at three doses."""

    healthy_plan: Plan
    counts_operators: bool = False
    rows: list[ArmRow] = field(default_factory=list)
    healthy: list[Figures] = field(default_factory=list)
    shown: dict[tuple[str, float], Figures] = field(default_factory=dict)
    _pairs: list[Figures] = field(default_factory=list)

    def __post_init__(self) -> None:
        for pair, seed in enumerate(SEEDS):
            self.healthy.append(self._run("healthy", pair, self.healthy_plan, seed))

    def add(self, fault: Fault, arm: str, seeds: Sequence[int] = SEEDS) -> None:
        """Run a candidate at each dose; keeps mean log-ratios to the healthy service."""
        for dose in DOSES:
            plan = fault.plan(self.healthy_plan, dose, SECONDS)
            name = arm if dose == 1.0 else f"{arm}@{dose:g}"
            ratios = [
                log_ratios(self._run(name, pair, plan, seed), self.healthy[pair])
                for pair, seed in enumerate(seeds)
            ]
            self.shown[fault.cause, dose] = mean_of(ratios)

    def add_rivals(self, rivals: Iterable[Fault], may_go_on: Callable[[], bool]) -> list[str]:
        """Run rivals while there is time; returns the causes that were left out."""
        left: list[str] = []
        for rival in rivals:
            if may_go_on():
                self.add(rival, f"candidate:{rival.cause}", SEEDS[:1])
            else:
                left.append(rival.cause)
        return left

    def noise(self, figure: str) -> float:
        """How far equal services lie apart under other traffic: a root mean square of logs."""
        if not self._pairs:
            for seed in range(SEEDS[-1] + 1, SEEDS[-1] + 1 + _MORE_EQUAL):
                self.healthy.append(
                    self._run("healthy", len(self.healthy), self.healthy_plan, seed)
                )
            self._pairs = [log_ratios(a, b) for a, b in combinations(self.healthy, 2)]
        logs = [pair[figure] for pair in self._pairs if figure in pair]
        return math.sqrt(sum(value**2 for value in logs) / len(logs)) if logs else 0.0

    def calm(self, fault: Fault, observed: Mapping[str, float]) -> list[str]:
        """Latencies that the fault makes worse, when none of them stands out of the noise.

        One that is worse, but not by more than the noise, is enough where the fault's hallmark
        stands out.
        """
        known = [figure for figure in fault.timing if figure in observed]
        worst = max((observed[figure] for figure in known), default=0.0)
        mark = fault.hallmark
        is_marked = mark is not None and self._stands_out(
            mark, observed.get(mark, 0.0) * fault.moves[mark]
        )
        if is_marked and worst > DEAD_BAND:
            return []
        return [] if any(self._stands_out(f, observed[f]) for f in known) else known

    def _stands_out(self, figure: str, moved: float) -> bool:
        return moved > max(DEAD_BAND, STANDS_OUT * self.noise(figure))

    def still_counters(self, fault: Fault) -> list[str]:
        """Counters that the fault must move, but does not at dose 1."""
        return still(fault.moves, self.shown[fault.cause, 1.0])

    def dose_response(self, fault: Fault) -> DoseResponse | None:
        """How the fault's first figure follows the dose; None where the twin has none."""
        figures = [f for f in (*fault.moves, *fault.timing) if f not in OP_FIGURES]
        if not figures:
            return None
        figure = figures[0]
        values = [self.shown[fault.cause, dose].get(figure, 0.0) for dose in DOSES]
        sign = fault.moves.get(figure, 1)
        return DoseResponse(figure, [0.0, *values], is_monotone([0.0, *values], sign))

    def _run(self, arm: str, pair: int, plan: Plan, seed: int) -> Figures:
        figures = run_twin(plan, seed, SECONDS)
        if self.counts_operators:
            counts = count(plan, seed, COUNTED_STEPS)
            figures |= {figure: counts[figure] for figure in COUNTED}
        self.rows += [ArmRow(arm, pair, "twin", key, value) for key, value in figures.items()]
        return figures


def still(moves: Mapping[str, int], shown: Mapping[str, float]) -> list[str]:
    """Keys of `moves` that `shown` has but that did not move as they must."""
    return [
        key for key, sign in moves.items() if key in shown and shown[key] * sign < DEAD_BAND
    ]


def mean_of(ratios: Sequence[Mapping[str, float]]) -> Figures:
    """Means of the keys that all have."""
    keys = set.intersection(*(set(one) for one in ratios)) if ratios else set()
    return {key: sum(one[key] for one in ratios) / len(ratios) for key in sorted(keys)}
