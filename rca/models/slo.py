"""How many requests of a run kept an objective, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rca.models.arms import BEGIN_NS, start
from rca.models.figures import Recorder, percentile
from rca.models.gateway import Request
from rca.models.settings import SECOND, Plan
from rca.models.twin import TwinWorker

LEAST_SHARE = 0.95
REQUESTS = 150  # a cell: with two misses its Wilson bound still reaches LEAST_SHARE
_SLACK = 2.0  # times what 95 % of healthy requests need
_Z = 1.96


class Objective(NamedTuple):
    """Most virtual ns to the first token and to the last."""

    ttft_ns: float
    e2e_ns: float


class Cell(NamedTuple):
    """What a setting did under a load."""

    requests: int
    kept: int
    throughput: float  # output tokens of requests that kept the objective, for each second
    ttft: list[int]
    e2e: list[int]
    requests_seen: list[Request]

    @property
    def share(self) -> float:
        """Share of requests that kept the objective."""
        return self.kept / max(self.requests, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the share, 95 %."""
        return wilson(self.kept, self.requests)


def wilson(kept: int, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share, 95 %; (0, 1) for nothing seen."""
    if not total:
        return 0.0, 1.0
    share = kept / total
    middle = share + _Z**2 / (2 * total)
    half = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    scale = 1 + _Z**2 / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def objective_of(healthy: Plan, seed: int) -> Objective:
    """Twice what 95 % of the healthy service's requests need."""
    cell = measure(healthy, seed, Objective(math.inf, math.inf))
    return Objective(_SLACK * percentile(cell.ttft, 0.95), _SLACK * percentile(cell.e2e, 0.95))


def measure(plan: Plan, seed: int, objective: Objective, requests: int = REQUESTS) -> Cell:
    """Run about so many requests in the twin; who is not done in time has not kept it."""
    seconds = requests * plan.args.replicas / plan.traffic.rate_per_s
    grace_s = min(objective.e2e_ns / SECOND, seconds)
    recorder = Recorder(from_ns=BEGIN_NS)
    engine = start(plan, TwinWorker(plan), seed, seconds, recorder)
    sent = engine.coming
    end_ns = BEGIN_NS + round((seconds + grace_s) * SECOND)
    engine.run(end_ns)
    ttft = [(r.first_token_ns or end_ns) - r.ready_ns for r in sent]
    e2e = [(r.finished_ns or end_ns) - r.ready_ns for r in sent]
    kept = [
        r
        for r, first, whole in zip(sent, ttft, e2e, strict=True)
        if r.finished_ns and first <= objective.ttft_ns and whole <= objective.e2e_ns
    ]
    throughput = sum(r.produced for r in kept) * plan.args.replicas / seconds
    return Cell(len(sent), len(kept), throughput, ttft, e2e, sent)


def p99(values: Sequence[int]) -> float:
    """The 99th percentile."""
    return percentile(values, 0.99)
