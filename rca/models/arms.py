"""One run of a plan, in torch or in the twin, and its figures.

Runs with one seed see the same requests. Each starts with warm caches: the shared
prefixes are asked for once before anything counts.
"""

from __future__ import annotations

from dataclasses import replace

from rca.models.engine import Engine, Worker
from rca.models.figures import Recorder
from rca.models.gateway import admit
from rca.models.settings import SECOND, Plan
from rca.models.twin import TwinWorker
from rca.models.workload import Arrival, arrivals

_WARM_UP_NS = 1 * SECOND
BEGIN_NS = 1_000 * SECOND  # any time will do; figures are differences


def run(plan: Plan, worker: Worker, seed: int, seconds: float) -> dict[str, float]:
    """Figures of `seconds` of virtual time after the warm-up."""
    recorder = Recorder(from_ns=BEGIN_NS)
    engine = start(plan, worker, seed, seconds, recorder)
    engine.run(BEGIN_NS + round(seconds * SECOND))
    return recorder.figures(engine)


def run_twin(plan: Plan, seed: int, seconds: float) -> dict[str, float]:
    """The same with costs instead of tensors: the same figures each time."""
    return run(plan, TwinWorker(plan), seed, seconds)


def start(
    plan: Plan, worker: Worker, seed: int, seconds: float, recorder: Recorder
) -> Engine:
    """An engine with its traffic before it, warm-up included."""
    end_ns = BEGIN_NS + round(seconds * SECOND)
    traffic = arrivals(plan.traffic, seed, BEGIN_NS, end_ns)
    engine = Engine(plan, worker, BEGIN_NS - _WARM_UP_NS, recorder)
    # No quota and no replica turns the warm-up away.
    open_plan = plan.with_args(replicas=1, tenant_token_quota=0.0)
    engine.send(admit(open_plan, _warm_up(plan, seed)).requests)
    engine.send(admit(plan, traffic).requests)
    return engine


def _warm_up(plan: Plan, seed: int) -> list[Arrival]:
    begin_ns = BEGIN_NS - _WARM_UP_NS
    steady = replace(plan.traffic, cold_share=0.0, rate_per_s=40.0, burst_factor=1.0)
    seen: dict[int, Arrival] = {}
    for arrival in arrivals(steady, seed, begin_ns, begin_ns + 2 * SECOND):
        seen.setdefault(arrival.group, replace(arrival, at_ns=begin_ns, output_tokens=1))
    return [replace(arrival, retrieval_ns=0) for arrival in seen.values()]
