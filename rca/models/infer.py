"""From what a bundle says of the healthy service to a workload that stands for it.

The model is small, so ratios are kept and sizes are not: how long answers are beside
prompts, how many seats and blocks there are for those who run, how much of the time the
engine works. What the bundle does not say is assumed, and the fidelity table says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rca.models.arms import run_twin
from rca.models.figures import Figures
from rca.models.settings import Plan
from rca.models.shapes import Shapes
from rca.models.sizes import DTYPES, DecoderConfig

_HIDDEN = 160  # about this wide: a step takes a millisecond on a CPU
_MOST_HEADS = 8
_SECONDS, _SEED = 30.0, 11
_SEARCH_STEPS = 5
_CLOSE = 1.25  # ratios that differ by less count as kept
_SEATS, _ROOM = (1.2, 5.0), (1.5, 8.0)  # beyond it nobody notices; below nothing is healthy
_BUDGET = (0.2, 2.2)  # of a prompt
_BUSY = (0.15, 0.95)
_FEW_RUNNING, _NEARLY_FULL = 8.0, 0.8
_NOT_RECORDED = "not recorded"
_HIDDEN_BY = (
    "no operator with shapes shows it (fused kernels or a CUDA graph), and no setting names it"
)


class FidelityRow(NamedTuple):
    """One quantity of the service beside the model's.

    Attributes:
        observed: of the bundle; None when it does not say.
        modelled: what the model has instead.
        kept: whether they agree; None for sizes, which are scaled on purpose.
        source: 'operators', 'configuration', 'spans', 'metrics' or 'assumed'.
        note: why they differ, or what was assumed.
        off: factor between both, at least 1; None where they are not ratios.
    """

    quantity: str
    observed: str | None
    modelled: str
    kept: bool | None
    source: str
    note: str
    off: float | None = None

    def shown(self) -> tuple[str, str | None, str, bool | None, str, str]:
        """As table trial_fidelity holds it."""
        return self[:6]


@dataclass(frozen=True)
class Facts:
    """What a bundle says of the healthy service; None where it is silent.

    Lengths are tokens, shares 0 … 1, rates for each second.
    """

    shapes: Shapes = field(default_factory=Shapes)
    settings: Mapping[str, str] = field(default_factory=dict)  # flag → value, dashes as '_'
    kv_blocks: int | None = None
    block_size: int | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    long_share: float | None = None  # requests more than twice as long as the median
    long_ratio: float | None = None  # their mean length, in means
    arrival_cv: float | None = None  # of the gaps between arrivals
    tenants: int | None = None
    prefix_share: float | None = None  # prompt tokens found in the prefix cache
    busy_share: float | None = None  # of the time in which the engine has work
    running: float | None = None  # requests at a time
    sources: Mapping[str, str] = field(default_factory=dict)  # field → where it was read


@dataclass(frozen=True)
class Workload:
    """A healthy service of the model's size, and how true to the bundle it is."""

    plan: Plan
    sizes: DecoderConfig
    fidelity: list[FidelityRow]


def infer(facts: Facts) -> Workload:
    """The workload that stands for a bundle's healthy service."""
    traffic = _traffic(facts, Plan())
    plan = _at_load(traffic, facts)
    shown = run_twin(plan, _SEED, _SECONDS)
    plan = _limits(facts, plan, shown)
    shown = run_twin(plan, _SEED, _SECONDS)
    sizes = _sizes(facts.shapes)
    dtype = known_shapes(facts.shapes, facts.settings)[0].dtype
    if dtype in DTYPES:
        sizes = replace(sizes, dtype=dtype)
    rows = [*_size_rows(facts, sizes), *_limit_rows(facts, plan, shown)]
    return Workload(plan, sizes, [*rows, *_traffic_rows(facts, plan, shown)])


