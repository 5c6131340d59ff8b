"""Causes that machines and the network bring, as a cost model: the twin shows them, torch cannot."""

from __future__ import annotations

from rca.models.fault import Fault
from rca.models.settings import MS, Plan

_USUAL_CORES = 4.0


def host_faults() -> tuple[Fault, ...]:
    """What a formula can show of hosts, and the telemetry that tells of it."""
    return (_throttled_gpu(), _cpu_limit(), _network(), _router())


def _gpu(plan: Plan) -> Plan:
    return plan.with_host(has_gpu=True)


def _throttled_gpu() -> Fault:
    return Fault(
        "gpu_thermal_or_power_throttle",
        "infra",
        "clock_share",
        around=_gpu,
        apply=lambda plan, dose, _s: _gpu(plan).with_host(
            clock_share=round(1 / (1 + 0.4 * dose), 3)
        ),
        moves={"sm_clock": -1, "gpu_throttled": 1},
        timing=("itl_p50", "e2e_p50"),
        by_model=True,
    )


def _limited(plan: Plan) -> Plan:
    return plan.with_host(cpu_limit=_USUAL_CORES)


def _cpu_limit() -> Fault:
    return Fault(
        "cpu_limit_throttling",
        "config",
        "cpu_limit",
        around=_limited,
        # One thread of the engine works at most: a limit below a core stops it.
        apply=lambda plan, dose, _s: plan.with_host(cpu_limit=round(1 / (1 + 0.45 * dose), 2)),
        moves={"cfs_throttling": 1},
        timing=("itl_p99", "e2e_p50"),
        by_model=True,
    )


def _connected(plan: Plan) -> Plan:
    return plan.with_host(has_network=True)


def _network() -> Fault:
    return Fault(
        "network_degraded",
        "infra",
        "loss",
        around=_connected,
        apply=lambda plan, dose, _s: _connected(plan).with_host(
            rtt_ns=round(plan.host.rtt_ns + 150 * MS * dose), loss=min(0.5, 0.04 * dose)
        ),
        moves={"engine_gap": 1, "tcp_retransmits": 1},
        timing=("request_p50",),
        by_model=True,
        change=("config", "service/llm-engine", "zone: eu-1a", "zone: eu-1b"),
    )


def _two_replicas(plan: Plan) -> Plan:
    """Each with as much to do as the one has."""
    if plan.host.has_router:
        return plan
    rate = plan.traffic.rate_per_s / plan.args.replicas * 2
    return plan.with_args(replicas=2).with_traffic(rate_per_s=rate).with_host(has_router=True)


def _router() -> Fault:
    return Fault(
        "router_imbalance",
        "dependency",
        "router_share",
        component="api-gateway",
        around=_two_replicas,
        apply=lambda plan, dose, _s: _two_replicas(plan).with_host(
            router_share=min(0.98, 0.5 + 0.35 * dose)
        ),
        moves={"replica_skew": 1},
        timing=("ttft_p50", "e2e_p50"),
        by_model=True,
        change=(
            "config",
            "deployment/api-gateway",
            "--lb-policy=least_request",
            "--lb-policy=prefix_hash",
        ),
    )
