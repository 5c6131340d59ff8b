"""What torch is asked to do for a token: operators, GEMM rows, allocations, syncs.

Counts are exact: they do not depend on the machine's load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rca.models.arms import start
from rca.models.engine import Engine
from rca.models.figures import Figures, Recorder
from rca.models.scheduler import Batch
from rca.models.settings import Plan
from rca.models.twin import TwinWorker
from rca.models.worker import Runtime, TorchWorker
from rca.op_families import calls_per_gemm

_GEMM_INPUT = {"aten::mm": 0, "aten::addmm": 1, "aten::linear": 0, "aten::matmul": 0}
_MOVES = frozenset(
    f"aten::{name}"
    for name in (
        "embedding",
        "index",
        "index_select",
        "clone",
        "contiguous",
        "copy_",
        "_to_copy",
        "cat",
    )
)
_WARM_STEPS = 100
_SYNCS = ("aten::_local_scalar_dense", "aten::item")


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: Counter[str] = Counter()
        self.gemm_rows = self.gemm_rows_max = self.allocations = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        self.operators[name] += 1
        if name in _GEMM_INPUT:
            given = args[_GEMM_INPUT[name]]
            rows = given.numel() // given.shape[-1]
            self.gemm_rows += rows
            self.gemm_rows_max = max(self.gemm_rows_max, rows)
        self.allocations += _is_new(out, args)
        return out


def _is_new(out: Any, args: Sequence[Any]) -> bool:
    if not isinstance(out, torch.Tensor):
        return False
    address = out.untyped_storage().data_ptr()
    inputs = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return all(address != arg.untyped_storage().data_ptr() for arg in inputs)


class Moved(NamedTuple):
    """Bytes read and written by operators that only move data, and their calls."""

    nbytes: int
    copies: int


class _Moving(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nbytes = self.copies = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.name().split(".")[0] in _MOVES and _is_new(out, args):
            self.nbytes += 2 * out.nbytes  # each byte is read once and written once
            self.copies += 1
        return out


def moved_bytes(call: Callable[[], object]) -> Moved:
    """What a call copies, gathers and rearranges."""
    with _Moving() as seen:
        call()
    return Moved(seen.nbytes, seen.copies)


class _Sampled(Recorder):
    """Counts sampled tokens as well."""

    tokens: int = 0

    def step(self, engine: Engine, batch: Batch, cost_ns: int) -> None:
        self.tokens += sum(piece.samples for piece in batch.slices)


def _run(engine: Engine, steps: int) -> None:
    done = 0
    while done < steps:
        if engine.step():
            done += 1
        elif not engine.skip_to_next_event():
            return


class Counts(NamedTuple):
    """Counts for each sampled token or step, and how often each operator ran."""

    shown: Figures
    operators: Counter[str]


def count(plan: Plan, made: Runtime, seed: int, steps: int = 200) -> Counts:
    """What torch is asked to do in `steps` steps of a warm run."""
    seen = _Sampled()
    twin = TwinWorker(plan)
    engine = start(plan, twin, seed, 60.0, seen)
    # Only scheduling matters until the counted steps, and the twin does that for nothing.
    _run(engine, _WARM_STEPS)
    seen.tokens = 0
    with TorchWorker(plan, made) as worker:
        worker.pace = twin
        engine.worker = worker
        counter = _Counting()
        with counter:
            _run(engine, steps)
    tokens = max(1, seen.tokens)
    shown = {
        "ops_per_step": counter.operators.total() / steps,
        "allocations_per_step": counter.allocations / steps,
        "ops_per_token": counter.operators.total() / tokens,
        "gemm_rows_per_token": counter.gemm_rows / tokens,
        "gemm_rows_max": counter.gemm_rows_max,
        "allocations_per_token": counter.allocations / tokens,
        "syncs_per_token": sum(counter.operators[name] for name in _SYNCS) / tokens,
        **calls_per_gemm(counter.operators),
    }
    shown.pop("op_compiles", None)  # the compiler's marks are none of torch's operators
    return Counts(shown, counter.operators)
