"""Numbers of a run, and how they compare: the same keys for torch, twin and incident.

Latencies are virtual ns in a run and may be in any unit in an incident: only ratios are
compared. `log_ratios` is the one way to compare; small floors keep zeros finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rca.models.engine import Engine
from rca.models.gateway import Admission, Request
from rca.models.scheduler import Batch
from rca.models.settings import SECOND
from rca.models.workload import COLD_TENANT

# Key → the amount that counts as nothing, in the key's own unit.
FLOORS: dict[str, float] = {
    "ttft_p50": 0.0,
    "ttft_p99": 0.0,
    "itl_p50": 0.0,
    "itl_p99": 0.0,
    "e2e_p50": 0.0,
    "e2e_p99": 0.0,
    "request_p50": 0.0,  # at the gateway, with everything before the engine
    "dependency_p50": 0.0,
    "dependency_calls_per_request": 0.0,
    "dependency_wait": 0.0,
    "frontend_wait": 0.0,
    "engine_gap": 0.0,  # between the gateway's call and the engine's span
    "tcp_retransmits": 0.2,  # a second
    "replica_skew": 0.0,  # the busier replica's load, in means
    "cfs_throttling": 0.02,  # share of the periods of a CPU limit
    "sm_clock": 0.0,
    "gpu_throttled": 0.05,
    "tokenise_time": 0.0,  # before a request stands in the engine's queue
    "schema_cost": 0.5,  # first token of structured answers, in those of the others
    "cache_hit_rate": 0.05,
    "version_skew": 0.05,
    "cores_used": 0.05,
    "process_cpu": 0.05,  # cores, of all the time
    "itl_by_length": 0.0,  # of requests with long answers, beside those with short ones
    "response_bytes": 0.0,
    "queue_mean": 0.0,
    "preemptions_per_request": 0.02,
    "recomputed_per_output": 0.1,
    "prefix_hit_rate": 0.05,
    "evictions_per_request": 0.5,
    "kv_usage": 0.02,
    "kv_blocks": 1.0,  # of the pool, taken or not
    "running": 0.2,
    "waiting": 0.2,
    "prompt_tokens": 1.0,
    "arrival_rate": 0.0,
    "arrival_cv": 0.1,
    "grown_tenants": 0.1,  # share of the prompt tokens by tenants that send twice their healthy share
    "memory_growth": 0.02,  # share of the resident memory, per minute
    "full_collections_per_step": 0.002,
    "ops_per_token": 0.0,
    "gemm_rows_per_token": 0.0,
    "allocations_per_token": 0.0,
    "syncs_per_token": 0.5,
    # Calls for each matrix multiplication, as of the roles of that name; healthy steps copy once.
    "op_copies": 1.0,
    "op_converts": 0.05,
    "op_sorts": 0.05,
    "op_syncs": 0.05,
    "op_compiles": 0.05,
    "ops_per_step": 0.0,
    "allocations_per_step": 0.0,
    "queue_with_free_seats": 0.05,  # share of time; the cap and the pool have room
    "queue_with_free_blocks": 0.05,  # share of time; the pool has room, the cap may have none
    "tokens_per_step": 0.0,
    "tokens_per_step_max": 0.0,
}
# Figures of the requests alone, whatever serves them.
ASKED = frozenset({"arrival_rate", "arrival_cv", "prompt_tokens", "grown_tenants"})
# A wait shorter than a tenth of a healthy first token is no wait.
_SHARES_OF_TTFT = frozenset(
    {"queue_mean", "dependency_wait", "frontend_wait", "tokenise_time", "engine_gap"}
)
_WAIT_FLOOR_SHARE = 0.1
_FEW_OF_A_KIND = 8
POOL_FULL = 0.9
_POOL_HAS_ROOM = 0.7  # as the role `waiting_with_room` has it
LARGEST = math.log(10.0)

Figures = dict[str, float]


def log_ratios(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Natural logs of after / before for the keys both have, clipped at a factor of 10.

    Give incident and healthy figures to it; the result is what `experiment.run` takes as
    `observed`. Unknown keys and values that are not finite are left out.
    """
    found: dict[str, float] = {}
    for key, floor in FLOORS.items():
        if key not in after or key not in before:
            continue
        high, low = after[key], before[key]
        nothing = floor
        if key in _SHARES_OF_TTFT:
            nothing = _WAIT_FLOOR_SHARE * before.get("ttft_p50", 0.0)
        if not (math.isfinite(high) and math.isfinite(low)):
            continue
        high, low = max(high, 0.0) + nothing, max(low, 0.0) + nothing
        if high > 0 and low > 0:
            found[key] = min(max(math.log(high / low), -LARGEST), LARGEST)
    return found


