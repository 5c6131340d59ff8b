"""Causes of the classes infra, dependency and traffic-spike, as experiments."""

from __future__ import annotations

from rca.models.fault import Fault, Remedy, replicas
from rca.models.settings import MS, SECOND, Plan


def outside_faults() -> tuple[Fault, ...]:
    """What comes from outside the engine: machines, neighbours, callers."""
    return (*_infra(), *_restart(), *_dependency(), *_caches(), *_traffic(), *_absent())


def _infra() -> tuple[Fault, ...]:
    return (
        Fault(
            "tokenizer_cold_load",
            "infra",
            "tokenizer_loads_per_request",
            apply=lambda plan, dose, _s: plan.with_build(tokenizer_loads_per_request=dose),
            moves={"tokenise_time": 1},
            timing=("ttft_p50",),
            fix=Remedy(
                "the tokenizer is loaded at the start and kept",
                "preload_tokenizer",
                lambda plan: plan.with_args(preload_tokenizer=True),
            ),
            change=(
                "config",
                "deployment/llm-engine",
                "volume: tokenizer-cache",
                "volume: emptyDir",
            ),
        ),
    )


def _restart() -> tuple[Fault, ...]:
    return (
        Fault(
            "cold_start",
            "infra",
            "start_up_ns",
            apply=lambda plan, dose, seconds: plan.with_build(
                start_up_ns=round(0.25 * min(seconds, 32.0) * SECOND * dose)
            ),
            recovers=True,
            moves={"waiting": 1, "queue_mean": 1},
            timing=("ttft_p50", "e2e_p50"),
            fix=Remedy(
                "a warm process takes over when it is ready",
                "warm_standby",
                lambda plan: plan.with_args(warm_standby=True),
            ),
            change=(
                "restart",
                "deployment/llm-engine",
                "pod: llm-engine-0 on node-a",
                "pod: llm-engine-0 on node-b",
            ),
        ),
    )


def _dependency() -> tuple[Fault, ...]:
    return (
        Fault(
            "connection_pool_exhausted",
            "dependency",
            "lease_ns",
            component="api-gateway",
            # Four connections, each kept for a second after its call: about what is asked.
            apply=lambda plan, dose, _s: plan.with_gateway(
                pool_size=4, lease_ns=round(1000 * MS * dose)
            ),
            moves={"dependency_wait": 1},
            timing=("request_p50",),
            fix=Remedy(
                "a pool of 64 connections",
                "pool_size",
                lambda plan: plan.with_gateway(pool_size=64),
            ),
            change=(
                "deploy",
                "deployment/api-gateway",
                "image: api-gateway:4.2.0",
                "image: api-gateway:4.3.0",
            ),
        ),
        Fault(
            "retry_storm",
            "dependency",
            "retrieval_errors",
            component="retrieval",
            apply=lambda plan, dose, _s: plan.with_traffic(
                retrieval_errors=min(0.9, 0.6 * dose)
            ).with_gateway(attempts=8, timeout_ns=300 * MS),
            moves={"dependency_calls_per_request": 1},
            timing=("request_p50",),
            fix=Remedy(
                "one call, and 20 ms for it",
                "attempts",
                lambda plan: plan.with_gateway(attempts=1).with_args(
                    dependency_timeout_ns=20 * MS
                ),
            ),
            change=(
                "deploy",
                "deployment/retrieval",
                "image: retrieval:2.1",
                "image: retrieval:2.2",
            ),
        ),
        Fault(
            "dependency_slow",
            "dependency",
            "retrieval_ns",
            component="retrieval",
            apply=lambda plan, dose, _s: plan.with_traffic(
                retrieval_ns=round(plan.traffic.retrieval_ns * (1 + 60 * dose)),
                retrieval_sigma=0.6,
            ),
            moves={"dependency_p50": 1},
            timing=("request_p50",),
            fix=Remedy(
                "the answer is made without it after 20 ms",
                "dependency_timeout_ns",
                lambda plan: plan.with_args(dependency_timeout_ns=20 * MS),
            ),
            change=(
                "deploy",
                "deployment/retrieval",
                "image: retrieval:2.1",
                "image: retrieval:2.2",
            ),
        ),
    )


