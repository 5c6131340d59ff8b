"""The twin as torch on a busy machine, for tests of what is decided from runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from rca.models.engine import StepResult, Worker
from rca.models.scheduler import Batch
from rca.models.settings import Plan
from rca.models.twin import TwinWorker


class Noisy(TwinWorker):
    """The twin on a machine that slows every turn by some other factor."""

    def __init__(self, plan: Plan, rng: random.Random, spread: float) -> None:
        super().__init__(plan)
        self._rng, self._spread = rng, spread

    def execute(self, batch: Batch) -> StepResult:
        result = super().execute(batch)
        factor = self._rng.lognormvariate(0.0, self._spread)
        cost_ns, cpu_ns = round(result.cost_ns * factor), round(result.cpu_ns * factor)
        return result._replace(cost_ns=cost_ns, cpu_ns=cpu_ns)


class Machine:
    """Stands for torch where only the decisions matter."""

    name = "twin with noise"

    def __init__(self, seed: int = 0, spread: float = 0.3) -> None:
        self._rng, self._spread = random.Random(seed), spread

    @contextmanager
    def worker(self, plan: Plan) -> Iterator[Worker]:
        yield Noisy(plan, self._rng, self._spread)
