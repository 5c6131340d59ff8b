"""One engine step in torch, timed by the CPU it used.

CPU time does not see other programs on the machine; where it is blind (the disk) the
wall clock is read for that section only. Real nanoseconds times `scale` are virtual ones.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median

import torch
from torch import Tensor

from rca.models.decoder import (
    Block,
    Decoder,
    DecoderConfig,
    FeedForward,
    StepInput,
    feed_forward,
)
from rca.models.device import computed, pick, settle
from rca.models.engine import StepResult
from rca.models.frontend import DETOKENISE, Frontend
from rca.models.gateway import Request
from rca.models.logits_history import LogitsHistory
from rca.models.process import (
    collections,
    context_switches,
    raise_compile_limit,
    resident_bytes,
    return_free_memory,
)
from rca.models.scheduler import Batch, Slice
from rca.models.settings import MS, Plan
from rca.models.step_input import step_input
from rca.models.twin import TwinWorker
from rca.models.workload import VOCABULARY, Arrival

STANDARD_STEP_NS = 20 * MS  # virtual time of a decode step of four sequences
_STEPS_A_TICK = 8
_TICKS_KEPT = 9
_BASE_BYTES = 300 << 20


class Runtime:
    """The model on its device, and how long its standard step takes there now.

    Neighbours on the machine make the same work cost more CPU time, for seconds at a time.
    So a small fixed piece of work is timed again and again, and the scale follows it.
    """

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.model, self.device = model, device
        self.user: TorchWorker | None = None  # whose pool and detours the model has now
        self._ticks: deque[int] = deque(maxlen=_TICKS_KEPT)
        self._standard_in_ticks = 1.0
        self._rows = torch.ones(4, model.config.hidden, device=device, dtype=model.dtype)

    @property
    def name(self) -> str:
        """The device in words."""
        if self.device.type == "cuda":
            return f"cuda ({torch.cuda.get_device_name(self.device)})"
        return "cpu"

    def worker(self, plan: Plan) -> TorchWorker:
        """A worker for one run of a plan."""
        return TorchWorker(plan, self)

    @property
    def scale(self) -> float:
        """Virtual ns for each ns of the device."""
        return STANDARD_STEP_NS / (self._standard_in_ticks * median(self._ticks))

    @torch.inference_mode()
    def tick(self) -> int:
        """Time the fixed piece of work once; returns its ns."""
        begin = self.clock_ns()
        rows = self._rows
        for block in self.model.blocks:
            if isinstance(block, Block):
                wide = torch.nn.functional.gelu(block.up(block.norm_2(rows)))
                rows = torch.softmax(block.down(wide), -1) + self._rows
        spent = self.clock_ns() - begin
        self._ticks.append(spent)
        return spent

    def calibrate(self) -> None:
        """Learn what the standard step costs in ticks."""
        plan = Plan()
        with TorchWorker(plan, self) as worker:
            requests = [full_request(number) for number in range(4)]
            batch = Batch([Slice(request, 224, 1) for request in requests])
            ratios = []
            for _ in range(60):
                tick_ns = self.tick()
                begin = self.clock_ns()
                worker.compute(batch)
                ratios.append((self.clock_ns() - begin) / tick_ns)
        self._standard_in_ticks = median(ratios[20:])

    def clock_ns(self) -> int:
        """CPU time of this thread; on CUDA the wall clock, when the device is done."""
        settle(self.device)
        is_cuda = self.device.type == "cuda"
        return time.perf_counter_ns() if is_cuda else time.thread_time_ns()


@contextmanager
def runtime(config: DecoderConfig | None = None, *, seed: int = 0) -> Iterator[Runtime]:
    """A calibrated model on CUDA where there is one, else on one CPU thread; its config says what it became."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # Collections shall visit what a run makes, not the whole interpreter.
    gc.collect()
    gc.freeze()
    device = pick()
    try:
        config = computed(config or DecoderConfig(), device)
        made = Runtime(
            Decoder(config, seed).to(device, getattr(torch, config.dtype)).eval(), device
        )
        made.calibrate()
        yield made
    finally:
        torch.set_num_threads(threads)
        gc.unfreeze()


def full_request(number: int) -> Request:
    """A request of 225 tokens in 15 blocks of its own: the standard step has four."""
    arrival = Arrival(number, 0, (), 8, "t-0", 0, False, 0)
    request = Request(arrival, 0, 0, [number] * 225, 225, 8)
    request.blocks = list(range(number * 15, number * 15 + 15))
    return request


