"""The part of a what-if study that needs real tensors, measured on this device.

Settings take turns, so that a busy machine slows all of them alike; times are medians of
the CPU time of one call, with bootstrap intervals.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

from rca.models.decoder import Decoder, StepInput
from rca.models.figures import percentile
from rca.models.forward_proxy import ForwardProxy
from rca.models.op_counts import moved_bytes
from rca.models.quantised import FORMATS, in_format, stored_bytes
from rca.models.scheduler import Batch, Slice
from rca.models.settings import SECOND, Plan
from rca.models.step_input import step_input
from rca.models.what_if import Row
from rca.models.worker import Runtime, full_request
from rca.models.workload import arrivals, shared_prefix

_ROUNDS = 40
_RESAMPLES = 400
_REQUESTS = 120
_SEQUENCES = 4


def run_in_torch(study: str, healthy: Plan, made: Runtime) -> list[Row]:
    """Rows of 'kv' (layouts), 'cache' (the forward proxy) and 'quant'; empty for the others."""
    studies = {"kv": _layouts, "cache": _proxy, "quant": _quant}
    with torch.inference_mode():
        return studies[study](healthy, made) if study in studies else []


def _times(made: Runtime, calls: Mapping[str, Callable[[], object]]) -> dict[str, list[int]]:
    """CPU ns of each call, the calls taking turns."""
    found: dict[str, list[int]] = {name: [] for name in calls}
    order = random.Random(0)
    for number in range(_ROUNDS + 3):
        for name in order.sample(list(calls), len(calls)):
            begin = made.clock_ns()
            calls[name]()
            if number >= 3:  # the first calls pay for what torch does once
                found[name].append(made.clock_ns() - begin)
    return found


def _time_row(made: Runtime, setting: str, figure: str, values: Sequence[int]) -> Row:
    rng = random.Random(0)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    low, high = (percentile(medians, share) for share in (0.025, 0.975))
    return Row(
        setting, None, "torch", figure, median(values), "ns", low, high, device=made.name
    )


def _layouts(healthy: Plan, made: Runtime) -> list[Row]:
    """Keys of a token side by side, or strided over the pool, as attention reads them."""
    config, size = made.model.config, healthy.args.block_size
    width, blocks = config.head_dim, 15
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn((64 * size, width), generator=generator).to(made.device)
    side_by_side = whole.view(64, size * width)
    strided = whole.t().contiguous()  # (head_dim, tokens)
    tables = torch.arange(_SEQUENCES * blocks, device=made.device).view(_SEQUENCES, blocks)
    slots = (tables[:, :, None] * size + torch.arange(size, device=made.device)).flatten()
    query = torch.randn((_SEQUENCES, 1, config.heads, width), generator=generator)
    query = query.to(made.device)

    def read(keys: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, keys, keys)

    calls = {
        "layout=contiguous": lambda: read(
            F.embedding(tables, side_by_side).view(_SEQUENCES, 1, -1, width)
        ),
        "layout=strided": lambda: read(
            strided.index_select(1, slots).t().contiguous().view(_SEQUENCES, 1, -1, width)
        ),
    }
    times = _times(made, calls)
    best = min(times, key=lambda name: median(times[name]))
    rows = []
    for name, call in calls.items():
        moved = moved_bytes(call)
        rows += [
            _time_row(made, name, "attention_read", times[name]),
            Row(name, None, "torch", "bytes_moved", moved.nbytes, "bytes", device=made.name),
            Row(name, None, "torch", "copies", moved.copies, "count", device=made.name),
        ]
    return [row._replace(recommended=row.setting == best) for row in rows]


def _proxy(healthy: Plan, made: Runtime) -> list[Row]:
    """Prefixes computed anew for each request, and through a memoising proxy."""
    asked = list(arrivals(healthy.traffic, 5, 0, 600 * SECOND))[:_REQUESTS]
    length = max(healthy.traffic.prefix_tokens, 16)
    inputs = [torch.tensor(shared_prefix(a.group, length), device=made.device) for a in asked]

    def forward(tokens: Tensor) -> Tensor:
        step = _prefill(made, tokens.tolist(), healthy.args.block_size)
        out: Tensor = made.model(step)
        return out

    proxy = ForwardProxy(forward, "r14")
    times: dict[str, list[int]] = {"off": [], "on": []}
    forward(inputs[0])
    for tokens in inputs:
        for name, call in (("off", forward), ("on", proxy)):
            begin = made.clock_ns()
            call(tokens)
            times[name].append(made.clock_ns() - begin)
    rates = {"off": 0.0, "on": proxy.hits / len(inputs)}
    proxy.version, before = "r15", proxy.hits
    distinct = {tuple(tokens.tolist()): tokens for tokens in inputs}
    for tokens in distinct.values():
        proxy(tokens)
    rows = []
    for name, values in times.items():
        setting = f"forward_proxy={name}"
        better = sum(values) == min(sum(v) for v in times.values())
        for figure, value in (
            ("mean", sum(values) / len(values)),
            ("p99", percentile(values, 0.99)),
        ):
            rows.append(
                Row(setting, None, "torch", f"prefix_forward_{figure}", value, "ns",
                    recommended=better, device=made.name)
            )  # fmt: skip
        rows.append(
            Row(setting, None, "torch", "proxy_hit_rate", rates[name], "share",
                recommended=better, device=made.name)
        )  # fmt: skip
    stale = (proxy.hits - before) / len(distinct)
    rows.append(
        Row("forward_proxy=on, a new model version", None, "torch", "proxy_hit_rate", stale,
            "share", device=made.name)
    )  # fmt: skip
    return rows


def _prefill(made: Runtime, tokens: list[int], block_size: int) -> StepInput:
    """A step that computes a whole prompt and asks for the logits of each row."""
    request = full_request(0)
    request.tokens = tokens
    request.blocks = list(range(-(-len(tokens) // block_size)))
    step = step_input(
        Batch([Slice(request, 0, len(tokens))]),
        block_size=block_size,
        heads=made.model.config.heads,
        device=made.device,
    )
    step.last_rows = torch.arange(len(tokens), device=made.device)
    return step


def _quant(healthy: Plan, made: Runtime) -> list[Row]:
    """Latency of each number format against how far its answers move."""
    size = healthy.args.block_size
    prompts = [list(a.prompt[:224]) for a in arrivals(healthy.traffic, 5, 0, 30 * SECOND)][:8]
    prefills = [_prefill(made, prompt, size) for prompt in prompts]
    decode = step_input(
        Batch([Slice(full_request(n), 224, 1) for n in range(_SEQUENCES)]),
        block_size=size,
        heads=made.model.config.heads,
        device=made.device,
    )
    models = {name: in_format(made.model, name) for name in FORMATS}
    for model in models.values():
        model.new_pool(healthy.args.total_blocks)
    logits = {name: _logits(model, prefills) for name, model in models.items()}
    times = _times(made, {name: _call(model, decode) for name, model in models.items()})
    prefill = _times(made, {name: _call(model, prefills[0]) for name, model in models.items()})
    points = {
        name: (median(times[name]), _kl(logits["float32"], logits[name])) for name in FORMATS
    }
    rows = []
    for name in FORMATS:
        setting = f"format={name}"
        same = logits[name].argmax(-1) == logits["float32"].argmax(-1)
        rows += [
            _time_row(made, setting, "decode_step", times[name]),
            _time_row(made, setting, "prefill_step", prefill[name]),
            Row(setting, None, "torch", "kl_to_float32", points[name][1], "nat"),
            Row(setting, None, "torch", "top1_agreement", same.float().mean().item(), "share"),
            Row(setting, None, "torch", "model_bytes", stored_bytes(models[name]), "bytes"),
        ]
    front = pareto(points)
    return [
        row._replace(recommended=row.setting.removeprefix("format=") in front, device=made.name)
        for row in rows
    ]


def pareto(points: Mapping[str, tuple[float, float]]) -> set[str]:
    """Names of the points that no other is better than in both coordinates; less is better."""
    return {
        name
        for name, (x, y) in points.items()
        if not any(
            a <= x and b <= y and (a, b) != (x, y)
            for other, (a, b) in points.items()
            if other != name
        )
    }


def _call(model: Decoder, step: StepInput) -> Callable[[], Tensor]:
    def call() -> Tensor:
        out: Tensor = model(step)
        return out

    return call


def _logits(model: Decoder, steps: Sequence[StepInput]) -> Tensor:  # (all rows, vocabulary)
    return torch.cat([model(step).float() for step in steps])


def _kl(exact: Tensor, cheap: Tensor) -> float:
    """Mean Kullback-Leibler divergence of the cheap answer from the exact one, in nats."""
    p, q = torch.log_softmax(exact.double(), -1), torch.log_softmax(cheap.double(), -1)
    return max(0.0, (p.exp() * (p - q)).sum(-1).mean().item())
