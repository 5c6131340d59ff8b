"""The knobs: what an operator, a build or the traffic can change in the workload.

A fault turns one of them, a fix turns another; engine, scheduler, worker and twin
only read them. Times are nanoseconds of the virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from rca.plain import duration, number

MS = 1_000_000
SECOND = 1_000_000_000
_BLOCKS_IN_MEMORY = 348


@dataclass(frozen=True)
class EngineArgs:
    """What the deployment's command line says; names follow vLLM where it has one."""

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 48
    long_prefill_token_threshold: int = 0  # most prompt tokens of one request a step; 0: no cap
    enable_chunked_prefill: bool = True
    gpu_memory_utilization: float = 0.92
    num_gpu_blocks: int = 0  # KV blocks; 0: as many as fit in that share of the memory
    block_size: int = 16
    enable_prefix_caching: bool = True
    evict_unused_first: bool = False  # blocks that were never hit leave before the others
    pin_tokenizer_revision: bool = False
    compact_positions: bool = False
    max_queue_delay_ns: int = 0  # admission waits so long to gather a batch
    preferred_batch_size: int = 0  # so many waiting requests end the delay early; 0: never
    processor_history_limit: int = 0  # tensors that a logits processor may keep; 0: no limit
    max_logprobs: int = 0
    attention_backend: str = "generic"  # "fused" has no detours through another dtype
    grammar_cache: bool = False  # a schema is compiled once
    compile_dynamic: bool = False  # one compiled layer serves all row counts
    sampler_backend: str = "torch"  # "partial" takes the few best instead of sorting all
    detokenizer_window: int = 0  # tokens that are decoded again; 0: what the build does
    response_format: str = "json"  # "packed" writes numbers as bytes
    log_lines_per_token: float = 0  # each is on the disk before the token leaves
    log_buffered: bool = False
    preload_tokenizer: bool = False
    gc_freeze: bool = False
    tenant_token_quota: float = 0.0  # prompt tokens/s that one tenant may send; 0: no limit
    max_prompt_tokens: int = 0  # longer prompts are cut; 0: no limit
    dependency_timeout_ns: int = 0  # then the answer is made without it; 0: wait for ever
    warm_standby: bool = False  # a new process takes over when it is ready, not before
    omp_num_threads: int = 1  # of the environment, not of the command line
    threads_bound: bool = False  # no more threads compute than there are cores
    middleware: str = ""  # code in the API server that sees each request
    api_server_count: int = 1
    reject_version_mismatch: bool = False  # a map of another version is loaded again
    priority_scheduling: bool = False  # urgent requests pass those that wait
    replicas: int = 1  # the engine sees 1/replicas of the traffic

    @property
    def total_blocks(self) -> int:
        """KV blocks of the pool."""
        return self.num_gpu_blocks or round(_BLOCKS_IN_MEMORY * self.gpu_memory_utilization)


@dataclass(frozen=True)
class Gateway:
    """How the gateway calls the retrieval service."""

    pool_size: int = 32  # connections
    lease_ns: int = 0  # a connection is held so long after its call
    attempts: int = 4  # calls at most, before the answer is made without it
    timeout_ns: int = 80 * MS  # a call that fails takes this long
    cache_ttl_ns: int = 600 * SECOND
    cache_starts_empty: bool = False
    cache_renews: bool = True  # entries are loaded again before they expire
    cache_single_flight: bool = False  # who misses waits for another that loads already


@dataclass(frozen=True)
class Build:
    """Slow paths that the engine's image contains; a healthy one has none."""

    version: str = "1.8.2"
    retained_tensors_per_step: float = 0.0
    position_gap_every: int = 0  # output tokens between two flushes of a request's KV
    cache_key_churn: float = 0.0  # share of requests whose key never repeats
    held_blocks_per_request: float = 0.0  # KV blocks that a finished request never gives back
    kv_copies_per_step: int = 0  # whole-context casts a layer and step
    syncs_per_token: int = 0
    sampler_sorts: int = 0
    detokenize_repeats: int = 0  # decodings of the whole output so far, a token
    collected_objects: int = 0  # tracked objects that a full garbage collection visits
    collect_every_steps: int = 60
    extra_copies_per_layer: int = 0  # an unfused code path
    tokenizer_loads_per_request: float = 0.0
    grammar_states: int = 0  # states built for a request's schema
    static_shapes: int = 0  # row counts that a compiled layer is compiled for, one by one
    ignores_aborts: bool = False  # answers go on when the client has gone
    middleware_ns: int = 0  # that the middleware takes of the API server for a request
    model_revision: str = "r14"
    tokenizer_revision: str = "r14"
    host_bytes_per_request: int = 0  # that the process keeps and never looks at again
    old_map_share: float = 0.0  # requests that meet the token map of the former model
    start_up_ns: int = 0  # a new process is deaf so long