def _caches() -> tuple[Fault, ...]:
    return (
        Fault(
            "cache_breakdown",
            "dependency",
            "cache_ttl_ns",
            component="retrieval",
            apply=lambda plan, dose, _s: plan.with_gateway(
                cache_ttl_ns=round(7 * SECOND / dose), cache_renews=False
            ),
            moves={"cache_hit_rate": -1},
            timing=("request_p50", "dependency_p50"),
            fix=Remedy(
                "who misses waits for another that loads already",
                "cache_single_flight",
                lambda plan: plan.with_gateway(cache_single_flight=True),
            ),
            change=(
                "config",
                "configmap/document-cache",
                "refresh_ahead: true",
                "refresh_ahead: false",
            ),
        ),
        Fault(
            "embedding_version_race",
            "dependency",
            "old_map_share",
            apply=lambda plan, dose, _s: plan.with_build(
                model_revision="r15",
                tokenizer_revision="r15",
                old_map_share=min(0.9, 0.4 * dose),
            ),
            moves={"version_skew": 1, "prefix_hit_rate": -1},
            timing=("ttft_p50",),
            fix=Remedy(
                "a map of another version is refused and loaded again",
                "reject_version_mismatch",
                lambda plan: plan.with_args(reject_version_mismatch=True),
            ),
            change=("deploy", "model/tiny-decoder", "revision: r14", "revision: r15"),
        ),
    )


def _longer(plan: Plan, dose: float, _seconds: float) -> Plan:
    return plan.with_traffic(unique_tokens=round(plan.traffic.unique_tokens * (1 + 3 * dose)))


def _cold_tenant(plan: Plan, dose: float, _seconds: float) -> Plan:
    share = min(0.75, 0.35 * dose)
    return plan.with_traffic(cold_share=share, cold_tokens=320)


def _traffic() -> tuple[Fault, ...]:
    return (
        Fault(
            "overload",
            "traffic-spike",
            "rate_per_s",
            component="api-gateway",
            apply=lambda plan, dose, _s: plan.with_traffic(
                rate_per_s=plan.traffic.rate_per_s * (1 + 1.2 * dose)
            ),
            moves={"arrival_rate": 1, "waiting": 1, "running": 1},
            timing=("ttft_p50", "e2e_p50"),
            fix=replicas(3),
            acceptable=("burst_arrivals",),
        ),
        Fault(
            "burst_arrivals",
            "traffic-spike",
            "burst_factor",
            component="api-gateway",
            apply=lambda plan, dose, _s: plan.with_traffic(burst_factor=1 + 9 * dose),
            moves={"arrival_cv": 1},
            timing=("ttft_p50",),
            fix=replicas(8),
            acceptable=("overload",),
        ),
        Fault(
            "context_inflation",
            "traffic-spike",
            "unique_tokens",
            component="api-gateway",
            apply=_longer,
            moves={"prompt_tokens": 1, "prefix_hit_rate": -1},
            timing=("ttft_p50", "e2e_p50"),
            fix=Remedy(
                "prompts are cut at 200 tokens",
                "max_prompt_tokens",
                lambda plan: plan.with_args(max_prompt_tokens=200),
            ),
            change=(
                "deploy",
                "deployment/chat-web",
                "image: chat-web:7.4",
                "image: chat-web:7.5",
            ),
        ),
        Fault(
            "prefix_cache_pollution",
            "traffic-spike",
            "cold_share",
            component="api-gateway",
            apply=_cold_tenant,
            moves={"prefix_hit_rate": -1, "evictions_per_request": 1, "grown_tenants": 1},
            mark="grown_tenants",
            timing=("ttft_p50",),
            fix=Remedy(
                "each tenant may send 250 prompt tokens a second",
                "tenant_token_quota",
                lambda plan: plan.with_args(tenant_token_quota=250.0),
            ),
            change=("flag", "flag/bulk-import", "off", "on"),
        ),
    )


def _absent() -> tuple[Fault, ...]:
    infra = {
        "noisy_neighbour_gpu": "needs a GPU shared with others (--engine vllm shows it on a CPU)",
        "collective_straggler": "needs several GPUs and NCCL",
        "numa_misbind": "needs more than one NUMA node",
    }
    dependency = {
        "kv_transfer": "needs two engines and a transfer path between them",
    }
    return (
        *(Fault(cause, "infra", "", device=why) for cause, why in infra.items()),
        *(Fault(cause, "dependency", "", device=why) for cause, why in dependency.items()),
    )