def known_shapes(shapes: Shapes, settings: Mapping[str, str]) -> tuple[Shapes, set[str]]:
    """The sizes with what a model's configuration adds, and which ones it added.

    Args:
        shapes: what operators showed; it comes first.
        settings: keys of a Hugging Face config.json among others.
    """
    names = {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "ffn": "intermediate_size",
        "vocabulary": "vocab_size",
    }
    added: dict[str, int | str] = {}
    for name, key in names.items():
        if getattr(shapes, name) is None and settings.get(key, "").isdecimal():
            added[name] = int(settings[key])
    for key in ("torch_dtype", "dtype"):
        if shapes.dtype is None and settings.get(key, "auto") != "auto":
            added.setdefault("dtype", settings[key])
    return replace(shapes, **added), set(added)  # type: ignore[arg-type]


def _traffic(facts: Facts, plan: Plan) -> Plan:
    base = plan.traffic
    changes: dict[str, float] = {}
    own = base.prefix_tokens + base.unique_tokens
    if facts.prefix_share is not None:
        # The last block of a prefix is rarely found, and long prompts share no more.
        tokens = facts.prefix_share * mean_prompt(plan)
        changes["prefix_tokens"] = min(round(tokens / 16) * 16, own - 16)
        changes["unique_tokens"] = own - int(changes["prefix_tokens"])
    if facts.prompt_tokens and facts.output_tokens:
        wanted = facts.output_tokens / facts.prompt_tokens * mean_prompt(plan)
        changes["output_tokens"] = round(min(max(wanted, 6), 96))
    if facts.arrival_cv is not None:
        # Groups of mean size b with no gaps inside have CV² = 2b - 1.
        changes["burst_factor"] = min(max((facts.arrival_cv**2 + 1) / 2, 1.0), 10.0)
    if facts.long_share is not None:
        changes["long_share"] = min(facts.long_share, 0.5)
        if facts.long_ratio:
            own_part = facts.long_ratio * own - changes.get("prefix_tokens", base.prefix_tokens)
            changes["long_tokens"] = round(min(max(own_part, 100), 1200))
    if facts.tenants:
        changes["tenants"] = min(facts.tenants, 8)
    return plan.with_traffic(**changes)


def mean_prompt(plan: Plan) -> float:
    """Tokens of a prompt of the usual traffic, on average."""
    t = plan.traffic
    return t.prefix_tokens + (1 - t.long_share) * t.unique_tokens + t.long_share * t.long_tokens


def _at_load(plan: Plan, facts: Facts) -> Plan:
    """The plan at the rate that keeps the engine as busy as the service was.

    Near saturation the busy share hardly tells loads apart, and few requests at a time do.
    """
    base = Plan()
    target = facts.busy_share
    if target is None:
        target = run_twin(base, _SEED, _SECONDS)["busy_share"]
    target = _within(target, _BUSY)
    tells = (
        facts.running is not None and facts.running <= _FEW_RUNNING and target > _NEARLY_FULL
    )
    most = facts.running if facts.running and tells else math.inf
    low, high = 0.1, 12.0
    for _ in range(_SEARCH_STEPS):
        rate = (low * high) ** 0.5
        shown = run_twin(plan.with_traffic(rate_per_s=rate), _SEED, _SECONDS)
        is_idle = shown["busy_share"] < target and shown["running"] < most
        low, high = (rate, high) if is_idle else (low, rate)
    return plan.with_traffic(rate_per_s=round((low * high) ** 0.5, 2))


