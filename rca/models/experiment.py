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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rca.errors import MissingExtra
from rca.models.budget import Budget
from rca.models.conclusion import (
    HOST_IS_MODELLED,
    NO_TORCH,
    Verdict,
    calm_text,
    describe,
    explains_better,
    is_decided,
    lacks_hallmark,
    leaves_hallmark,
    on_pairs,
    still_text,
)
from rca.models.fault import Fault, Remedy, beside
from rca.models.faults import PLACEBO, find
from rca.models.figures import FLOORS, LARGEST, Figures, log_ratios
from rca.models.pairing import PAIRS, ArmPlan, Pairing
from rca.models.ranking import LEAST_LIKENESS, MARGIN, is_still, rank
from rca.models.reproduce import torch_runtime
from rca.models.rivals import comparable
from rca.models.screening import OP_FIGURES, SECONDS, ArmRow, Screening, still
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig

if TYPE_CHECKING:
    from rca.models.worker import Runtime

__all__ = ["ArmRow", "Experiment", "run"]

Progress = Callable[[str], None]

_LEAST_BUDGET_S = 1.0
_SCREENING_SHARE = 0.4  # of the budget at most goes to rivals in the twin
_COUNTED_STEPS = 60
_START_CPU_S = 1.2  # torch's import and the calibration of the model, CPU time as measured
_GRACE = 0.05  # of the budget, for a pair that a busy machine makes longer than was planned


@dataclass
class Experiment:
    """What was tried, what came out, and why the verdict is what it is.

    Attributes:
        status: validated, mechanism_only, partial_fix, ambiguous, refuted,
            not_reproducible_on_device, inconclusive or not_run.
        device: what it ran on; None when nothing ran.
        fault: the knob as it was turned, in words; None when nothing ran.
        fix: the other knob, in words; None when none was tried.
        pairs: complete pairs of torch runs.
        arms: each figure of each run.
        details: A/A floor, effects with intervals, dose-response, ranks of the candidates,
            side effects of the fix, and what was left out.
    """

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


def run(
    cause: str,
    *,
    healthy: Plan | None = None,
    sizes: DecoderConfig | None = None,
    observed: Mapping[str, float] | None = None,
    rivals: Sequence[str] = (),
    not_tried: Sequence[str] = (),
    other: str | None = None,
    fix: Remedy | None = None,
    budget_s: float = 20.0,
    seed: int = 0,
    progress: Progress | None = None,
    began: float | None = None,
) -> Experiment:
    """The verdict of the model on `cause`.

    Args:
        cause: an id of the catalogue, or an alias.
        healthy: the service before the incident, `infer.infer` makes one; the usual one
            unless given.
        sizes: of the torch model.
        observed: the incident's figures against its healthy ones, as
            `figures.log_ratios` gives them; any subset of `figures.FLOORS`. Other keys
            are left out, and values are clipped at a factor of 10.
        rivals: other causes that could explain the incident.
        not_tried: more of them, which are named and not run.
        other: a cause that is at work beside it; it is switched on in all arms of the pairs, so
            that they show what `cause` adds to it.
        fix: what is tried instead of the fix that the model has for `cause`.
        budget_s: wall time that it may take, torch's import included.
        seed: of traffic, order of arms and bootstrap.
        progress: called with a line about what is going on.
        began: time.monotonic() when the budget began to run; now unless given.

    Raises:
        CauseError: no such cause.
    """
    budget = Budget(budget_s, began)
    fault = find(cause)
    trial = _Trial(fault, fault.around(healthy or Plan()), rivals, observed or {}, budget)
    trial.seed = seed
    trial.left_out += [f"{rival}: less likely than those tried" for rival in not_tried]
    if fix is not None:
        trial.fault = replace(trial.fault, fix=fix)
    if other is not None:
        trial.add(find(other))
    trial.sizes = sizes or trial.sizes
    trial.say = progress or trial.say
    return trial.run()


