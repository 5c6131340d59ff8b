"""The engine's step as a formula: the same scheduler, no tensors, the same run each time.

Costs are virtual ns, fitted on the torch worker at its standard scale (a decode step of
four sequences is 20 ms). They carry mechanism and direction, not production magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rca.models.engine import StepResult
from rca.models.gateway import Request
from rca.models.scheduler import Batch
from rca.models.settings import MS, Plan
from rca.models.workload import VOCABULARY

US = 1_000
BASE_MEMORY_BYTES = 300 << 20
LOG_LINE_BYTES = 150
TENSOR_BYTES = 36 * VOCABULARY * 4


@dataclass(frozen=True)
class CostModel:
    """Virtual ns; the first four are the line that healthy steps follow."""

    step: int = 13_700 * US
    token: int = 540 * US
    sequence: int = 1220 * US
    piece: int = 3300 * US  # each prompt in the step has an attention of its own
    tokenise_token: int = 4 * US
    tokenizer_load: int = 40 * MS
    retain: int = 300 * US  # one more tensor kept
    retained_tensor: int = 54 * US  # one kept tensor looked at again
    context_copy_token: int = 1800  # a cast of one token's KV in all layers
    sync: int = 15 * US
    sort: int = 700 * US  # one full sort of a row of logits
    detokenised_token: int = 2 * US
    logprob: int = 8 * US
    log_line: int = 12 * MS
    collected_object: int = 300  # ns, one object in one full collection
    extra_copy: int = 650 * US
    compilation: int = 700 * MS  # a layer for one more row count
    grammar_state: int = 70 * US
    # Per thread beyond a core, as a share of the step: far less than was measured on two
    # busy cores (5 to 18 times as long with 64 threads), about what services report.
    thread_share: float = 0.04
    cores: int = 4
    switches_a_thread: int = 12


class TwinWorker:
    """Costs instead of tensors."""

    def __init__(self, plan: Plan, cost: CostModel | None = None) -> None:
        self._cost = cost or CostModel()
        self.take(plan)
        self.retained = 0.0
        self._steps = self._host_bytes = 0
        self._grammars = 0
        self._shapes: set[int] = set()
        self._full_collections = 0
        self._lines = 0.0

    def take(self, plan: Plan) -> None:
        """Go on under another plan; a GPU whose clocks are held down computes longer."""
        self.plan = plan
        self.cost = _at_clock(self._cost, plan.host.clock_share)

    def admit(self, request: Request) -> int:
        """Tokenise: a line in the prompt's length, and what the build adds."""
        build, cost = self.plan.build, self.cost
        self._host_bytes += build.host_bytes_per_request
        total = request.prompt_tokens * cost.tokenise_token
        if not self.plan.args.preload_tokenizer:
            total += round(build.tokenizer_loads_per_request * cost.tokenizer_load)
        if request.arrival.has_schema and not (self.plan.args.grammar_cache and self._grammars):
            total += request.waits_for_grammar(build.grammar_states * cost.grammar_state)
            self._grammars += 1
        return total

    def execute(self, batch: Batch) -> StepResult:
        """The line a + b·tokens + c·sequences + d·prompts, and what the build adds."""
        cost = self.cost
        self._steps += 1
        total: float = cost.step + cost.token * batch.tokens + cost.sequence * len(batch.slices)
        total += cost.piece * len(batch.prefills)
        sampling = [piece.request for piece in batch.slices if piece.samples]
        extras = self._model_extras(batch) + self._token_extras(sampling)
        sampled = [(r.arrival.index + 7 * r.produced) % VOCABULARY for r in sampling]
        self._lines += self.plan.args.log_lines_per_token * len(sampling)
        disk_ns = _disk_cost(self.plan, cost) * len(sampling)
        return self._on_threads(total + extras, disk_ns, sampled)

    def _on_threads(self, work_ns: float, disk_ns: float, sampled: list[int]) -> StepResult:
        """Threads beyond the cores wait for one another; those on a core wait busily.

        Who waits for the disk uses no CPU time.
        """
        cost, threads = self.cost, self.plan.args.omp_num_threads
        if self.plan.args.threads_bound:
            threads = 1
        beyond = max(0, threads - cost.cores)
        work_ns = work_ns * (1 + cost.thread_share * beyond)
        lasts_ns = round(work_ns + disk_ns)
        cpu_ns = round(work_ns) * min(threads, cost.cores)
        if threads == 1:
            return StepResult(lasts_ns, sampled, cpu_ns)
        return StepResult(lasts_ns, sampled, cpu_ns, threads * cost.switches_a_thread)

    def memory_bytes(self) -> int:
        """All that is kept, in tensors and beside them."""
        return self.live_bytes() + self._host_bytes

    def live_bytes(self) -> int:
        """A base and the tensors that are retained."""
        return BASE_MEMORY_BYTES + round(self.retained) * TENSOR_BYTES

    def collections(self) -> Sequence[int]:
        """By steps, as an allocator-driven collector would."""
        return (self._steps // 2, self._steps // 20, self._full_collections)

    def written_bytes(self) -> int:
        """What the log has taken."""
        return int(self._lines) * LOG_LINE_BYTES

    def _model_extras(self, batch: Batch) -> float:
        build, args, cost = self.plan.build, self.plan.args, self.cost
        context = sum(piece.start + piece.count for piece in batch.slices)
        total = 0.0
        if args.attention_backend != "fused":
            total += build.kv_copies_per_step * context * cost.context_copy_token
        total += build.extra_copies_per_layer * cost.extra_copy
        if batch.tokens not in self._shapes and len(self._shapes) < self._compilations_left():
            self._shapes.add(batch.tokens)
            total += cost.compilation
        return total + self._retain() + self._collect()

    def _compilations_left(self) -> int:
        limit = self.plan.build.static_shapes
        return 0 if self.plan.args.compile_dynamic else limit

    def _retain(self) -> float:
        build, limit = self.plan.build, self.plan.args.processor_history_limit
        if limit and build.retained_tensors_per_step:
            self.retained = float(limit)
            return self.retained * self.cost.retained_tensor
        self.retained += build.retained_tensors_per_step
        added = build.retained_tensors_per_step * self.cost.retain
        return added + self.retained * self.cost.retained_tensor

    def _collect(self) -> float:
        build = self.plan.build
        if not build.collected_objects or self._steps % build.collect_every_steps:
            return 0.0
        self._full_collections += 1
        visited = 0 if self.plan.args.gc_freeze else build.collected_objects
        return visited * self.cost.collected_object

    def _token_extras(self, sampling: Sequence[Request]) -> float:
        build, cost = self.plan.build, self.cost
        each: float = build.syncs_per_token * cost.sync
        each += _sort_cost(self.plan, cost) + _payload_cost(self.plan, cost)
        total = each * len(sampling)
        for request in sampling:
            total += detokenise_ns(self.plan, cost, request.produced)
            request.answer_bytes += _chunk_bytes(self.plan)
        return total


def _at_clock(cost: CostModel, share: float) -> CostModel:
    """The line of the steps at a share of the clocks; what the host does stays as it is."""
    if share >= 1:
        return cost
    line = ("step", "token", "sequence", "piece")
    return replace(cost, **{name: round(getattr(cost, name) / share) for name in line})


def detokenise_ns(plan: Plan, cost: CostModel, produced: int) -> int:
    """What the text of one more token costs, ns, after so many; a slow build makes all of it again."""
    decoded = plan.build.detokenize_repeats * (produced + 1)
    if plan.args.detokenizer_window:
        decoded = min(decoded, plan.args.detokenizer_window)
    return (1 + decoded) * cost.detokenised_token


def _sort_cost(plan: Plan, cost: CostModel) -> float:
    partial = 0.1 if plan.args.sampler_backend == "partial" else 1.0
    return plan.build.sampler_sorts * cost.sort * partial


def _payload_cost(plan: Plan, cost: CostModel) -> float:
    packed = 0.1 if plan.args.response_format == "packed" else 1.0
    return plan.args.max_logprobs * cost.logprob * packed


def _disk_cost(plan: Plan, cost: CostModel) -> float:
    """What a token waits for its log lines to be on the disk."""
    buffered = 0.05 if plan.args.log_buffered else 1.0
    return plan.args.log_lines_per_token * cost.log_line * buffered


def _chunk_bytes(plan: Plan) -> int:
    """Size of one token's chunk, as the frontend writes it."""
    count = plan.args.max_logprobs
    if not count:
        return 28
    return 36 if plan.args.response_format == "packed" else 32 + 30 * count