def _limits(facts: Facts, plan: Plan, shown: Figures) -> Plan:
    """Seats, token budget and pool, as much above what is used as the service's are."""
    changes: dict[str, int | float | bool] = {}
    running = max(shown["running"], 0.5)
    if (seats := _headroom(facts)) is not None:
        changes["max_num_seqs"] = min(max(round(_within(seats, _SEATS) * running), 4), 64)
    if (budget := _budget(facts)) is not None:
        prompt = shown["prompt_tokens"]
        changes["max_num_batched_tokens"] = max(24, round(_within(budget, _BUDGET) * prompt))
    if (room := _room(facts)) is not None:
        used = running * (shown["prompt_tokens"] + plan.traffic.output_tokens)
        blocks = _within(room, _ROOM) * used / plan.args.block_size
        # The longest prompt needs 60 blocks; more than all the memory there are not.
        changes["gpu_memory_utilization"] = round(min(max(blocks, 64), 348) / 348, 3)
    caching = facts.settings.get("enable_prefix_caching", "true").lower()
    changes["enable_prefix_caching"] = caching not in ("false", "0")
    return plan.with_args(**changes)


def _headroom(facts: Facts) -> float | None:
    seats = _number(facts.settings, "max_num_seqs")
    return seats / facts.running if seats and facts.running else None


def _budget(facts: Facts) -> float | None:
    budget = _number(facts.settings, "max_num_batched_tokens")
    return budget / facts.prompt_tokens if budget and facts.prompt_tokens else None


def _room(facts: Facts) -> float | None:
    """Tokens in the pool for each token of those who run, prompts and answers."""
    if not (facts.kv_blocks and facts.block_size and facts.running and facts.prompt_tokens):
        return None
    used = facts.running * (facts.prompt_tokens + (facts.output_tokens or 0.0))
    return facts.kv_blocks * facts.block_size / used


def scales(facts: Facts, plan: Plan) -> dict[str, float]:
    """What one of the service is in the model, for settings that count what was scaled.

    Args:
        facts: of the service.
        plan: the model's healthy service, as `infer` made it.
    """
    args = plan.args
    modelled: dict[str, tuple[float, float | None]] = {
        name: (getattr(args, name), _number(facts.settings, name))
        for name in ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
    }
    modelled["num_gpu_blocks"] = (args.total_blocks, facts.kv_blocks)
    for name in ("long_prefill_token_threshold", "max_prompt_tokens"):
        modelled[name] = (mean_prompt(plan), facts.prompt_tokens)
    return {name: here / there for name, (here, there) in modelled.items() if there}


def _number(settings: Mapping[str, str], key: str) -> float | None:
    try:
        return float(settings[key])
    except (KeyError, ValueError):
        return None


