"""What Prometheus would have scraped: vLLM's names, labels and buckets.

The answer of `query_range` over all series, step 1 s. Counters belong to a process and
start again with it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rca.models.cache_metrics import CacheMetrics
from rca.models.engine import Engine, next_scrape_ns
from rca.models.gateway import Admission, Call, Request
from rca.models.histogram import Histogram
from rca.models.host_metrics import HostMetrics
from rca.models.scheduler import Batch
from rca.models.settings import SECOND

MODEL = "tiny-decoder"
GATEWAY_JOB = {"job": "api-gateway", "instance": "api-gateway-0:9090", "pod": "api-gateway-0"}

_TTFT: tuple[float, ...] = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
)
_TTFT += (10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_ITL: tuple[float, ...] = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
)
_ITL += (10.0, 20.0, 40.0, 80.0)
_REQUEST: tuple[float, ...] = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
)
_REQUEST += (120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_STEP = tuple(float(2**power) for power in (0, *range(3, 15)))
BYTES_BUCKETS = tuple(float(4**power) for power in range(3, 12))
HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

_ENGINE_BUCKETS: dict[str, Sequence[float]] = {
    "vllm:time_to_first_token_seconds": _TTFT,
    "vllm:inter_token_latency_seconds": _ITL,
    "vllm:e2e_request_latency_seconds": _REQUEST,
    "vllm:request_queue_time_seconds": _REQUEST,
    "vllm:request_prefill_time_seconds": _REQUEST,
    "vllm:request_decode_time_seconds": _REQUEST,
    "vllm:request_inference_time_seconds": _REQUEST,
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:request_prefill_kv_computed_tokens": _TOKENS,
    "vllm:iteration_tokens_total": _STEP,
}


def engine_job(replica: int) -> dict[str, str]:
    """Labels of a replica's scrapes."""
    pod = f"llm-engine-{replica}"
    return {"job": "llm-engine", "instance": f"{pod}:8000", "pod": pod}


ENGINE_JOB = engine_job(0)
ROUTE = {"http_route": "/v1/completions", "http_request_method": "POST"}
_PEER = {"server_address": "retrieval"}