@dataclass
class Recorder:
    """An observer that keeps what figures need, from `from_ns` on."""

    from_ns: int = 0
    admission: Admission | None = None
    finished: list[Request] = field(default_factory=list)
    aborted: list[Request] = field(default_factory=list)
    _weight_ns: int = 0
    _running: float = 0.0
    _waiting: float = 0.0
    _usage: float = 0.0
    _held: float = 0.0
    _capped: float = 0.0
    _tokens: list[int] = field(default_factory=list)
    _memory: list[tuple[int, int]] = field(default_factory=list)
    _at_start: dict[str, float] = field(default_factory=dict)

    def scrape(self, engine: Engine, at_ns: int) -> None:
        """Note the memory."""
        if at_ns >= self.from_ns:
            self._memory.append((at_ns, engine.worker.live_bytes()))

    def step(self, engine: Engine, batch: Batch, cost_ns: int) -> None:
        """Weigh the gauges with the step's time."""
        if engine.now_ns < self.from_ns:
            return
        if not self._at_start:
            self._at_start = _totals(engine)
        self._tokens.append(batch.tokens)
        scheduler = engine.scheduler
        has_seat = len(scheduler.running) < engine.plan.args.max_num_seqs
        if scheduler.waiting and has_seat and scheduler.pool.usage < POOL_FULL:
            self._held += cost_ns
        if scheduler.waiting and scheduler.pool.usage < _POOL_HAS_ROOM:
            self._capped += cost_ns
        self._weight_ns += cost_ns
        self._running += cost_ns * len(engine.scheduler.running)
        self._waiting += cost_ns * len(engine.scheduler.waiting)
        self._usage += cost_ns * engine.scheduler.pool.usage

    def finish(self, engine: Engine, request: Request) -> None:
        """Keep a finished request."""
        if request.ready_ns >= self.from_ns:
            (self.aborted if request.was_aborted else self.finished).append(request)

    def figures(self, engine: Engine) -> dict[str, float]:
        """What the run shows; keys of FLOORS, those of operators excepted, and the price."""
        queue = [*engine.scheduler.waiting, *engine.scheduler.running]
        open_now = [r for r in queue if r.ready_ns >= self.from_ns]
        found = _latencies(self.finished, open_now, engine.now_ns)
        found |= _arrivals([*self.finished, *self.aborted, *open_now, *self._coming(engine)])
        found |= self._counted(engine)
        found |= self._of_the_host(engine)
        found |= self.admission.given_up() if self.admission else {}
        found["grown_tenants"] = _grown_tenants(self.finished)
        found["busy_share"] = self._weight_ns / max(engine.now_ns - self.from_ns, 1)
        found["memory_growth"] = _growth_per_minute(self._memory)
        return found

    def _of_the_host(self, engine: Engine) -> dict[str, float]:
        """What exporters of machines and network would show; a router is seen before the replicas."""
        host, seconds = engine.plan.host, max(engine.now_ns - self.from_ns, 1) / SECOND
        found = {
            "sm_clock": host.clock_share,
            "gpu_throttled": float(host.clock_share < 1),
            "cfs_throttling": 0.0,
            "tcp_retransmits": 0.0,
            "replica_skew": 1.0,
        }
        if engine.quota:
            found["cfs_throttling"] = engine.quota.throttled / max(engine.quota.periods, 1)
        if self.admission:
            requests = self.admission.requests
            found["tcp_retransmits"] = sum(r.resent for r in requests) / seconds
            found["replica_skew"] = self.admission.skew
            if host.has_router:
                found |= _arrivals(requests)
                found["arrival_rate"] = found.get("arrival_rate", math.nan) / 2
        return found

    def by_request(self) -> dict[int, Figures]:
        """Latencies of each finished request, by its number in the traffic."""
        return {r.arrival.index: _own_latencies(r) for r in self.finished}

    def _coming(self, engine: Engine) -> list[Request]:
        return [r for r in engine.coming if r.ready_ns <= engine.now_ns]

    def _counted(self, engine: Engine) -> dict[str, float]:
        now, start = _totals(engine), self._at_start or _totals(engine)
        delta = {key: now[key] - start[key] for key in now}
        steps, outputs = max(delta["steps"], 1), max(sum(r.produced for r in self.finished), 1)
        requests = max(len(self.finished), 1)
        weight = max(self._weight_ns, 1)
        return {
            "preemptions_per_request": delta["preemptions"] / requests,
            "recomputed_per_output": delta["recomputed"] / outputs,
            "prefix_hit_rate": delta["hits"] / max(delta["queries"], 1),
            "evictions_per_request": delta["evictions"] / requests,
            "full_collections_per_step": delta["collections"] / steps,
            "tokens_per_step": delta["tokens"] / steps,
            "tokens_per_step_max": max(self._tokens, default=0),
            "running": self._running / weight,
            "waiting": self._waiting / weight,
            "kv_usage": self._usage / weight,
            "kv_blocks": engine.scheduler.pool.n_blocks,
            "queue_with_free_seats": self._held / weight,
            "queue_with_free_blocks": self._capped / weight,
            # Of the time in which it worked at all: with one thread it is one core.
            "cores_used": delta["busy"] / weight,
            "process_cpu": delta["busy"] / max(engine.now_ns - self.from_ns, 1),
        }


def _grown_tenants(finished: Sequence[Request]) -> float:
    """Share of the prompt tokens of the one tenant that comes anew; the usual ones stay as they are."""
    grown = sum(r.prompt_tokens for r in finished if r.arrival.tenant == COLD_TENANT)
    return grown / max(sum(r.prompt_tokens for r in finished), 1)


