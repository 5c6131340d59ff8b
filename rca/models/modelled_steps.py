"""Which operators a step of the decoder runs, with which shapes, and what each costs.

The list follows decoder.py and worker.py line for line; views are left out. Costs are
those of the twin's formula, shared out over the operators that cause them, so a step
takes as long here as it takes on the twin's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rca.models.frontend import DETOKENISE
from rca.models.scheduler import Batch, Slice
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig
from rca.models.twin import TENSOR_BYTES, CostModel, detokenise_ns

Dims = list[object]
_FLOAT = 4
OPERATOR = "cpu_op"
"""Kind of what torch runs, as its profiler calls it."""


@dataclass(frozen=True)
class Operator:
    """One call, or a range that the engine names; `inner` are the calls it makes itself."""

    name: str
    dims: Dims
    ns: float = 0.0
    new_bytes: int = 0
    keeps: bool = False  # what it allocates stays when the step is over
    kind: str = OPERATOR
    inner: tuple[Operator, ...] = field(default=())


def model_operators(
    plan: Plan, batch: Batch, cost: CostModel, sizes: DecoderConfig
) -> Iterator[Operator]:
    """From token numbers to logits."""
    rows, layers = batch.tokens, sizes.layers
    share = _Shares(plan, batch, cost, sizes)
    hidden = rows * sizes.hidden * _FLOAT
    yield _empty(8 * rows)
    for table in (sizes.vocabulary, sizes.positions):
        yield _gather([table, sizes.hidden], [rows], share.fixed * 0.1, hidden)
    yield Operator("aten::add", _two(rows, sizes.hidden), share.fixed * 0.05, hidden)
    for _ in range(layers):
        yield from _layer(plan, batch, share, sizes)
    last = sum(piece.samples for piece in batch.slices)
    picked = last * sizes.hidden * _FLOAT
    dims: Dims = [[rows, sizes.hidden], [], [last]]
    yield Operator("aten::index_select", dims, share.fixed * 0.05, picked)
    yield _norm(last, sizes.hidden, share.fixed * 0.1)
    head = (share.fixed * 0.6, last, sizes.hidden, sizes.vocabulary)
    yield _linear(*head, has_bias=False)


class _Shares:
    """The twin's line, cut into parts for an operator each."""

    def __init__(self, plan: Plan, batch: Batch, cost: CostModel, sizes: DecoderConfig) -> None:
        threads = 1 if plan.args.threads_bound else plan.args.omp_num_threads
        self.slower = 1 + cost.thread_share * max(0, threads - cost.cores)
        parts = sizes.layers + 1
        # What is left of it is the host's, between operators.
        self.fixed = 0.9 * self.slower * cost.step / parts
        self.token = self.slower * cost.token * batch.tokens / sizes.layers
        self.sequence = self.slower * cost.sequence / sizes.layers
        self.piece = self.slower * cost.piece / sizes.layers
        fused = plan.args.attention_backend == "fused"
        self.casts = 0 if fused else plan.build.kv_copies_per_step
        # Keys and values, there and back: four casts for each.
        self.cast_token = self.slower * cost.context_copy_token / sizes.layers / 4
        self.copy = self.slower * cost.extra_copy / sizes.layers / 3


def _layer(
    plan: Plan, batch: Batch, share: _Shares, sizes: DecoderConfig
) -> Iterator[Operator]:
    rows, hidden, head = batch.tokens, sizes.hidden, sizes.head_dim
    fixed, token = share.fixed, share.token
    size = rows * hidden * _FLOAT
    yield _norm(rows, hidden, fixed * 0.05)
    yield _linear(fixed * 0.15 + token * 0.15, rows, hidden, hidden + 2 * head)
    slots = plan.args.total_blocks * sizes.block_size
    for _ in range(2):
        yield Operator(
            "aten::index_copy_", [[slots, head], [], [rows], [rows, head]], fixed * 0.05
        )
    if batch.decodes:
        yield from _attention(plan, batch.decodes, share, sizes)
    for piece in batch.prefills:
        yield from _attention(plan, [piece], share, sizes)
    parts = [[len(batch.decodes), hidden]] if batch.decodes else []
    parts += [[piece.count, hidden] for piece in batch.prefills]
    yield Operator("aten::cat", [parts, []], fixed * 0.05, size)
    yield _linear(fixed * 0.1 + token * 0.1, rows, hidden, hidden)
    yield Operator("aten::add", _two(rows, hidden), fixed * 0.05, size)
    yield _norm(rows, hidden, fixed * 0.05)
    wide = sizes.wide
    if plan.build.static_shapes:
        yield from _compiled(fixed, token, rows, sizes)
    else:
        yield _linear(fixed * 0.2 + token * 0.35, rows, hidden, wide)
        yield Operator("aten::gelu", [[rows, wide], []], fixed * 0.05, rows * wide * _FLOAT)
        for _ in range(plan.build.extra_copies_per_layer):
            for name in ("aten::clone", "aten::mul", "aten::add"):
                cost = share.copy
                yield Operator(name, [[rows, wide], []], cost, rows * wide * _FLOAT)
        yield _linear(fixed * 0.2 + token * 0.4, rows, wide, hidden)
    yield Operator("aten::add", _two(rows, hidden), fixed * 0.05, size)