class Metrics:
    """An observer that scrapes once a second of virtual time, from `from_ns` on.

    Args:
        from_ns: nothing is kept before.
        replica: number of the engine.
        first: those of the first replica, which count for the gateway and keep all series.
    """

    def __init__(self, from_ns: int, replica: int = 0, first: Metrics | None = None) -> None:
        self.from_ns, self._job = from_ns, engine_job(replica)
        self._gateway = first or self
        self._series: dict[tuple[tuple[str, str], ...], list[list[object]]] = {}
        self._host = HostMetrics()
        self._served, self._sizes = Histogram(HTTP_BUCKETS), Histogram(BYTES_BUCKETS)
        self._called = {code: Histogram(HTTP_BUCKETS) for code in ("200", "503")}
        self._calls: list[Call] = []
        self._cache = CacheMetrics()
        self._aborted = 0
        self._process: Engine | None = None
        self._generated = 0
        self._prompted = 0
        self._finished = 0
        self._engine: dict[str, Histogram] = {}

    def step(self, engine: Engine, batch: Batch, cost_ns: int) -> None:
        """Count a step and the gaps between tokens that it ends."""
        self._follow(engine)
        self._engine["vllm:iteration_tokens_total"].observe(batch.tokens)
        end_ns = engine.now_ns + cost_ns
        for piece in batch.slices:
            request = piece.request
            if piece.samples:
                self._token(request, end_ns)
                self._generated += 1

    def _token(self, request: Request, at_ns: int) -> None:
        last_ns = request.last_token_ns
        if last_ns is None:
            self._prompted += request.prompt_tokens
            ttft = (at_ns - request.ready_ns) / SECOND
            self._engine["vllm:time_to_first_token_seconds"].observe(ttft)
        else:
            self._engine["vllm:inter_token_latency_seconds"].observe((at_ns - last_ns) / SECOND)

    def finish(self, engine: Engine, request: Request) -> None:
        """Count a finished request, here and at the gateway."""
        self._follow(engine)
        if request.was_aborted:
            self._aborted += 1
            return
        self._finished += 1
        for name, value in request_seconds(request).items():
            self._engine[f"vllm:{name}_seconds"].observe(value)
        computed = request.prompt_tokens - request.cached_tokens
        self._engine["vllm:request_prompt_tokens"].observe(request.prompt_tokens)
        self._engine["vllm:request_generation_tokens"].observe(request.produced)
        self._engine["vllm:request_prefill_kv_computed_tokens"].observe(computed)
        whole_ns = (request.finished_ns or 0) - request.arrival.at_ns + request.back_ns
        self._gateway._served.observe(whole_ns / SECOND)
        self._gateway._sizes.observe(request.answer_bytes)

    def scrape(self, engine: Engine, at_ns: int) -> None:
        """Append the present value of each series."""
        self._follow(engine)
        if at_ns < self.from_ns:
            return
        for name, labels, value in self._engine_lines(engine):
            self._append(at_ns, name, {**self._job, **labels}, value)
        if self._gateway is self:
            for name, labels, value in self._gateway_lines(at_ns):
                self._append(at_ns, name, {**GATEWAY_JOB, **labels}, value)
            for job, name, labels, value in self._cache.lines(at_ns):
                self._append(at_ns, name, {**job, **labels}, value)
        for job, name, labels, value in self._host.lines(engine, self._job, at_ns):
            self._append(at_ns, name, {**job, **labels}, value)
        for job in (self._job, GATEWAY_JOB) if self._gateway is self else (self._job,):
            self._append(at_ns, "up", job, 1)

    def expect(self, admission: Admission) -> None:
        """Know of the calls that requests make before they reach the engine."""
        self._calls += [call for request in admission.requests for call in request.calls]
        self._cache.expect(admission)
        self._host.expect(admission)

    def down(self, from_ns: int, until_ns: int, scrape_s: int = 1) -> None:
        """Scrapes of a process that does not answer: `up` is 0, all else is missing."""
        for at_ns in range(next_scrape_ns(from_ns), until_ns, SECOND):
            if at_ns >= self.from_ns and at_ns // SECOND % scrape_s == 0:
                self._append(at_ns, "up", ENGINE_JOB, 0)
                self._append(at_ns, "up", GATEWAY_JOB, 1)

    def write(self, path: Path) -> None:
        """Write the answer of `query_range` as gzipped JSON."""
        result = [
            {"metric": dict(labels), "values": values}
            for labels, values in self._series.items()
        ]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        data = json.dumps(answer, separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(data, mtime=0))

    def _follow(self, engine: Engine) -> None:
        if engine is self._process:
            return
        self._process = engine
        self._generated = self._prompted = self._finished = self._aborted = 0
        self._engine = {name: Histogram(bounds) for name, bounds in _ENGINE_BUCKETS.items()}

    def _append(self, at_ns: int, name: str, labels: dict[str, str], value: float) -> None:
        key = (("__name__", name), *sorted(labels.items()))
        at = round(at_ns / SECOND, 3)
        text = str(int(value)) if float(value).is_integer() else repr(float(value))
        self._gateway._series.setdefault(key, []).append([at, text])

    def _gateway_lines(self, at_ns: int) -> Iterator[tuple[str, dict[str, str], float]]:
        for call in [call for call in self._calls if call.end_ns <= at_ns]:
            self._calls.remove(call)
            lasted = (call.end_ns - call.begin_ns) / SECOND
            self._called["503" if call.failed else "200"].observe(lasted)
        for line, labels, value in self._served.lines("http_server_request_duration_seconds"):
            yield line, {**ROUTE, **labels}, value
        for line, labels, value in self._sizes.lines("http_server_response_body_size_bytes"):
            yield line, {**ROUTE, **labels}, value
        for code, histogram in self._called.items():
            peer = {**_PEER, "http_response_status_code": code}
            for line, labels, value in histogram.lines("http_client_request_duration_seconds"):
                yield line, {**peer, **labels}, value
        busy = sum(call.begin_ns <= at_ns for call in self._calls)
        waiting = sum(call.wanted_ns <= at_ns < call.begin_ns for call in self._calls)
        yield "http_client_active_requests", _PEER, busy
        yield "http_client_pending_requests", _PEER, waiting

    def _engine_lines(self, engine: Engine) -> Iterator[tuple[str, dict[str, str], float]]:
        model = {"model_name": MODEL, "engine": "0"}
        for name, value in self._counters(engine).items():
            yield f"vllm:{name}", model, value
        success = "vllm:request_success_total"
        yield success, {**model, "finished_reason": "length"}, self._finished
        yield success, {**model, "finished_reason": "stop"}, 0
        yield success, {**model, "finished_reason": "abort"}, self._aborted
        yield "vllm:cache_config_info", {**_cache_config(engine), "engine": "0"}, 1
        for name, histogram in self._engine.items():
            for line, labels, value in histogram.lines(name):
                yield line, {**model, **labels}, value
        yield from _process_lines(engine)

    def _counters(self, engine: Engine) -> dict[str, float]:
        scheduler = engine.scheduler
        counters = scheduler.counters
        return {
            "num_requests_running": len(scheduler.running),
            "num_requests_waiting": len(scheduler.waiting),
            "kv_cache_usage_perc": round(scheduler.pool.usage, 6),
            "num_preemptions_total": counters.preemptions,
            "prefix_cache_queries_total": counters.prefix_queries,
            "prefix_cache_hits_total": counters.prefix_hits,
            "prompt_tokens_total": self._prompted,
            "generation_tokens_total": self._generated,
        }