class TorchWorker:
    """Real tensors, real text, real files; a context that gives its files back."""

    def __init__(self, plan: Plan, made: Runtime) -> None:
        self.plan, self.made = plan, made
        self._restore: Callable[[], None] = lambda: None
        self._pool = made.model.new_pool(plan.args.total_blocks)
        self._compiled = self._compile() if plan.build.static_shapes else None
        self._take_model()
        self._threads = 1 if plan.args.threads_bound else plan.args.omp_num_threads
        self.frontend = Frontend(plan)
        # Names each step and what is done beside the model for a profiler, as engines do.
        self.annotate: Callable[[str], AbstractContextManager[object]] | None = None
        # Under a profiler time means nothing: then the twin says how long a step takes.
        self.pace: TwinWorker | None = None
        self._history = LogitsHistory(plan, made.model.config.layers)
        self._kept: list[bytearray] = []
        self._lines_due = 0.0
        self._steps = 0
        self._wall_extra_ns = 0
        self._resident_at_start = _BASE_BYTES
        self._objects: list[list[int]] = []
        self._collections_before = collections()

    def __enter__(self) -> TorchWorker:
        torch.set_num_threads(self._threads)
        gc.collect()
        return_free_memory()
        if self.plan.build.collected_objects:
            self._objects = [[] for _ in range(self.plan.build.collected_objects)]
            if self.plan.args.gc_freeze:
                gc.freeze()
        self._collections_before = collections()
        self._resident_at_start = resident_bytes(_BASE_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(1)
        self._objects = []
        self._history.kept, self._kept = [], []
        self.made.user = None
        self._restore()
        self.frontend.close()

    def _take_model(self) -> None:
        """Give the model this worker's pool and detours; workers may take turns with it."""
        if self.made.user is self:
            return
        fused = self.plan.args.attention_backend == "fused"
        self.made.model.use_pool(self._pool)
        self.made.model.set_slow_paths(
            cast_copies=0 if fused else self.plan.build.kv_copies_per_step,
            extra_copies=self.plan.build.extra_copies_per_layer,
            compiled=self._compiled,
        )
        self.made.user = self

    def take(self, plan: Plan) -> None:
        """Go on under another plan; a host is only modelled, so nothing here changes."""
        self.plan = plan

    def admit(self, request: Request) -> int:
        """Tokenise, and build the grammar of a structured answer."""
        begin = self._begin()
        build = self.plan.build
        if build.host_bytes_per_request:
            self._kept.append(bytearray(build.host_bytes_per_request))
        loads = _whole(build.tokenizer_loads_per_request, request.arrival.index)
        self.frontend.tokenise(request.tokens, 0 if self.plan.args.preload_tokenizer else loads)
        tokenised_ns = self._cost_ns(begin)
        known = self.plan.args.grammar_cache and self.frontend.grammars
        if request.arrival.has_schema and build.grammar_states and not known:
            self.frontend.build_grammar(build.grammar_states)
        if self.pace:
            return self.pace.admit(request)
        return tokenised_ns + request.waits_for_grammar(self._cost_ns(begin) - tokenised_ns)

    def execute(self, batch: Batch) -> StepResult:
        """One step, timed."""
        self._steps += 1
        if self.pace:
            cost_ns = self.pace.execute(batch).cost_ns
            return StepResult(cost_ns, self.compute(batch))
        if self._steps % _STEPS_A_TICK == 0:
            self.made.tick()
        if self._threads > 1:
            return self._on_threads(batch)
        begin = self._begin()
        sampled = self.compute(batch)
        lasts_ns = self._cost_ns(begin)
        waited_ns = min(round(self._wall_extra_ns * self.made.scale), lasts_ns)
        return StepResult(lasts_ns, sampled, lasts_ns - waited_ns)

    def _on_threads(self, batch: Batch) -> StepResult:
        """A step by the wall clock: one thread's CPU time does not see it wait for others."""
        wall, cpu, switches = time.perf_counter_ns(), time.process_time_ns(), context_switches()
        sampled = self.compute(batch)
        settle(self.made.device)
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
        scale = self.made.scale
        lasts_ns, cpu_ns = round(wall * scale), round(cpu * scale)
        return StepResult(lasts_ns, sampled, cpu_ns, context_switches() - switches)

    @torch.inference_mode()
    def compute(self, batch: Batch) -> list[int]:
        """The model, the sampler and the answer's chunks of one step; the sampled tokens."""
        self._take_model()
        sampling = [piece.request for piece in batch.slices if piece.samples]
        with self._range(batch.name):
            logits = self.made.model(self.inputs(batch))
        sampled: list[int] = []
        if sampling:
            sampled = self._sample(self._history.process(logits))
            self._answer(sampling, sampled, logits)
        self._collect_garbage()
        return sampled

    def _range(self, name: str) -> AbstractContextManager[object]:
        return self.annotate(name) if self.annotate else nullcontext()

    def memory_bytes(self) -> int:
        """Resident memory at the start and what the engine keeps since: what else grows is the recording."""
        kept = self.live_bytes() + sum(map(len, self._kept))
        return self._resident_at_start + kept - _BASE_BYTES

    def live_bytes(self) -> int:
        """A base and what a build keeps that it should not."""
        return _BASE_BYTES + self._history.nbytes()

    def collections(self) -> Sequence[int]:
        """Collections of this process since the worker began."""
        pairs = zip(collections(), self._collections_before, strict=True)
        return [now - before for now, before in pairs]

    def written_bytes(self) -> int:
        """Of the frontend's log."""
        return self.frontend.written_bytes

    def _compile(self) -> FeedForward:
        """The feed-forward layer through the compiler, which costs what compiling costs."""
        import torch._dynamo as dynamo

        dynamo.reset()
        # Our own limit below counts; the compiler's must not come first.
        self._restore = raise_compile_limit(dynamo.config, 1_000)
        limit = self.plan.build.static_shapes
        dynamic = self.plan.args.compile_dynamic
        compiled = torch.compile(feed_forward, backend="eager", dynamic=dynamic)
        known: set[int] = set()

        def layer(x: Tensor, *tensors: Tensor) -> Tensor:
            # Past the limit a compiler gives up and runs the layer as it is.
            if not dynamic and len(x) not in known and len(known) > limit:
                return feed_forward(x, *tensors)
            known.add(len(x))
            out: Tensor = compiled(x, *tensors)
            return out

        self._warm(layer, (VOCABULARY, 1) if dynamic else (VOCABULARY,))
        return layer

    @torch.inference_mode()
    def _warm(self, layer: FeedForward, row_counts: Sequence[int]) -> None:
        """Pay for the compiler's own start before anything is timed."""
        block = self.made.model.blocks[0]
        if isinstance(block, Block):
            up, down = block.up, block.down
            for rows in row_counts:
                x = up.weight.new_zeros(rows, self.made.model.config.hidden)
                layer(x, up.weight, up.bias, down.weight, down.bias)

    def follow_twin(self) -> None:
        """From now on the twin says how long a step takes, with as much kept as here."""
        self.pace = TwinWorker(self.plan)
        self.pace.retained = float(len(self._history.kept))

    def _begin(self) -> int:
        self._wall_extra_ns = 0
        return self.made.clock_ns()

    def _cost_ns(self, begin: int) -> int:
        spent = self.made.clock_ns() - begin
        if self.made.device.type == "cpu":
            spent += self._wall_extra_ns
        return round(spent * self.made.scale)

    def inputs(self, batch: Batch) -> StepInput:
        """The index tensors of a step."""
        return step_input(
            batch,
            block_size=self.plan.args.block_size,
            heads=self.made.model.config.heads,
            device=self.made.device,
        )

    def _sample(self, logits: Tensor) -> list[int]:
        for _ in range(self.plan.build.sampler_sorts):
            if self.plan.args.sampler_backend == "partial":
                logits.topk(32)
            else:
                ordered, index = torch.sort(logits, descending=True)
                total = torch.softmax(ordered, -1).cumsum(-1)
                logits = logits.scatter(1, index, ordered.masked_fill(total > 1.0, -1e9))
        chosen = logits.argmax(-1)
        for _ in range(self.plan.build.syncs_per_token):
            for row in chosen:
                row.item()
        picked: list[int] = chosen.tolist()
        return picked

    def _answer(self, requests: list[Request], sampled: list[int], logits: Tensor) -> None:
        count = self.plan.args.max_logprobs
        rows: list[list[float]] = [[] for _ in requests]
        if count:
            rows = torch.log_softmax(logits, -1)[:, :count].tolist()
        for request, token, row in zip(requests, sampled, rows, strict=True):
            output = [*request.tokens[request.prompt_tokens :], token]
            with self._range(DETOKENISE):
                text = self.frontend.detokenise(output)
            request.answer_bytes += self.frontend.emit(text, len(output), row)
            self._lines_due += self.plan.args.log_lines_per_token
            while self._lines_due >= 1:
                self._lines_due -= 1
                self._log(request, token)

    def _log(self, request: Request, token: int) -> None:
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        self.frontend.log(str(request.arrival.index), token)
        waited = (time.perf_counter_ns() - wall) - (time.thread_time_ns() - cpu)
        self._wall_extra_ns += max(0, waited)

    def _collect_garbage(self) -> None:
        every = self.plan.build.collect_every_steps
        if self.plan.build.collected_objects and self._steps % every == 0:
            gc.collect()


def _whole(rate: float, index: int) -> int:
    return int((index + 1) * rate) - int(index * rate)