def _compiled(
    fixed: float, token: float, rows: int, sizes: DecoderConfig
) -> Iterator[Operator]:
    """The feed-forward layer behind the compiler's guards."""
    hidden, wide = sizes.hidden, sizes.wide
    inner = (
        _linear(fixed * 0.2 + token * 0.35, rows, hidden, wide),
        Operator("aten::gelu", [[rows, wide], []], fixed * 0.05, rows * wide * _FLOAT),
        _linear(fixed * 0.2 + token * 0.4, rows, wide, hidden),
    )
    yield Operator("TorchDynamo Cache Lookup", [], fixed * 0.01)
    total = sum(part.ns for part in inner)
    yield Operator("Torch-Compiled Region: 0/0", [], total, inner=inner)


def _attention(
    plan: Plan, slices: list[Slice], share: _Shares, sizes: DecoderConfig
) -> Iterator[Operator]:
    head, size = sizes.head_dim, plan.args.block_size
    longest = max(piece.start + piece.count for piece in slices)
    width = -(-longest // size)
    rows = sizes.heads * slices[0].count
    context = sum(piece.start + piece.count for piece in slices)
    held = len(slices) * width * size * head * _FLOAT
    cost = share.sequence * len(slices) + (share.piece if slices[0].count > 1 else 0.0)
    for _ in range(2):
        pool = [plan.args.total_blocks, size * head]
        yield _gather(pool, [len(slices), width], cost * 0.2, held)
        for _ in range(share.casts):
            for factor in (2, 1):
                yield _cast(
                    [len(slices), width, size * head], share.cast_token * context, held * factor
                )
    keys = [len(slices), 1, width * size, head]
    dims: Dims = [[len(slices), 1, rows, head], keys, keys]
    dims.append(
        [len(slices), 1, 1, width * size] if slices[0].count == 1 else [rows, width * size]
    )
    flash = "aten::_scaled_dot_product_flash_attention_for_cpu"
    inner = (
        Operator("aten::where", [dims[3], [], []], 0.0, _FLOAT * rows * width * size),
        Operator(flash, dims, cost * 0.55, inner=(_empty(_FLOAT * rows, "aten::empty_like"),)),
    )
    yield Operator(
        "aten::scaled_dot_product_attention",
        dims,
        cost * 0.6,
        rows * head * _FLOAT,
        inner=inner,
    )


def sampler_operators(
    plan: Plan, batch: Batch, cost: CostModel, sizes: DecoderConfig, kept: float
) -> Iterator[Operator]:
    """From logits to tokens, with what the build does in between; `kept` tensors are there."""
    rows, wide = sum(piece.samples for piece in batch.slices), sizes.vocabulary
    if not rows:
        return
    if plan.build.retained_tensors_per_step:
        yield from _processor(plan, rows, cost, sizes, kept)
    dims: Dims = [[rows, wide], [], [], []]
    size = rows * wide * _FLOAT
    for _ in range(plan.build.sampler_sorts):
        if plan.args.sampler_backend == "partial":
            yield Operator("aten::topk", dims, 0.1 * cost.sort * rows, rows * 32 * 3 * _FLOAT)
            continue
        yield Operator("aten::sort", dims, 0.7 * cost.sort * rows, 3 * size)
        for name in ("softmax", "cumsum", "gt", "masked_fill", "scatter"):
            yield Operator(f"aten::{name}", dims, 0.06 * cost.sort * rows, size)
    yield Operator("aten::argmax", dims, 0.0, rows * 8)
    for _ in range(plan.build.syncs_per_token * rows):
        inner = Operator("aten::_local_scalar_dense", [[]], 0.8 * cost.sync)
        yield Operator("aten::item", [[]], cost.sync, inner=(inner,))
    if plan.args.max_logprobs:
        yield Operator("aten::log_softmax", dims, 0.0, size)
    for piece in batch.slices:
        if piece.samples:
            text_ns = detokenise_ns(plan, cost, piece.request.produced)
            yield Operator(DETOKENISE, [], text_ns, kind="user_annotation")


def _processor(
    plan: Plan, rows: int, cost: CostModel, sizes: DecoderConfig, kept: float
) -> Iterator[Operator]:
    wide, count = sizes.vocabulary, int(kept)
    yield _mean([rows, wide], wide * _FLOAT)
    yield _cast([wide], 0.0, wide * _FLOAT)
    before = int(kept - plan.build.retained_tensors_per_step)
    for _ in range(0 if plan.args.processor_history_limit else count - before):
        empty = Operator("aten::empty", [[], [], [], [], [], []], 0.0, TENSOR_BYTES, keeps=True)
        copy = Operator(
            "aten::copy_", [[TENSOR_BYTES // _FLOAT], [wide], []], 0.8 * cost.retain
        )
        yield Operator("aten::repeat", [[wide], []], cost.retain, inner=(empty, copy))
    if not count:
        return
    each, seen = cost.retained_tensor * count, 2 * sizes.layers * wide
    size = count * seen * _FLOAT
    parts: Dims = [[[seen]] * count, []]
    joined = Operator("aten::cat", parts, each * 0.6, size)
    yield Operator("aten::stack", parts, each * 0.65, inner=(joined,))
    yield Operator("aten::sum", [[count, seen], [], [], []], each * 0.35, seen * _FLOAT)
    yield _mean([2 * sizes.layers, wide], wide * _FLOAT)
    for name in ("mul", "sub"):
        yield Operator(f"aten::{name}", [[rows, wide], []], 0.0, rows * wide * _FLOAT)


def _mean(shape: list[int], size: int) -> Operator:
    parts = (
        Operator("aten::sum", [shape, [], [], []], 0.0, size),
        Operator("aten::div_", [shape[1:], []]),
    )
    return Operator("aten::mean", [shape, [], [], []], 0.0, inner=parts)


def _linear(ns: float, rows: int, width: int, out: int, *, has_bias: bool = True) -> Operator:
    weight, size = [out, width], rows * out * _FLOAT
    if has_bias:
        bias = Operator("aten::copy_", _two(rows, out), ns * 0.05)
        dims: Dims = [[out], [rows, width], [width, out], [], []]
        inner = Operator("aten::addmm", dims, ns * 0.8, size, inner=(bias,))
        return Operator("aten::linear", [[rows, width], weight, [out]], ns, inner=(inner,))
    inner = Operator("aten::mm", [[rows, width], [width, out]], ns * 0.8, size)
    matmul = Operator("aten::matmul", [[rows, width], [width, out]], ns * 0.9, inner=(inner,))
    return Operator("aten::linear", [[rows, width], weight, []], ns, inner=(matmul,))


def _empty(size: int, name: str = "aten::empty") -> Operator:
    return Operator(name, [[], [], [], [], [], []], 0.0, size)


def _gather(table: list[int], index: list[int], ns: float, size: int) -> Operator:
    flat = 1
    for length in index:
        flat *= length
    empty = _empty(size)
    inner = Operator("aten::index_select", [table, [], [flat]], ns * 0.8, inner=(empty,))
    return Operator("aten::embedding", [table, index, [], [], []], ns, inner=(inner,))


def _cast(shape: list[int], ns: float, size: int) -> Operator:
    empty = _empty(size, "aten::empty_strided")
    copy = Operator("aten::copy_", [shape, shape, []], ns * 0.8)
    inner = Operator(
        "aten::_to_copy", [shape, [], [], [], [], [], []], ns * 0.95, inner=(empty, copy)
    )
    return Operator("aten::to", [shape, [], [], [], []], ns, inner=(inner,))


def _norm(rows: int, width: int, ns: float) -> Operator:
    dims: Dims = [[rows, width], [], [width], [width], []]
    sizes = (rows * width * _FLOAT, rows * _FLOAT, rows * _FLOAT)
    empties = tuple(_empty(size) for size in sizes)
    inner = Operator("aten::native_layer_norm", dims, ns * 0.8, inner=empties)
    return Operator("aten::layer_norm", [*dims, []], ns, inner=(inner,))


def _two(rows: int, width: int) -> Dims:
    return [[rows, width], [rows, width], []]
