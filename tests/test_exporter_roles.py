"""Roles of what GPU exporters, Kubernetes, Ray Serve, llm-d and OpenTelemetry's conventions call their metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from telemetry_builder import add_series, add_source

from rca import bundle_init
from rca.case import Case
from rca.catalogue import load
from rca.hypotheses.scoring import Observed, score
from rca.roles import assign
from rca.signals import meanings
from rca.weights import settings

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-3"}


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def read(case: Case, role: str) -> list[tuple[float, str]]:
    """Values and services of a role, as evidence sees them."""
    return case.rows(
        "SELECT round(num / den, 6), service FROM signal_value WHERE role = ? ORDER BY ts_ns",
        (role,),
    )


@pytest.mark.parametrize(
    ("name", "labels", "points", "role", "value", "service"),
    [
        ("ray_serve_replica_processing_queries", {"deployment": "llm"}, [7], "running", 7.0, "llm"),
        ("ray_serve_deployment_error_counter_total", {"deployment": "llm"}, [1, 16], "error_rate", 1.0, "llm"),
        ("ray_serve_deployment_replica_healthy", {"deployment": "llm"}, [1], "ready_replicas", 1.0, "llm"),
        ("inference_pool_average_kv_cache_utilization", {"name": "pool", "job": "epp"}, [0.7], "kv_usage", 0.7, "pool"),
        ("inference_pool_average_queue_size", {"name": "pool", "job": "epp"}, [3], "waiting", 3.0, "pool"),
        ("inference_pool_average_running_requests", {"name": "pool"}, [9], "running", 9.0, "pool"),
        ("decode_step_time_ms", {"job": "vllm"}, [12], "itl", 0.012, "vllm"),
        ("prefill_step_time_ms", {"job": "vllm"}, [90], "prefill_time", 0.09, "vllm"),
        ("copilot_pipeline_latency_ms", {"job": "copilot", "model": "m"}, [450], "gateway_latency", 0.45, "copilot"),
        ("nvidia_gpu_memory_used_bytes", {"minor_number": "0", "instance": "h"}, [5e9], "gpu_memory", 5e9, "h"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", GPU, [0, 3e9], "gpu_thermal_violation", 0.2, ""),
        ("DCGM_FI_DEV_POWER_VIOLATION", GPU, [0, 15e9], "gpu_power_violation", 1.0, ""),
        ("DCGM_FI_DEV_XID_ERRORS", GPU, [79], "gpu_xid", 1.0, ""),
        ("DCGM_FI_DEV_XID_ERRORS", GPU, [0], "gpu_xid", 0.0, ""),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", GPU, [1, 31], "gpu_ecc_errors", 2.0, ""),
        ("container_oom_events_total", {"pod": "vllm-0"}, [0, 3], "oom_kills", 0.2, "vllm"),
        ("kube_pod_container_status_restarts_total", {"pod": "vllm-0"}, [2, 3], "restart", 1.0, "vllm"),
        ("kube_deployment_status_replicas_ready", {"deployment": "vllm", "job": "ksm"}, [2], "ready_replicas", 2.0, "vllm"),
        ("kube_statefulset_status_replicas_ready", {"statefulset": "llm"}, [3], "ready_replicas", 3.0, "llm"),
        ("ray_serve_deployment_replica_starts_total", {"deployment": "llm"}, [2, 2], "restart", 0.0, "llm"),
    ],
)  # fmt: skip
def test_a_metric_becomes_its_role(
    case: Case, name: str, labels: dict[str, str], points: list[float], role: str, value: float, service: str
) -> None:  # fmt: skip
    source = add_source(case, "metrics")
    add_series(case, source, name, labels, [(15.0 * i, v) for i, v in enumerate(points)])
    assign(case)
    assert read(case, role) == [(value, service)]


@pytest.mark.parametrize(
    ("metric", "role"),
    [
        ("gen_ai_server_request_duration_seconds", "e2e_latency"),
        ("gen_ai_server_time_to_first_token_seconds", "ttft"),
        ("gen_ai_server_time_per_output_token_seconds", "itl"),
        ("redis_latency_seconds", "downstream_latency"),
    ],
)
def test_histograms_of_conventions_and_caches(case: Case, metric: str, role: str) -> None:
    source = add_source(case, "metrics")
    add_series(case, source, f"{metric}_sum", {"job": "a"}, [(0, 0), (15, 6)], "counter")
    add_series(case, source, f"{metric}_count", {"job": "a"}, [(0, 0), (15, 12)], "counter")
    assign(case)
    assert read(case, role) == [(0.5, "a")]


def test_clock_events_are_a_share_of_all_that_were_counted(case: Case) -> None:
    """A window may count a reason any number of times: the share stays within 0 and 1."""
    source = add_source(case, "metrics")
    counted = {"gpu_idle": (60, 10), "sw_thermal": (0, 25), "power_cap": (0, 5)}
    for event, (healthy, hot) in counted.items():
        points = [(0.0, healthy), (15.0, hot)]
        labels = {**GPU, "clock_event": event, "window_size_in_ms": "300000"}
        add_series(case, source, "DCGM_EXP_CLOCK_EVENTS_COUNT", labels, points)
    assign(case)
    assert read(case, "gpu_throttled") == [(0.0, ""), (0.75, "")]


def test_a_restart_that_the_process_tells_is_counted_once(case: Case) -> None:
    source = add_source(case, "metrics")
    pod = {"pod": "vllm-0"}
    add_series(case, source, "process_start_time_seconds", pod, [(0, 1e9), (15, 2e9)])
    add_series(case, source, "kube_pod_container_status_restarts_total", pod, [(0, 0), (15, 1)])
    assign(case)
    assert [v for v, _ in read(case, "restart")] == [1.0]
    assert read(case, "container_starts") == []


def observed(**strengths: float) -> dict[str, Observed]:
    return {
        role: Observed(f"E{i}", role, g, "metrics")
        for i, (role, g) in enumerate(strengths.items(), start=1)
    }


def test_time_lost_to_heat_is_a_mark_of_throttling_and_the_power_limit_alone_is_none() -> None:
    cause = load()["gpu_thermal_or_power_throttle"]
    slow = {"itl": 0.9, "gpu_power": 0.5}
    hot = score(cause, observed(**slow, gpu_thermal_violation=0.9), [], 600.0)
    assert hot.decided and hot.marked
    capped = score(cause, observed(**slow, gpu_power_violation=0.9), [], 600.0)
    assert capped.circumstantial
    assert hot.score > capped.score


def test_the_power_limit_is_held_against_no_other_cause() -> None:
    overload = load()["overload"]
    plain = score(overload, observed(arrival_rate=0.9, waiting=0.9), [], 600.0)
    capped = score(
        overload, observed(arrival_rate=0.9, waiting=0.9, gpu_power_violation=0.9), [], 600.0
    )
    assert capped.score == plain.score


def test_recordings_that_carry_the_roles() -> None:
    carried = {one.name: one.roles for one in bundle_init.recordings()}
    gpu = {"gpu_thermal_violation", "gpu_power_violation", "gpu_xid", "gpu_ecc_errors"}
    assert gpu <= carried["metrics of GPUs"]
    assert {"oom_kills", "restart"} <= carried["metrics of containers and hosts"]
    assert gpu | {"oom_kills", "container_starts"} <= set(meanings())
    assert "gpu_power_violation" in settings()["consequences"]


def test_replicas_of_a_deployment_count_only_where_no_pod_tells_of_itself(case: Case) -> None:
    source = add_source(case, "metrics")
    add_series(
        case,
        source,
        "kube_deployment_status_replicas_ready",
        {"deployment": "vllm"},
        [(0, 2.0)],
    )
    for pod in ("vllm-0", "vllm-1"):
        labels = {"pod": pod, "condition": "true"}
        add_series(case, source, "kube_pod_status_ready", labels, [(0, 1.0)])
    assign(case)
    rows = "SELECT DISTINCT s.name FROM series_role AS r JOIN series AS s ON s.id = r.series_id WHERE role = 'ready_replicas'"
    assert case.rows(rows) == [("kube_pod_status_ready",)]
