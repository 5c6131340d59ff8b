"""Runs of plans, in torch or in the twin, and their figures.

Runs with one seed see the same requests. Each starts with a warm prefix cache, as a
service has that has run for a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from rca.models.engine import Engine, Worker, start_up_ns
from rca.models.figures import Figures, Recorder
from rca.models.gateway import admit
from rca.models.settings import SECOND, Plan
from rca.models.twin import TwinWorker
from rca.models.workload import arrivals, shared_prefix

BEGIN_NS = 1_000 * SECOND  # any time will do; figures are differences
TURN_NS = SECOND // 4  # some milliseconds of the machine's time


class Run(NamedTuple):
    """What a run showed, as a whole and request for request."""

    figures: Figures
    requests: dict[int, Figures]


class Machine(Protocol):
    """Where an experiment runs."""

    @property
    def name(self) -> str:
        """The device in words."""

    def worker(self, plan: Plan) -> AbstractContextManager[Worker]:
        """A worker for one run."""


def run(plan: Plan, worker: Worker, seed: int, seconds: float) -> Run:
    """Figures of `seconds` of virtual time."""
    recorder = Recorder(from_ns=BEGIN_NS)
    engine = start(plan, worker, seed, seconds, recorder)
    engine.run(BEGIN_NS + round(seconds * SECOND))
    return Run(recorder.figures(engine), recorder.by_request())


def run_in_turns(
    arms: Mapping[str, tuple[Plan, Worker]],
    seed: int,
    seconds: float,
    order: random.Random,
    may_go_on: Callable[[], bool],
) -> dict[str, Run] | None:
    """Runs of several plans in short turns, so that a busy machine slows all of them alike.

    None when they were given up.

    Args:
        arms: name → plan and worker; all see the same requests.
        seed: of the traffic.
        seconds: of virtual time.
        order: who comes first is drawn anew for each turn.
        may_go_on: asked before each turn.
    """
    recorders = {arm: Recorder(from_ns=BEGIN_NS) for arm in arms}
    engines = {
        arm: start(plan, worker, seed, seconds, recorders[arm])
        for arm, (plan, worker) in arms.items()
    }
    for end_ns in turn_ends(seconds):
        if not may_go_on():
            return None
        for arm in order.sample(list(arms), len(arms)):
            engines[arm].run(end_ns)
    return {
        arm: Run(recorder.figures(engines[arm]), recorder.by_request())
        for arm, recorder in recorders.items()
    }


def turn_ends(seconds: float) -> Sequence[int]:
    """Ends of turns on the virtual clock, the last at the end of the run."""
    end_ns = BEGIN_NS + round(seconds * SECOND)
    return [*range(BEGIN_NS + TURN_NS, end_ns, TURN_NS), end_ns]


def run_twin(plan: Plan, seed: int, seconds: float) -> Figures:
    """The same with costs instead of tensors: the same figures each time."""
    return run(plan, TwinWorker(plan), seed, seconds).figures


def start(plan: Plan, worker: Worker, seed: int, seconds: float, recorder: Recorder) -> Engine:
    """An engine with its traffic before it and the shared prefixes in its cache."""
    end_ns = BEGIN_NS + round(seconds * SECOND)
    engine = Engine(plan, worker, BEGIN_NS + start_up_ns(plan), recorder)
    for group in reversed(range(plan.traffic.prefix_groups)):
        engine.scheduler.preload(shared_prefix(group, plan.traffic.prefix_tokens))
    traffic = arrivals(plan.traffic, seed, BEGIN_NS, end_ns)
    admission = admit(plan, traffic)
    recorder.admission = admission
    engine.send(r for r in admission.requests if r.replica == 0)
    return engine