@dataclass(frozen=True)
class Traffic:
    """Who asks, how often, for how much."""

    rate_per_s: float = 4.5
    burst_factor: float = 1.0  # arrivals come in groups of this mean size, same mean rate
    prefix_groups: int = 8
    prefix_tokens: int = 160
    unique_tokens: int = 40
    output_tokens: int = 24
    long_share: float = 0.08  # requests whose own part is long
    long_tokens: int = 400
    tenants: int = 4
    cold_share: float = 0.0  # requests of a tenant whose prompts are never seen again
    cold_tokens: int = 0
    schema_share: float = 0.3  # requests that ask for a structured answer
    retrieval_ns: int = 12 * MS  # mean time of the retrieval service
    retrieval_sigma: float = 0.35
    retrieval_errors: float = 0.0  # share of calls that fail
    urgent_share: float = 0.0  # requests that somebody waits for
    abort_share: float = 0.0  # clients that hang up after a third of the answer


@dataclass(frozen=True)
class Host:
    """Machines and network as far as a cost model stands for them; only the twin has them.

    What is switched on is told by the exporters that a real system has; all else stays silent.
    """

    has_gpu: bool = False
    clock_share: float = 1.0  # of the GPU's clocks; its work takes so much longer
    cpu_limit: float = 0.0  # cores that the container may use; 0: no limit
    has_network: bool = False  # a path between gateway and engine
    rtt_ns: int = MS  # of that path
    loss: float = 0.0  # share of its segments that are sent again
    has_router: bool = False  # two replicas are recorded
    router_share: float = 0.0  # of the requests that go to the first; 0: in turns


@dataclass(frozen=True)
class Plan:
    """One configuration of everything: what runs, how it is built, what is asked."""

    args: EngineArgs = field(default_factory=EngineArgs)
    build: Build = field(default_factory=Build)
    traffic: Traffic = field(default_factory=Traffic)
    gateway: Gateway = field(default_factory=Gateway)
    host: Host = field(default_factory=Host)

    def with_args(self, **changes: Any) -> Plan:
        """The plan with other engine arguments."""
        return replace(self, args=replace(self.args, **changes))

    def with_build(self, **changes: Any) -> Plan:
        """The plan with another build."""
        return replace(self, build=replace(self.build, **changes))

    def with_gateway(self, **changes: Any) -> Plan:
        """The plan with another gateway."""
        return replace(self, gateway=replace(self.gateway, **changes))

    def with_host(self, **changes: Any) -> Plan:
        """The plan on another host."""
        return replace(self, host=replace(self.host, **changes))

    def with_traffic(self, **changes: Any) -> Plan:
        """The plan under other traffic."""
        return replace(self, traffic=replace(self.traffic, **changes))

    def turned_to(self, after: Plan) -> str:
        """The knobs in which another plan differs, as `name before → after` in their units."""
        found: list[str] = []
        for part in ("args", "build", "traffic", "host"):
            old, new = getattr(self, part), getattr(after, part)
            for knob in fields(old):
                a, b = getattr(old, knob.name), getattr(new, knob.name)
                if a != b:
                    found.append(_turned(knob.name, a, b))
        return ", ".join(found)


def _turned(name: str, before: Any, after: Any) -> str:
    if not all(isinstance(value, int | float) for value in (before, after)):
        return name
    tell = duration if name.endswith("_ns") else number
    return f"{name.removesuffix('_ns')} {tell(before)} → {tell(after)}"