class _Trial:
    """The state of one experiment; each step adds to it and may end it."""

    def __init__(
        self,
        fault: Fault,
        healthy: Plan,
        rivals: Sequence[str],
        observed: Mapping[str, float],
        budget: Budget,
    ) -> None:
        self.fault, self.budget, self.seed = fault, budget, 0
        self.observed = {
            figure: min(max(value, -LARGEST), LARGEST)
            for figure, value in observed.items()
            if figure in FLOORS and math.isfinite(value)
        }
        self.healthy = healthy
        self.sizes = DecoderConfig(layers=1, hidden=160)
        self.say: Progress = lambda _line: None
        self.rivals, self.left_out = comparable(rivals, fault.cause, self.observed)
        self.untried: list[str] = []
        self.device: str | None = None
        self.made: Runtime | None = None
        self.other: Fault | None = None
        self.pairs = 0
        self.rows: list[ArmRow] = []
        self.details: dict[str, object] = {}

    def run(self) -> Experiment:
        """Walk the steps, from cheap to dear."""
        with ExitStack() as stack:
            verdict = self._precondition() or self._judge(stack)
        self.details |= {
            "claim": "figures of the model on this device: mechanism and direction only",
            "budget_s": self.budget.seconds,
            "seed": self.seed,
            "left_out": self.left_out,
        }
        ran = bool(self.rows)
        return Experiment(
            cause=self.fault.cause,
            status=verdict.status,
            reason=verdict.reason + (f"; beside {self.other.cause}" if self.other else ""),
            device=self.device,
            fault=self._reference(10.0).turned_to(self._faulty(10.0)) if ran else None,
            fix=self.fault.fix.name if self.pairs and self.fault.fix else None,
            pairs=self.pairs,
            spent_ns=self.budget.spent_ns(),
            arms=self.rows,
            details=self.details,
        )

    def add(self, other: Fault) -> None:
        """Let another cause be at work in all that is compared."""
        if not (other.reproducible and self.fault.reproducible):
            self.left_out.append(f"{other.cause}, which is at work as well: {other.device}")
            return
        self.other, self.fault = other, beside(self.fault, other)
        self.rivals = [rival for rival in self.rivals if rival.cause != other.cause]
        self.details["beside"] = other.cause

    def _reference(self, seconds: float) -> Plan:
        """The service without the fault that is tried."""
        return self.other.plan(self.healthy, 1.0, seconds) if self.other else self.healthy

    def _precondition(self) -> Verdict | None:
        if not self.fault.reproducible:
            return Verdict("not_reproducible_on_device", f"this cause {self.fault.device}")
        if self.fault.cause == "healthy":
            return Verdict("not_run", "there is no fault to try")
        if self.budget.seconds < _LEAST_BUDGET_S:
            return Verdict("not_run", f"{self.budget} is too small")
        return None

    def _judge(self, stack: ExitStack) -> Verdict:
        screening = self._screen()
        if screening.still_counters(self.fault) and self._drop_limits():
            screening = self._screen()
        shown = dict(screening.shown)
        verdict = self._check_counters(screening) or self._rank_early(shown, screening)
        if verdict:
            return verdict
        if self.fault.by_model:
            return HOST_IS_MODELLED
        if self.budget.left_s() < self.budget.wall_s(_START_CPU_S):
            return Verdict("inconclusive", f"{self.budget} was spent before torch could start")
        self.made = self._torch(stack)
        if self.made and OP_FIGURES & self.fault.moves.keys():
            verdict = self._count(self.made)
        if verdict:
            return verdict
        if self.made is None:
            return NO_TORCH
        return self._pairs(self.made)

    def _rank_early(
        self, shown: Mapping[tuple[str, float], Figures], screening: Screening
    ) -> Verdict | None:
        """What the twin alone can refute, before torch is even imported."""
        if not self.observed:
            return None
        if is_still(self.observed):
            return Verdict("refuted", "nothing in the incident's figures moved by a fifth")
        ranked = self._rank(shown)
        if lacking := lacks_hallmark(self.fault, self.observed):
            return Verdict("refuted", lacking)
        return ranked or self._undecided(screening)

    def _undecided(self, screening: Screening) -> Verdict | None:
        """Why the twin's figures are no ground to go on; None when they are."""
        if self.budget.left_s() <= 0:
            return None  # no more runs: that is said next
        if calm := screening.calm(self.fault, self.observed):
            return Verdict("inconclusive", calm_text(calm))
        if self.untried:
            names = ", ".join(self.untried)
            return Verdict("inconclusive", f"there was no time to compare with {names}")
        return None

    def _faulty(self, seconds: float) -> Plan:
        return self.fault.plan(self.healthy, 1.0, seconds)

    def _screen(self) -> Screening:
        self.say(f"twin: {self.fault.cause} and {len(self.rivals)} rivals, three doses each")
        self.device = "cpu"
        screening = Screening(self.healthy, self._needs_counts())
        screening.add(self.fault, "fault")
        until_s = (1 - _SCREENING_SHARE) * self.budget.seconds
        if self.observed:
            left = screening.add_rivals(self.rivals, lambda: self.budget.left_s() > until_s)
            self.left_out += [f"{cause}: no time left for it" for cause in left]
            self.untried = left
        self.rows += screening.rows
        return screening

    def _drop_limits(self) -> bool:
        """Take the usual limits instead of the incident's; whether they differ.

        Limits are scaled to a small model, and a fault may stay below them.
        """
        usual = replace(self.healthy, args=Plan().args)
        if usual == self.healthy:
            return False
        self.healthy, self.rows = usual, []
        self.left_out.append("the incident's own limits: under them the fault shows nothing")
        return True

    def _check_counters(self, screening: Screening) -> Verdict | None:
        if missing := screening.still_counters(self.fault):
            return Verdict("refuted", still_text(missing))
        response = screening.dose_response(self.fault)
        if response:
            self.details["dose_response"] = response.as_dict()
            if not response.monotone:
                return Verdict("refuted", f"{response.figure} does not follow the dose")
        return None

    def _needs_counts(self) -> bool:
        return bool(OP_FIGURES & (self.observed.keys() | self.fault.moves.keys()))

    def _torch(self, stack: ExitStack) -> Runtime | None:
        try:
            made = stack.enter_context(torch_runtime(self.sizes))
        except MissingExtra as error:
            self.left_out.append(f"torch runs: {error}")
            return None
        self.device = made.name
        return made

    def _count(self, made: Runtime) -> Verdict | None:
        """Exact operator counts in torch, for a cause that must move them."""
        from rca.models.op_counts import count

        before, after = (
            count(plan, made, self.seed, _COUNTED_STEPS).shown
            for plan in (self._reference(SECONDS), self._faulty(SECONDS))
        )
        ratios = log_ratios(after, before)
        self.details["operator_counts"] = ratios
        missing = still(self.fault.moves, ratios)
        return Verdict("refuted", still_text(missing) + " in torch") if missing else None

    def _rank(self, shown: Mapping[tuple[str, float], Figures]) -> Verdict | None:
        """Compare directions with the incident; None when the cause is clearly first."""
        ranks = rank(self.observed, shown)
        lacking = {
            rival.cause: reason
            for rival in self.rivals
            if (reason := lacks_hallmark(rival, self.observed))
        }
        self.details["ruled_out"] = lacking
        self.details["ranks"] = [found.as_dict() for found in ranks]
        own = next(found for found in ranks if found.cause == self.fault.cause)
        out = {own.cause, *lacking}
        others = [found for found in ranks if found.cause not in out]
        if own.likeness < LEAST_LIKENESS:
            return Verdict(
                "refuted",
                f"the model's incident looks unlike this one (likeness {own.likeness:.2f}, "
                f"worst in {own.worst_figure})",
            )
        if others and others[0].likeness > own.likeness + MARGIN:
            return Verdict("refuted", explains_better(others[0], own))
        near = []
        for found in (other for other in others if other.likeness > own.likeness - MARGIN):
            reason = leaves_hallmark(found.cause, self.fault, self.observed, shown)
            if reason:
                lacking[found.cause] = reason
            else:
                near.append(found)
        if near:
            names = ", ".join(sorted({own.cause, *(found.cause for found in near)}))
            fails = "; ".join(f"{f.cause} is off in {f.worst_figure}" for f in (own, *near))
            return Verdict("ambiguous", f"{{{names}}} look equally like the incident: {fails}")
        return None

    def _pairs(self, made: Runtime) -> Verdict:
        pairing = Pairing(made, self._arms(), self.seed)
        self.say(f"torch on {made.name}: up to {PAIRS} pairs of {len(pairing.arms)} arms")
        self.pairs = pairing.run(
            self.budget.left_s,
            _GRACE * self.budget.seconds,
            lambda: is_decided(self.fault, pairing),
        )
        self.rows += pairing.rows
        if self.pairs < PAIRS:
            return Verdict(
                "inconclusive",
                f"{self.budget} was spent after {self.pairs} of {PAIRS} pairs",
            )
        self.details |= describe(self.fault, pairing)
        return on_pairs(self.fault, pairing, has_incident=bool(self.observed))

    def _arms(self) -> dict[str, ArmPlan]:
        arms: dict[str, ArmPlan] = {
            "healthy": self._reference,
            "control": self._reference,
            "fault": self._faulty,
            "placebo": lambda seconds: PLACEBO.apply(self._faulty(seconds)),
        }
        fix = self.fault.fix
        if fix:
            arms["fix"] = lambda seconds: fix.apply(self._faulty(seconds))
        return arms