def _totals(engine: Engine) -> dict[str, float]:
    counters = engine.scheduler.counters
    return {
        "steps": counters.steps,
        "tokens": counters.scheduled_tokens,
        "preemptions": counters.preemptions,
        "recomputed": counters.recomputed_tokens,
        "queries": counters.prefix_queries,
        "hits": counters.prefix_hits,
        "evictions": engine.scheduler.pool.evictions,
        "busy": engine.busy_ns,
        "collections": engine.worker.collections()[2],
    }


def _latencies(done: list[Request], open_now: list[Request], now_ns: int) -> dict[str, float]:
    """Percentiles; a request that is not there yet counts with the time it has waited."""
    every = [*done, *open_now]
    ttft = [(r.first_token_ns or now_ns) - r.ready_ns for r in every]
    queue = [(r.scheduled_ns or now_ns) - (r.queued_ns or r.ready_ns) for r in every]
    e2e = [(r.finished_ns or now_ns) - r.ready_ns for r in every]
    gaps = [b - a for r in every for a, b in _pairs(r.token_times_ns)]
    whole = [(r.finished_ns or now_ns) - r.arrival.at_ns + r.back_ns for r in every]
    return {
        "ttft_p50": percentile(ttft, 0.5),
        "ttft_p99": percentile(ttft, 0.99),
        "itl_p50": percentile(gaps, 0.5),
        # Fewer than 300 gaps have no 99th percentile worth the name.
        "itl_p99": percentile(gaps, 0.99) if len(gaps) >= 300 else math.nan,
        "e2e_p50": percentile(e2e, 0.5),
        "e2e_p99": percentile(e2e, 0.99),
        "request_p50": percentile(whole, 0.5),
        "dependency_p50": percentile([r.retrieval_ns for r in every], 0.5),
        "dependency_calls_per_request": sum(len(r.calls) for r in every) / max(len(every), 1),
        "dependency_wait": _mean([c.begin_ns - c.wanted_ns for r in every for c in r.calls]),
        "frontend_wait": _mean([r.frontend_ns for r in every]),
        "engine_gap": _mean([r.there_ns + r.back_ns for r in every]),
        "cache_hit_rate": _mean([c.was_hit for r in every for c in r.calls]),
        "version_skew": _mean([r.has_old_map for r in every]),
        "queue_mean": _mean(queue),
        "tokenise_time": _mean(
            [
                r.queued_ns - r.received_ns - r.grammar_ns
                for r in every
                if r.queued_ns and r.received_ns
            ]
        ),
        "schema_cost": _schema_cost(done),
        "itl_by_length": _by_length(done),
        "response_bytes": _mean([r.answer_bytes for r in done]),
    }


def _by_length(done: Sequence[Request]) -> float:
    """Time between tokens of the longer half of the answers, over that of the shorter."""
    measured = [r for r in done if r.produced > 1]
    if len(measured) < 20:
        return math.nan
    middle = percentile([r.produced for r in measured], 0.5)
    means = [(r.produced > middle, _own_latencies(r)["itl_p50"]) for r in measured]
    sides = [[gap for is_long, gap in means if is_long is side] for side in (True, False)]
    if not all(sides):
        return math.nan
    return percentile(sides[0], 0.5) / percentile(sides[1], 0.5)


def _schema_cost(done: Sequence[Request]) -> float:
    """Median time to first token of structured answers, over that of the others."""
    sides = [
        [_own_latencies(r)["ttft_p50"] for r in done if r.arrival.has_schema is side]
        for side in (True, False)
    ]
    if min(map(len, sides)) < _FEW_OF_A_KIND:
        return math.nan
    return percentile(sides[0], 0.5) / percentile(sides[1], 0.5)


def _own_latencies(request: Request) -> Figures:
    """One request's latencies, under the keys of the medians that they add up to."""
    first, last = request.first_token_ns or 0, request.last_token_ns or 0
    end = request.finished_ns or last
    return {
        "ttft_p50": first - request.ready_ns,
        "itl_p50": (last - first) / max(request.produced - 1, 1),
        "e2e_p50": end - request.ready_ns,
        "request_p50": end - request.arrival.at_ns + request.back_ns,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _pairs(times: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(times))


def _arrivals(every: list[Request]) -> dict[str, float]:
    times = sorted(r.arrival.at_ns for r in every)
    gaps = [b - a for a, b in _pairs(times)]
    if len(gaps) < 3 or times[-1] == times[0]:
        return {}
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    return {
        "prompt_tokens": sum(r.prompt_tokens for r in every) / len(every),
        "arrival_rate": SECOND / mean,
        "arrival_cv": spread / mean,
    }


def _growth_per_minute(memory: list[tuple[int, int]]) -> float:
    if len(memory) < 2 or memory[-1][0] == memory[0][0]:
        return math.nan
    minutes = (memory[-1][0] - memory[0][0]) / (60 * SECOND)
    return (memory[-1][1] - memory[0][1]) / memory[0][1] / minutes


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, interpolated; NaN for none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
