"""Other settings tried on the incident's own workload; every figure is of the model.

Queueing is the twin's: the same scheduler, exact counts, the same answer each time. What
depends on real tensors is measured in torch, in `what_if_torch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rca.models.arms import run_twin
from rca.models.cache_policies import Stream, replay
from rca.models.settings import SECOND, Plan
from rca.models.slo import LEAST_SHARE, Cell, Objective, measure, objective_of, p99
from rca.models.workload import arrivals

STUDIES = ("batch", "kv", "cache", "priority", "replicas", "quant")
TWIN = "twin, cost model of a CPU"
RECORDED = "none: recorded keys in their order, replayed"
_FEWEST_KEYS = 50
_SEED = 23
_SECONDS = 60.0
_LOADS = (0.5, 0.75, 1.0, 1.25, 1.5)
_URGENT = (0.05, 0.2)
_STREAM_S = 600


class Row(NamedTuple):
    """One figure of one setting."""

    setting: str
    load: float | None  # arrival rate in healthy ones
    engine: str
    figure: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    recommended: bool = False
    device: str = TWIN


def run_in_twin(
    study: str, healthy: Plan, incident_load: float = 1.0, keys: Stream = ()
) -> list[Row]:
    """The part of a study that needs no torch.

    Args:
        study: one of STUDIES.
        healthy: the service before the incident.
        incident_load: arrivals during the incident, in healthy ones.
        keys: of caches, as the incident asked for them; a drawn stream stands for them where
            there are too few to tell policies apart.
    """
    studies: dict[str, Callable[[Plan, float], list[Row]]] = {
        "batch": _batch,
        "kv": _pool,
        "cache": lambda plan, _load: _cache(plan, keys),
        "priority": _priority,
        "replicas": _replicas,
    }
    return studies[study](healthy, incident_load) if study in studies else []


def _batch(healthy: Plan, incident_load: float) -> list[Row]:
    """Batch cap and token budget against arrival rate."""
    objective = objective_of(healthy, _SEED)
    cells: dict[tuple[int, int, float], Cell] = {}
    for seats in _around(healthy.args.max_num_seqs, (0.125, 0.25, 0.5, 1, 2)):
        for budget in _around(healthy.args.max_num_batched_tokens, (0.5, 1, 2, 4)):
            for load in _loads(incident_load):
                plan = _loaded(
                    healthy.with_args(max_num_seqs=seats, max_num_batched_tokens=budget), load
                )
                cells[seats, budget, load] = measure(plan, _SEED, objective)
    best = _best(cells)
    return [
        row
        for (seats, budget, load), cell in cells.items()
        for row in _cell_rows(
            f"max_num_seqs={seats} max_num_batched_tokens={budget}",
            load,
            cell,
            (seats, budget, load) == best,
        )
    ]


def _best(cells: dict[tuple[int, int, float], Cell]) -> tuple[int, int, float] | None:
    """Among those that surely keep the objective the most throughput, then the smallest."""
    sure = {key: cell for key, cell in cells.items() if cell.interval[0] >= LEAST_SHARE}
    if not sure:
        return None
    most = max(cell.throughput for cell in sure.values())
    return min(key for key, cell in sure.items() if cell.throughput >= 0.99 * most)


def _around(value: int, factors: Sequence[float]) -> list[int]:
    return sorted({max(1, round(value * factor)) for factor in factors})


def _loads(incident_load: float) -> list[float]:
    extra = () if 0.9 < incident_load < 1.1 else (round(min(incident_load, 3.0), 2),)
    return sorted({*_LOADS, *extra})


def _loaded(plan: Plan, load: float) -> Plan:
    return plan.with_traffic(rate_per_s=plan.traffic.rate_per_s * load)


def _cell_rows(
    setting: str, load: float, cell: Cell, recommended: bool = False
) -> Iterator[Row]:
    low, high = cell.interval
    yield Row(setting, load, "twin", "slo_share", cell.share, "share", low, high, recommended)
    for figure, value, unit in (
        ("throughput", cell.throughput, "tokens/s"),
        ("ttft_p99", p99(cell.ttft), "ns"),
        ("e2e_p99", p99(cell.e2e), "ns"),
        ("requests", float(cell.requests), "count"),
    ):
        yield Row(setting, load, "twin", figure, value, unit, recommended=recommended)


def _pool(healthy: Plan, incident_load: float) -> list[Row]:
    """The KV pool's size; the smallest that keeps the objective at the incident's load."""
    objective = objective_of(healthy, _SEED)
    wanted = max(1.0, round(incident_load, 2))
    rows: list[Row] = []
    recommended = False
    for blocks in _around(healthy.args.total_blocks, (0.2, 0.35, 0.5, 0.75, 1, 1.5)):
        plan = healthy.with_args(num_gpu_blocks=max(44, blocks))
        for load in sorted({1.0, wanted}):
            cell = measure(_loaded(plan, load), _SEED, objective)
            fits = load == wanted and cell.interval[0] >= LEAST_SHARE and not recommended
            recommended |= fits
            setting = f"num_gpu_blocks={plan.args.num_gpu_blocks}"
            rows += _cell_rows(setting, load, cell, fits)
            rows += _figures(setting, _loaded(plan, load), load, fits, _POOL_FIGURES)
    return rows


_POOL_FIGURES = {
    "preemptions_per_request": "count",
    "prefix_hit_rate": "share",
    "kv_usage": "share",
}


def _figures(
    setting: str, plan: Plan, load: float, recommended: bool, units: dict[str, str]
) -> list[Row]:
    shown = run_twin(plan, _SEED, _SECONDS)
    return [
        Row(setting, load, "twin", figure, shown[figure], unit, recommended=recommended)
        for figure, unit in units.items()
    ]


def _cache(healthy: Plan, keys: Stream) -> list[Row]:
    """The prefix cache on and off, and a stream of keys under three policies."""
    objective = objective_of(healthy, _SEED)
    rows: list[Row] = []
    cells = {
        on: measure(healthy.with_args(enable_prefix_caching=on), _SEED, objective)
        for on in (True, False)
    }
    for on, cell in cells.items():
        better = on is max(cells, key=lambda key: (cells[key].share, key))
        setting = f"enable_prefix_caching={str(on).lower()}"
        rows += _cell_rows(setting, 1.0, cell, better)
        plan = healthy.with_args(enable_prefix_caching=on)
        units = {"prefix_hit_rate": "share", "ttft_p50": "ns", "e2e_p50": "ns"}
        rows += _figures(setting, plan, 1.0, better, units)
    return rows + _policies(healthy, keys)


def tells_policies(keys: Stream) -> bool:
    """Whether a recorded stream is long enough to be replayed."""
    return len(keys) >= _FEWEST_KEYS


def _policies(healthy: Plan, keys: Stream) -> list[Row]:
    is_recorded = tells_policies(keys)
    stream = keys if is_recorded else key_stream(healthy)
    named, device = ("recorded", RECORDED) if is_recorded else ("drawn", TWIN)
    uses = Counter(key for _, key in stream)
    shared = sum(count > 1 for count in uses.values())
    rows: list[Row] = []
    for capacity in sorted({max(1, round(shared * part)) for part in (0.25, 0.5, 1.0)}):
        found = replay(stream, capacity)
        best = max(found, key=lambda one: one.hits)
        rows += [
            Row(
                f"policy={one.policy} entries={capacity} keys={named}",
                None if is_recorded else 1.0,
                "replay" if is_recorded else "twin",
                "key_hit_rate",
                one.hit_rate,
                "share",
                recommended=one is best,
                device=device,
            )
            for one in found
        ]
    return rows


def key_stream(healthy: Plan) -> Stream:
    """Prefix keys as requests ask for them; every eighth asks for one that never comes back.

    Groups are drawn as the workload draws them; a scan of single keys is what tells
    policies apart.
    """
    end_ns = _STREAM_S * SECOND
    return [
        (a.at_ns, a.group if a.index % 8 else f"once-{a.index}")
        for a in arrivals(healthy.traffic, _SEED, 0, end_ns)
    ]


def _priority(healthy: Plan, incident_load: float) -> list[Row]:
    """An urgent lane: whom it serves, and what the others pay."""
    rows: list[Row] = []
    objective = objective_of(healthy, _SEED)
    for load in sorted({1.0, 1.5, round(max(1.0, incident_load), 2)}):
        for share in _URGENT:
            before: float | None = None
            for lane in (False, True):
                plan = _loaded(healthy, load).with_traffic(urgent_share=share)
                plan = plan.with_args(priority_scheduling=lane)
                cell = measure(plan, _SEED, objective, requests=400)
                setting = f"priority_scheduling={str(lane).lower()} urgent_share={share:g}"
                found = list(_lane_rows(setting, load, cell, objective))
                in_time = next((r.value for r in found if r.figure == "urgent_in_time"), 0.0)
                helps = before is not None and in_time > before
                rows += [row._replace(recommended=helps) for row in found]
                before = in_time
    return rows


def _lane_rows(setting: str, load: float, cell: Cell, objective: Objective) -> Iterator[Row]:
    for name in ("urgent", "other"):
        ttft = [
            ns
            for ns, request in zip(cell.ttft, cell.requests_seen, strict=True)
            if request.arrival.is_urgent is (name == "urgent")
        ]
        if not ttft:
            continue
        ordered = sorted(ttft)
        yield Row(setting, load, "twin", f"{name}_ttft_p50", ordered[len(ttft) // 2], "ns")
        yield Row(setting, load, "twin", f"{name}_ttft_p95", p_at(ordered, 0.95), "ns")
        kept = sum(ns <= objective.ttft_ns for ns in ttft) / len(ttft)
        yield Row(setting, load, "twin", f"{name}_in_time", kept, "share")


def p_at(ordered: Sequence[int], share: float) -> float:
    """A percentile of sorted values."""
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _replicas(healthy: Plan, incident_load: float) -> list[Row]:
    """The fewest replicas that keep the objective at each load."""
    objective = objective_of(healthy, _SEED)
    rows: list[Row] = []
    for load in sorted({1.0, 1.5, 2.0, round(max(1.0, min(incident_load, 6.0)), 2)}):
        recommended = False
        for count in (1, 2, 3, 4, 6):
            plan = _loaded(healthy, load).with_args(replicas=count)
            cell = measure(plan, _SEED, objective)
            fits = cell.interval[0] >= LEAST_SHARE and not recommended
            recommended |= fits
            rows += _cell_rows(f"replicas={count}", load, cell, fits)
    return rows