def request_seconds(request: Request) -> dict[str, float]:
    """The parts of a finished request as vLLM names its histograms, without `_seconds`."""
    queued = request.queued_ns or request.ready_ns
    scheduled = request.scheduled_ns or queued
    first = request.first_token_ns or scheduled
    last = request.last_token_ns or first
    return {
        "e2e_request_latency": (last - request.ready_ns) / SECOND,
        "request_queue_time": (scheduled - queued) / SECOND,
        "request_prefill_time": (first - scheduled) / SECOND,
        "request_decode_time": (last - first) / SECOND,
        "request_inference_time": (last - scheduled) / SECOND,
    }


def _cache_config(engine: Engine) -> dict[str, str]:
    args = engine.plan.args
    return {
        "block_size": str(args.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(args.enable_prefix_caching),
        "num_gpu_blocks": str(args.total_blocks),
        "num_gpu_blocks_override": str(args.num_gpu_blocks or None),
        "gpu_memory_utilization": str(args.gpu_memory_utilization),
        "kv_cache_size_tokens": str(args.total_blocks * args.block_size),
    }


def _process_lines(engine: Engine) -> Iterator[tuple[str, dict[str, str], float]]:
    alive = (engine.now_ns - engine.started_ns) / SECOND
    yield "process_start_time_seconds", {}, round(engine.started_ns / SECOND, 2)
    yield "process_cpu_seconds_total", {}, round(engine.busy_ns / SECOND + 0.01 * alive, 2)
    yield "node_context_switches_total", {}, engine.switches
    written = engine.worker.written_bytes()
    yield "container_fs_writes_bytes_total", {"container": "llm-engine"}, written
    yield "process_resident_memory_bytes", {}, engine.worker.memory_bytes()
    for generation, count in enumerate(engine.worker.collections()):
        yield "python_gc_collections_total", {"generation": str(generation)}, count