def _within(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def _sizes(shapes: Shapes) -> DecoderConfig:
    heads = shapes.heads or 4
    while heads > _MOST_HEADS:
        heads = -(-heads // 2)
    hidden = round(_HIDDEN / heads) * heads
    ratio = shapes.ffn / shapes.hidden if shapes.ffn and shapes.hidden else 4.0
    return DecoderConfig(
        layers=1, hidden=hidden, heads=heads, ffn=round(hidden * _within(ratio, (0.5, 8.0)))
    )


def _size_rows(facts: Facts, sizes: DecoderConfig) -> list[FidelityRow]:
    shapes, added = known_shapes(facts.shapes, facts.settings)
    pairs: list[tuple[str, str, object, object, str]] = [
        ("hidden", "hidden size", shapes.hidden, sizes.hidden, "scaled"),
        ("layers", "layers", shapes.layers, sizes.layers, "scaled: layers are alike"),
        ("heads", "attention heads", shapes.heads, sizes.heads, "scaled"),
        ("kv_heads", "key and value heads", shapes.kv_heads, 1, "heads share them here"),
        ("head_dim", "head width", shapes.head_dim, sizes.head_dim, "scaled"),
        ("ffn", "feed-forward width", shapes.ffn, sizes.wide, "scaled, ratio to hidden kept"),
        ("vocabulary", "vocabulary", shapes.vocabulary, sizes.vocabulary, "scaled"),
        ("dtype", "number format", shapes.dtype, sizes.dtype, _dtype_note(shapes, sizes)),
    ]
    rows = []
    for name, quantity, observed, modelled, note in pairs:
        source = "configuration" if name in added else "operators"
        told = note if observed is not None else f"assumed: {_HIDDEN_BY}"
        of_a_shard = (
            shapes.sharded and source == "operators" and name not in ("layers", "dtype")
        )
        if observed is not None and of_a_shard:
            told += "; collectives ran, so this may be one shard of it"
        rows.append(_row(quantity, observed, modelled, None, source, told))
    return rows


def _dtype_note(shapes: Shapes, sizes: DecoderConfig) -> str:
    if shapes.dtype != sizes.dtype:
        return "a CPU computes others too slowly"
    return "" if sizes.dtype == "float32" else "float32 where the processor does not have it"


def _row(
    quantity: str, observed: object, modelled: object, kept: bool | None, source: str, note: str
) -> FidelityRow:
    if observed is None:
        return FidelityRow(quantity, None, _shown(modelled), None, "assumed", note)
    return FidelityRow(quantity, _shown(observed), _shown(modelled), kept, source, note)


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _limit_rows(facts: Facts, plan: Plan, shown: Figures) -> list[FidelityRow]:
    args = plan.args
    running = max(shown["running"], 0.5)
    used = running * (shown["prompt_tokens"] + plan.traffic.output_tokens)
    pool = args.total_blocks * args.block_size / used
    budget = args.max_num_batched_tokens / shown["prompt_tokens"]
    beyond = "cut: beyond this nobody notices"
    return [
        _ratio("seats for each running request", _headroom(facts), args.max_num_seqs / running,
               "configuration", beyond, "max_num_seqs or running requests"),
        _ratio("token budget in prompts", _budget(facts), budget,
               "configuration", beyond, "max_num_batched_tokens or prompt lengths"),
        _ratio("KV pool in tokens of running requests", _room(facts), pool,
               facts.sources.get("kv_blocks", "configuration"), beyond, "size of the KV pool"),
    ]  # fmt: skip


def _traffic_rows(facts: Facts, plan: Plan, shown: Figures) -> list[FidelityRow]:
    ratio = None
    if facts.prompt_tokens and facts.output_tokens:
        ratio = facts.output_tokens / facts.prompt_tokens
    traffic = plan.traffic
    modelled = traffic.output_tokens / shown["prompt_tokens"]
    rows = [("answer tokens for each prompt token", ratio, modelled, "prompt_tokens")]
    rows += [("share of long prompts", facts.long_share, traffic.long_share, "long_share")]
    rows += [
        (label, getattr(facts, name), shown[figure], name)
        for label, name, figure in (
            ("prompt tokens found in the prefix cache", "prefix_share", "prefix_hit_rate"),
            ("variation of the gaps between arrivals", "arrival_cv", "arrival_cv"),
            ("share of time with work", "busy_share", "busy_share"),
        )
    ]
    found = [
        _ratio(label, observed, value, facts.sources.get(name, "spans"), "", label)
        for label, observed, value, name in rows
    ]
    note = "" if facts.tenants else f"assumed: tenants are {_NOT_RECORDED}"
    kept = facts.tenants == traffic.tenants if facts.tenants else None
    found.append(_row("tenants", facts.tenants, traffic.tenants, kept, "spans", note))
    note = "assumed: no recording names the prefixes that requests share"
    found.append(
        _row("groups that share a prefix", None, traffic.prefix_groups, None, "", note)
    )
    return found


def _ratio(
    quantity: str, observed: float | None, modelled: float, source: str, cut: str, lacking: str
) -> FidelityRow:
    """A row of a ratio that should be kept."""
    if observed is None:
        note = f"assumed: {lacking} {_NOT_RECORDED}"
        return _row(quantity, None, float(modelled), None, "assumed", note)
    small = 0.05  # shares below it are as good as none
    low, high = sorted((observed + small, modelled + small))
    kept = high <= _CLOSE * low
    note = "" if kept else cut or "the model's scale ends here"
    row = _row(quantity, float(observed), float(modelled), kept, source, note)
    return row._replace(off=high / low)
