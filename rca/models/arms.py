"""One run of a plan, in torch or in the twin, and its figures.

Runs with one seed see the same requests. Each starts with a warm prefix cache, as a
service has that has run for a while.
"""

from __future__ import annotations

from typing import NamedTuple

from rca.models.engine import Engine, Worker, start_up_ns
from rca.models.figures import Figures, Recorder
from rca.models.gateway import admit
from rca.models.settings import SECOND, Plan
from rca.models.twin import TwinWorker
from rca.models.workload import arrivals, shared_prefix

BEGIN_NS = 1_000 * SECOND  # any time will do; figures are differences


class Run(NamedTuple):
    """What a run showed, as a whole and request for request."""

    figures: Figures
    requests: dict[int, Figures]


def run(plan: Plan, worker: Worker, seed: int, seconds: float) -> Run:
    """Figures of `seconds` of virtual time."""
    recorder = Recorder(from_ns=BEGIN_NS)
    engine = start(plan, worker, seed, seconds, recorder)
    engine.run(BEGIN_NS + round(seconds * SECOND))
    return Run(recorder.figures(engine), recorder.by_request())


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
    engine.send(admit(plan, traffic).requests)
    return engine
