"""A hypothesis and its fix → a verdict, within a budget of wall time.

Cheap and exact steps come first: does the twin's copy of the fault move the counters that
it must, more with a larger dose; and does it look like the incident, more than its rivals
do? Only what survives is run in torch, in shuffled pairs, against the noise of two equal
arms. The fix turns another knob than the fault; a placebo goes along.

Every figure is of the model that ran, on the device it ran on: mechanism and direction,
never the size of the effect in production.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rca.errors import CauseError, MissingExtra
from rca.models.arms import run as run_arm
from rca.models.arms import run_twin
from rca.models.effect import Effect, is_monotone, paired
from rca.models.fault import Fault
from rca.models.faults import PLACEBO, find
from rca.models.figures import log_ratios
from rca.models.ranking import DEAD_BAND, LEAST_LIKENESS, MARGIN, Rank, is_still, rank
from rca.models.settings import Plan
from rca.models.workload import WorkloadSettings

if TYPE_CHECKING:
    from rca.models.worker import Runtime

Progress = Callable[[str], None]

PAIRS = 6  # 4 of 4 with one sign happens by chance once in 16 times, 6 of 6 once in 64
DOSES = (0.5, 1.0, 2.0)
FIXED_BELOW = 1.10  # a mended figure's upper bound, against the healthy one
_TWIN_SEEDS = (101, 102, 103)
_TWIN_SECONDS = 30.0
_SHORTEST_S, _LONGEST_S = 3.0, 12.0
_LEAST_BUDGET_S = 1.0
_OP_FIGURES = (
    "ops_per_token",
    "gemm_rows_per_token",
    "allocations_per_token",
    "syncs_per_token",
)


class ArmRow(NamedTuple):
    """One figure of one run."""

    arm: str  # healthy, control, fault, fix, placebo or candidate:ID
    pair: int
    engine: str  # torch or twin
    figure: str
    value: float


@dataclass
class Experiment:
    """What was tried, what came out, and why the verdict is what it is."""

    cause: str
    status: str
    reason: str
    device: str | None = None
    fault: str | None = None
    fix: str | None = None
    pairs: int = 0
    spent_ns: int = 0
    arms: list[ArmRow] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)


class Verdict(NamedTuple):
    """A status and its reason."""

    status: str
    reason: str


def run(
    cause: str,
    *,
    settings: WorkloadSettings | None = None,
    observed: Mapping[str, float] | None = None,
    rivals: Sequence[str] = (),
    budget_s: float = 20.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Experiment:
    """The verdict of the model on `cause`.

    Args:
        cause: an id of the catalogue, or an alias.
        settings: what is known of the incident's healthy traffic.
        observed: the incident's figures against its healthy ones, as
            `figures.log_ratios` gives them; any subset of `figures.FLOORS`.
        rivals: other causes that could explain the incident.
        budget_s: wall time that it may take, torch's import included.
        seed: of traffic, order of arms and bootstrap.
        progress: called with a line about what is going on.

    Returns:
        An Experiment whose status is validated, mechanism_only, partial_fix, ambiguous,
        refuted, not_reproducible_on_device, inconclusive or not_run.

    Raises:
        CauseError: no such cause.
    """
    trial = _Trial(find(cause), settings, observed, rivals, budget_s, seed, progress)
    verdict = trial.judge()
    return trial.report(verdict)


class _Trial:
    """The state of one experiment; each step adds to it and may end it."""

    def __init__(
        self,
        fault: Fault,
        settings: WorkloadSettings | None,
        observed: Mapping[str, float] | None,
        rivals: Sequence[str],
        budget_s: float,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.began_ns = time.monotonic_ns()
        self.fault, self.seed, self.budget_s = fault, seed, budget_s
        self.observed = dict(observed or {})
        self.healthy = (settings or WorkloadSettings()).apply(Plan())
        self.say = progress or (lambda _line: None)
        self.rivals = _reproducible(rivals, fault.cause)
        self.device: str | None = None
        self.pairs = 0
        self.rows: list[ArmRow] = []
        self.details: dict[str, object] = {
            "claim": "figures of the model on this device; direction and mechanism only",
            "budget_s": budget_s,
            "seed": seed,
        }
        self.left_out: list[str] = []

    def judge(self) -> Verdict:
        """Walk the steps, from cheap to dear."""
        if not self.fault.reproducible:
            return Verdict("not_reproducible_on_device", f"this cause {self.fault.device}")
        if self.fault.cause == "healthy":
            return Verdict("not_run", "there is no fault to try")
        if self.budget_s < _LEAST_BUDGET_S:
            return Verdict("not_run", f"a budget of {self.budget_s:g} s is too small")
        return self._in_the_twin() or self._against_rivals() or self._in_torch()

    def report(self, verdict: Verdict) -> Experiment:
        """Everything that is known, with the verdict."""
        self.details["left_out"] = self.left_out
        ran = bool(self.rows)
        return Experiment(
            cause=self.fault.cause,
            status=verdict.status,
            reason=verdict.reason,
            device=self.device if ran else None,
            fault=_setting(self.healthy, self._plan(1.0, 10.0)) if ran else None,
            fix=self.fault.fix.name if ran and self.fault.fix else None,
            pairs=self.pairs,
            spent_ns=time.monotonic_ns() - self.began_ns,
            arms=self.rows,
            details=self.details,
        )

    def _plan(self, dose: float, seconds: float) -> Plan:
        return self.fault.plan(self.healthy, dose, seconds)

    def _left_s(self) -> float:
        return self.budget_s - (time.monotonic_ns() - self.began_ns) / 1e9
