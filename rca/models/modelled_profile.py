"""A trace of some engine steps as the torch profiler would write it, from the cost model.

Nothing is measured: operators, shapes and memory follow from the decoder's code, times
from the twin's formula. The trace says so in its own metadata.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from rca.models.engine import Engine, StepResult
from rca.models.gateway import Request
from rca.models.modelled_steps import OPERATOR, Operator, model_operators, sampler_operators
from rca.models.scheduler import Batch
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig
from rca.models.twin import TENSOR_BYTES, TwinWorker

PRODUCER = (
    "cost model of the decoder: operators and shapes follow from its code, no time was "
    "measured; views and idle time between steps are left out"
)
HOST = "node-a"
_PID = 41
_OVERHEAD_NS = 700  # between two operators
_WEIGHTS = 1 << 22  # bytes
_STEPS_FOR_ONE = 3  # they cost nothing, and more of them are less a matter of chance

Event = dict[str, object]


def record(
    engine: Engine, folder: Path, steps: int, sizes: DecoderConfig | None = None
) -> Path:
    """Follow the engine's next steps; returns the .pt.trace.json.gz file written."""
    twin = engine.worker
    if not isinstance(twin, TwinWorker):
        raise TypeError("only the twin's steps can be modelled")
    watching = _Watching(engine, twin, sizes or DecoderConfig())
    engine.worker = watching
    begin_ns, done = engine.now_ns, 0
    while done < steps * _STEPS_FOR_ONE:
        if engine.step():
            done += 1
        elif not engine.skip_to_next_event():
            break
    engine.worker = twin
    path = folder / f"llm-engine-0.{begin_ns}.pt.trace.json.gz"
    trace = {
        "schemaVersion": 1,
        "producer": PRODUCER,
        "deviceProperties": [],
        "profile_memory": 1,
        "record_shapes": 1,
        "host_name": HOST,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": begin_ns,
        "traceEvents": watching.trace.events,
        "traceName": path.name.removesuffix(".gz"),
    }
    path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0))
    return path


class _Watching:
    """The twin, with a note of each of its steps."""

    def __init__(self, engine: Engine, twin: TwinWorker, sizes: DecoderConfig) -> None:
        self.engine, self.twin, self.sizes = engine, twin, sizes
        pool = engine.plan.args.total_blocks * self.sizes.block_size * self.sizes.head_dim * 8
        held = int(twin.retained) * TENSOR_BYTES
        self.trace = _Trace(_WEIGHTS + self.sizes.layers * pool + held)

    def take(self, plan: Plan) -> None:
        """As the twin."""
        self.twin.take(plan)

    def admit(self, request: Request) -> int:
        """As the twin."""
        return self.twin.admit(request)

    def execute(self, batch: Batch) -> StepResult:
        """As the twin; the step's operators are written down."""
        result = self.twin.execute(batch)
        plan, cost = self.engine.plan, self.twin.cost
        with_model = model_operators(plan, batch, cost, self.sizes)
        sampling = sampler_operators(plan, batch, cost, self.sizes, self.twin.retained)
        self.trace.step(result.cost_ns, batch.name, list(with_model), list(sampling))
        return result

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


class _Trace:
    """Events in order, and the bytes that are alive."""

    def __init__(self, live_bytes: int) -> None:
        self.live = live_bytes
        self.address = 1 << 40
        self.events: list[Event] = [
            {"ph": "M", "name": "process_name", "ts": 0.0, "pid": _PID, "tid": 0}
            | {"args": {"name": "python"}},
            {"ph": "M", "name": "process_labels", "ts": 0.0, "pid": _PID, "tid": 0}
            | {"args": {"labels": "CPU"}},
        ]
        self._number = 0
        self._free_ns = 0.0  # after the start of the trace: floats hold no ns since 1970

    def step(
        self, cost_ns: int, name: str, model: list[Operator], sampling: list[Operator]
    ) -> None:
        """One engine step, right after the last: the model inside its annotation, the sampler after it."""
        begin, freed = self._free_ns, list[tuple[int, int]]()
        mark = self._complete("user_annotation", name, begin, 0.0, {})
        now = begin
        for operator in model:
            now = self._operator(operator, now, freed)
        mark["dur"] = round((now - begin) / 1000, 3)
        for operator in sampling:
            now = self._operator(operator, now, freed)
        for number, (address, size) in enumerate(freed):
            self._memory(now + 2 * number, address, -size)
        self._free_ns = max(begin + cost_ns, now + 2 * len(freed))

    def _operator(self, operator: Operator, at: float, freed: list[tuple[int, int]]) -> float:
        lasts = max(operator.ns, 1_000.0)
        is_call = operator.kind == OPERATOR
        shown: dict[str, object] = {"Input Dims": operator.dims} if is_call else {}
        event = self._complete(operator.kind, operator.name, at, lasts, shown)
        inside = at
        for part in operator.inner:
            inside = self._operator(part, inside, freed)
        if operator.new_bytes:
            self.address += operator.new_bytes + 64
            self._memory(at, self.address, operator.new_bytes)
            if not operator.keeps:
                freed.append((self.address, operator.new_bytes))
        end = max(at + lasts, inside)
        event["dur"] = round((end - at) / 1000, 3)
        return end + _OVERHEAD_NS

    def _complete(
        self, kind: str, name: str, at: float, lasts: float, shown: dict[str, object]
    ) -> Event:
        self._number += 1
        event: Event = {"ph": "X", "cat": kind, "name": name, "pid": _PID, "tid": _PID}
        event |= {"ts": _us(at), "dur": round(lasts / 1000, 3)}
        event["args"] = {"External id": self._number, **shown}
        self.events.append(event)
        return event

    def _memory(self, at: float, address: int, size: int) -> None:
        self.live += size
        event: Event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
        event |= {"pid": _PID, "tid": _PID, "ts": _us(at)}
        event["args"] = {
            "Total Reserved": 0,
            "Total Allocated": self.live,
            "Bytes": size,
            "Device Id": -1,
            "Device Type": 0,
            "Addr": address,
        }
        self.events.append(event)


def _us(at_ns: float) -> float:
    return round(at_ns / 1000, 3)
