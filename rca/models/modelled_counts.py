"""What a plan asks of torch for a step and a token, counted in the modelled operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rca.models.arms import start
from rca.models.engine import StepResult
from rca.models.figures import Figures, Recorder
from rca.models.gateway import Request
from rca.models.modelled_steps import OPERATOR, Operator, model_operators, sampler_operators
from rca.models.scheduler import Batch
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig
from rca.models.twin import TwinWorker
from rca.op_families import calls_per_gemm

_WARM_STEPS = 60
_GEMMS = ("aten::mm", "aten::addmm")
_SYNCS = ("aten::_local_scalar_dense", "aten::item")


def count(plan: Plan, seed: int, steps: int = 40) -> Figures:
    """Counts of `steps` steps of a warm run, under the keys of op_counts.count."""
    worker = _Counting(plan)
    engine = start(plan, worker, seed, 60.0, Recorder())
    done = 0
    while done < _WARM_STEPS + steps:
        worker.counts = done >= _WARM_STEPS
        if engine.step():
            done += 1
        elif not engine.skip_to_next_event():
            break
    return worker.figures()


class _Counting:
    """The twin, with its operators counted."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.twin = plan, TwinWorker(plan)
        self.counts = False
        self._steps = self._tokens = 0
        self._allocations = self._rows = self._syncs = 0
        self._ran: Counter[str] = Counter()

    def take(self, plan: Plan) -> None:
        """As the twin."""
        self.plan = plan
        self.twin.take(plan)

    def admit(self, request: Request) -> int:
        """As the twin."""
        return self.twin.admit(request)

    def execute(self, batch: Batch) -> StepResult:
        """As the twin; the step's operators are counted."""
        result = self.twin.execute(batch)
        if self.counts:
            self._steps += 1
            self._tokens += sum(piece.samples for piece in batch.slices)
            for operator in self._operators(batch):
                self._add(operator)
        return result

    def _operators(self, batch: Batch) -> Iterator[Operator]:
        cost, sizes = self.twin.cost, DecoderConfig()
        tops = [
            *model_operators(self.plan, batch, cost, sizes),
            *sampler_operators(self.plan, batch, cost, sizes, self.twin.retained),
        ]
        while tops:
            operator = tops.pop()
            tops += operator.inner
            if operator.kind == OPERATOR:
                yield operator

    def _add(self, operator: Operator) -> None:
        self._ran[operator.name] += 1
        self._allocations += operator.new_bytes > 0
        self._syncs += operator.name in _SYNCS
        if operator.name in _GEMMS:
            shapes = [shape for shape in operator.dims if isinstance(shape, list)]
            self._rows += next(shape[0] for shape in shapes if len(shape) == 2)

    def figures(self) -> Figures:
        """For each step, each sampled token and each matrix multiplication."""
        steps, tokens = max(1, self._steps), max(1, self._tokens)
        calls = self._ran.total()
        return {
            "ops_per_step": calls / steps,
            "allocations_per_step": self._allocations / steps,
            "ops_per_token": calls / tokens,
            "gemm_rows_per_token": self._rows / tokens,
            "allocations_per_token": self._allocations / tokens,
            "syncs_per_token": self._syncs / tokens,
            **calls_per_gemm(self._ran),
        }

    def memory_bytes(self) -> int:
        """As the twin."""
        return self.twin.memory_bytes()

    def live_bytes(self) -> int:
        """As the twin."""
        return self.twin.live_bytes()

    def collections(self) -> Sequence[int]:
        """As the twin."""
        return self.twin.collections()

    def written_bytes(self) -> int:
        """As the twin."""
        return self.twin.written_bytes()
