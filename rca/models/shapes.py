"""From operators with shapes to the sizes of the model that ran.

The matrices of the linear layers tell nearly everything: the width that most of them read
or write is the residual stream; the one that leads to as many columns as an embedding has
rows is the head, called once a step. What fused kernels and CUDA graphs hide stays None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "signed char": "int8",
}
_LOGITS = ("aten::argmax", "aten::log_softmax", "fused_gumbel_argmax")
_SHARDED = ("all_reduce", "allreduce", "reduce_scatter", "all_gather", "nccl")
_CUT = 0.02  # a trace may begin or end inside a step

Shape = Sequence[int]
Weight = tuple[int, int]  # columns in, columns out


class ShapedOp(NamedTuple):
    """Calls of one operator with the same shapes."""

    name: str
    dims: Sequence[object]  # of each input, as the profiler has it
    types: Sequence[str]
    calls: int

    def shape(self, index: int) -> Shape:
        """Shape of an input; empty when it is no tensor."""
        found = self.dims[index] if index < len(self.dims) else ()
        whole = isinstance(found, list) and all(isinstance(n, int) for n in found)
        return found if whole and isinstance(found, list) else ()


@dataclass(frozen=True)
class Shapes:
    """Sizes of a decoder; None where the trace does not show them."""

    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    gated: bool | None = None
    vocabulary: int | None = None
    dtype: str | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    sharded: bool = False  # collectives ran: sizes may be those of one shard


class _Heads(NamedTuple):
    queries: int
    keys: int
    width: int


def infer(ops: Iterable[ShapedOp]) -> Shapes:
    """The sizes that the operators of one process show.

    Args:
        ops: operators with the shapes of their inputs, equal ones counted.
    """
    ops = list(ops)
    weights = _weights(ops)
    hidden = _residual(weights) or _norm_width(ops)
    vocabulary, steps = _vocabulary(ops, weights, hidden)
    layered = Counter({w: n for w, n in weights.items() if w[1] != vocabulary})
    heads = _heads(ops, layered, hidden)
    width = heads.queries * heads.width if heads else None
    ffn, gated, calls = _feed_forward(layered, hidden, width)
    calls = calls or sum(op.calls for op in ops if _is_attention(op))
    blocks = _pool(ops)
    return Shapes(
        hidden=hidden,
        layers=_layers(calls, steps),
        heads=heads.queries if heads else None,
        kv_heads=heads.keys if heads else None,
        head_dim=heads.width if heads else None,
        ffn=ffn,
        gated=gated,
        vocabulary=vocabulary,
        dtype=_dtype(ops),
        kv_blocks=blocks[0] if blocks else None,
        block_size=blocks[1] if blocks else None,
        sharded=any(word in op.name.lower() for op in ops for word in _SHARDED),
    )


def _weight(op: ShapedOp) -> Weight | None:
    """Columns in and out of a matrix product with a weight."""
    first, second, third = (op.shape(index) for index in range(3))
    if op.name in ("aten::linear", "vllm::rocm_unquantized_gemm") and len(second) == 2:
        return second[1], second[0]
    if op.name == "aten::addmm" and len(third) == 2:
        return third[0], third[1]
    if op.name in ("aten::mm", "aten::_scaled_mm") and len(second) == 2:
        return second[0], second[1]
    if op.name == "_C::onednn_mm" and first and second:
        return second[-1], first[-1]
    if op.name == "_C::cutlass_scaled_mm" and len(third) == 2:
        return third[0], third[1]
    return None


def _weights(ops: Sequence[ShapedOp]) -> Counter[Weight]:
    # A linear layer calls addmm or mm: where linear was recorded they would count twice.
    names = {op.name for op in ops}
    inner = {"aten::addmm", "aten::mm"} if "aten::linear" in names else set()
    if "aten::linear" in names:
        inner.add("vllm::rocm_unquantized_gemm")
    found: Counter[Weight] = Counter()
    for op in ops:
        weight = None if op.name in inner else _weight(op)
        if weight and min(weight) > 1:
            found[weight] += op.calls
    return found


def _residual(weights: Counter[Weight]) -> int | None:
    reads: dict[int, set[int]] = {}
    writes: dict[int, set[int]] = {}
    for wide_in, wide_out in weights:
        reads.setdefault(wide_in, set()).add(wide_out)
        writes.setdefault(wide_out, set()).add(wide_in)

    def importance(width: int) -> tuple[int, int, int]:
        read = reads.get(width, set())
        return len(read) + len(writes.get(width, ())), len(read), -width

    return max(sorted(reads.keys() | writes.keys()), key=importance, default=None)


def _norm_width(ops: Sequence[ShapedOp]) -> int | None:
    widths: Counter[int] = Counter()
    for op in ops:
        shape = op.shape(0)
        if "norm" in op.name and len(shape) in (2, 3):
            widths[shape[-1]] += op.calls
    return widths.most_common(1)[0][0] if widths else None


def _vocabulary(
    ops: Sequence[ShapedOp], weights: Counter[Weight], hidden: int | None
) -> tuple[int | None, int]:
    """Rows of the embedding, and how many steps the trace has."""
    tables: Counter[int] = Counter()
    logits: Counter[int] = Counter()
    for op in ops:
        shape = op.shape(0)
        if op.name == "aten::embedding" and len(shape) == 2 and shape[1] == hidden:
            tables[shape[0]] += op.calls
        if op.name.endswith(_LOGITS) and len(shape) == 2:
            logits[shape[1]] += op.calls
    heads = {out: calls for (wide_in, out), calls in weights.items() if wide_in == hidden}
    known = [size for size in heads if size in tables or size in logits]
    if known:
        size = max(known)
        return size, heads[size]
    if tables:
        size = max(tables)
        return size, tables[size]
    if logits:
        size = max(logits)
        return size, logits[size]
    # Without either, what is called least and is wider than the stream; not the projection
    # to queries, keys and values, though.
    seen = _seen_heads(ops)
    if seen:
        heads.pop((seen.queries + 2 * seen.keys) * seen.width, None)
    largest = max(heads, default=0)
    if hidden and largest > hidden and heads[largest] == min(weights.values()):
        return largest, heads[largest]
    return None, 0


def _is_attention(op: ShapedOp) -> bool:
    return _queries(op) is not None


def _queries(op: ShapedOp) -> _Heads | None:
    """Heads as an attention operator counts them."""
    query, key = op.shape(0), op.shape(1)
    if op.name == "aten::scaled_dot_product_attention" and len(query) == len(key) == 4:
        return _Heads(query[1], key[1], query[3])
    varlen = "unified_attention" in op.name or "varlen_fwd" in op.name
    if varlen and len(query) == len(key) == 3:
        return _Heads(query[1], key[1], query[2])
    return None


def _seen_heads(ops: Sequence[ShapedOp]) -> _Heads | None:
    counted: Counter[_Heads] = Counter()
    for op in ops:
        if found := _queries(op):
            counted[found] += op.calls
    return counted.most_common(1)[0][0] if counted else None


def _heads(
    ops: Sequence[ShapedOp], weights: Counter[Weight], hidden: int | None
) -> _Heads | None:
    seen = _seen_heads(ops)
    if seen is None:
        return None
    outs = {wide_in for wide_in, out in weights if out == hidden}
    if not outs or seen.queries * seen.width in outs:
        return seen
    # Heads that share keys may be rows of one query: then the projections tell their number.
    pairs = 2 * seen.keys * seen.width
    folded = [
        out - pairs
        for wide_in, out in weights
        if wide_in == hidden and out - pairs in outs and (out - pairs) % seen.width == 0
    ]
    return seen._replace(queries=min(folded) // seen.width) if folded else seen


def _feed_forward(
    weights: Counter[Weight], hidden: int | None, attention: int | None
) -> tuple[int | None, bool | None, int]:
    """Width, whether it is gated, and calls of the matrix that leads back."""
    best: tuple[int, bool, int] | None = None
    for (width, out), calls in sorted(weights.items()):
        if out != hidden or hidden is None:
            continue
        # A query as wide as the stream has matrices of its own shape four times a layer.
        if width == attention or (attention is None and width == hidden):
            continue
        single, double = weights[hidden, width], weights[hidden, 2 * width]
        if not single and not double:
            continue
        gated = bool(double) or single >= 2 * calls
        if best is None or calls > best[2] or (calls == best[2] and width > best[0]):
            best = (width, gated, calls)
    return best or (None, None, 0)


def _layers(calls: int, steps: int) -> int | None:
    if not calls or not steps:
        return None
    ratio = calls / steps
    whole = round(ratio)
    return whole if whole and abs(ratio - whole) <= _CUT * whole + 1 / steps else None


def _dtype(ops: Sequence[ShapedOp]) -> str | None:
    seen: Counter[str] = Counter()
    for op in ops:
        if _weight(op) and op.types and op.types[0] in _DTYPES:
            seen[_DTYPES[op.types[0]]] += op.calls
    return seen.most_common(1)[0][0] if seen else None


def _pool(ops: Sequence[ShapedOp]) -> tuple[int, int] | None:
    """Blocks of the KV pool and tokens in each, where an operator is given the pool."""
    for op in ops:
        pool, new = op.shape(2), op.shape(0)
        if "reshape_and_cache" in op.name and len(pool) == 4 and len(new) == 3:
            tokens = [n for n in pool[1:3] if n != new[1]]
            if pool[3] == new[2] and len(tokens) == 1:
                return pool[0], tokens[0]
    return None
