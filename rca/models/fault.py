"""What is known of a cause as an experiment: the switch, what must move, what mends it.

`dose` 1 is a clear incident, 0 is the healthy service, and what lies between is monotone.
A fix turns another knob than the fault did: taking the fault away again would prove
nothing. A placebo is a change that people try and that must not help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rca.models.settings import Plan

Apply = Callable[[Plan, float, float], Plan]  # plan, dose, seconds that the fault will last


@dataclass(frozen=True)
class Remedy:
    """A change of the plan in words and in knobs; several are separated by commas."""

    name: str
    knob: str
    apply: Callable[[Plan], Plan]

    @property
    def knobs(self) -> list[str]:
        """The knobs, one by one."""
        return self.knob.split(", ")


@dataclass(frozen=True)
class Fault:
    """What is known of one cause as an experiment.

    Attributes:
        moves: counters that must go up (+1) or down (-1), whatever the machine does; the
            first one follows the dose.
        mark: the one of them without whose move it cannot be this cause; the first unless given.
        timing: latencies that must get worse.
        device: 'cpu' when it can be shown here; else what it would need, in words.
        growth: the effect builds up while it lasts, so dose means the end of the window.
        recovers: the service gets well by itself while it is watched.
        by_model: only a cost model shows it: the twin, never torch.
        around: what a healthy service must have for it to be there, with the telemetry of that.
        change: (kind, subject, before, after) of the record that it leaves, where the
            plan's own difference does not say it.
    """

    cause: str
    cause_class: str
    knob: str
    component: str = "llm-engine"
    apply: Apply | None = None
    moves: Mapping[str, int] = field(default_factory=dict)
    mark: str | None = None
    timing: tuple[str, ...] = ()
    fix: Remedy | None = None
    device: str = "cpu"
    growth: bool = False
    by_model: bool = False
    around: Callable[[Plan], Plan] = lambda plan: plan
    recovers: bool = False
    change: tuple[str, str, str, str] | None = None
    acceptable: tuple[str, ...] = ()

    @property
    def hallmark(self) -> str | None:
        """The counter without whose move it cannot be this cause."""
        return self.mark or next(iter(self.moves), None)

    @property
    def reproducible(self) -> bool:
        """Whether it can be switched on here."""
        return self.apply is not None

    def plan(self, healthy: Plan, dose: float, seconds: float) -> Plan:
        """The healthy plan with this cause switched on; dose 0 leaves it as it is.

        Raises:
            ValueError: the cause cannot be switched on here.
        """
        if self.apply is None:
            raise ValueError(f"{self.cause}: {self.device}")
        return self.apply(healthy, dose, seconds) if dose > 0 else healthy


def beside(fault: Fault, other: Fault) -> Fault:
    """The fault in a service in which the other is at work as well, at dose 1.

    Raises:
        ValueError: one of them cannot be switched on here.
    """
    return replace(
        fault,
        apply=lambda plan, dose, seconds: fault.plan(
            other.plan(plan, 1.0, seconds), dose, seconds
        ),
    )


def replicas(count: int) -> Remedy:
    """So many replicas of the engine instead of one."""
    return Remedy(
        f"{count} replicas share the traffic",
        "replicas",
        lambda plan: plan.with_args(replicas=count),
    )
