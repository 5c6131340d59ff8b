"""Changes that telemetry shows: each kind by itself, and not twice what a record says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from telemetry_builder import T0, add_change, add_config, add_series, add_source, add_span, at

from rca.case import Case
from rca.derived import derive

POD = {"pod": "llm-engine-0", "instance": "10.0.0.1:8000", "namespace": "serving"}


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def derived(case: Case) -> list[tuple[object, ...]]:
    derive(case)
    return case.rows(
        "SELECT id, (ts_ns - ?) / 1e9, kind, subject, before, after, origin FROM change "
        "WHERE id LIKE 'derived-%' ORDER BY ts_ns, id",
        (T0,),
    )


def every(first: int, last: int, value: float = 1.0) -> list[tuple[float, float]]:
    return [(t, value) for t in range(first, last + 1, 15)]


def cache(blocks: int, **more: str) -> dict[str, str]:
    return {**POD, "block_size": "16", "num_gpu_blocks": str(blocks), **more}


def test_labels_of_cache_settings(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "vllm:cache_config_info", cache(768), every(0, 300))
    add_series(case, metrics, "vllm:cache_config_info", cache(66), every(345, 600))
    assert derived(case) == [
        ("derived-1", 345.0, "config", "service/llm-engine", "num_gpu_blocks: 768",
         "num_gpu_blocks: 66", "vllm:cache_config_info"),
    ]  # fmt: skip


def test_what_an_engine_measures_anew_at_each_start_is_no_change(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "vllm:cache_config_info", cache(1375), every(0, 300))
    add_series(case, metrics, "vllm:cache_config_info", cache(1381), every(345, 600))
    assert derived(case) == []


def test_replicas_that_differ_from_the_start_are_no_change(case: Case) -> None:
    metrics = add_source(case, "metrics")
    for number, version in enumerate(("1.0", "1.1")):
        labels = {"pod": f"gateway-7d9f8c6b5-abcd{number}", "version": version}
        add_series(case, metrics, "gateway_build_info", labels, every(0, 600))
    assert derived(case) == []


def test_images_of_a_rolling_update_are_one_change(case: Case) -> None:
    metrics = add_source(case, "metrics")
    for number, moment in ((0, 300), (1, 375)):
        labels = {
            "pod": f"llm-engine-{number}",
            "container": "engine",
            "container_id": f"c{number}",
        }
        old, new = {**labels, "image": "vllm:v0.11.2"}, {**labels, "image": "vllm:v0.12.0"}
        add_series(case, metrics, "kube_pod_container_info", old, every(0, moment - 15))
        add_series(case, metrics, "kube_pod_container_info", new, every(moment, 600))
    assert derived(case) == [
        ("derived-1", 300.0, "deploy", "service/llm-engine", "image: vllm:v0.11.2",
         "image: vllm:v0.12.0", "kube_pod_container_info"),
    ]  # fmt: skip


def test_generations_and_replicas(case: Case) -> None:
    metrics = add_source(case, "metrics")
    points = [(0, 2), (15, 2), (30, 4)]
    add_series(
        case, metrics, "kube_deployment_spec_replicas", {"deployment": "gateway"}, points
    )
    points = [(0, 41), (15, 41), (30, 42)]
    labels = {"statefulset": "llm-engine"}
    add_series(case, metrics, "kube_statefulset_metadata_generation", labels, points)
    add_series(case, metrics, "kube_deployment_status_replicas", {"deployment": "x"}, points)
    assert [row[2:] for row in derived(case)] == [
        ("scale", "deployment/gateway", "replicas: 2", "replicas: 4", "kube_deployment_spec_replicas"),
        ("config", "statefulset/llm-engine", "generation: 41", "generation: 42",
         "kube_statefulset_metadata_generation"),
    ]  # fmt: skip


def test_a_restart_has_the_time_that_the_process_tells(case: Case) -> None:
    metrics = add_source(case, "metrics")
    start = T0 // 10**9
    points = [(0, start - 5000), (60, start - 5000), (120, start + 97.5)]
    add_series(case, metrics, "process_start_time_seconds", POD, points)
    assert derived(case) == [
        ("derived-1", 97.5, "restart", "service/llm-engine", None, "restarted: llm-engine-0",
         "process_start_time_seconds"),
    ]  # fmt: skip


def test_a_process_that_is_only_seen_late_did_not_restart(case: Case) -> None:
    metrics = add_source(case, "metrics")
    start = T0 // 10**9
    add_series(case, metrics, "up", POD, every(0, 600))
    add_series(case, metrics, "process_start_time_seconds", POD, every(300, 600, start - 9000))
    other = {"pod": "llm-engine-6f7c9d8b4-x2x4z"}
    add_series(case, metrics, "process_start_time_seconds", other, every(300, 600, start + 290))
    assert [row[1:6] for row in derived(case)] == [
        (290.0, "restart", "service/llm-engine", None, "restarted: llm-engine-6f7c9d8b4-x2x4z"),
    ]  # fmt: skip


def test_a_restart_with_a_change_of_the_same_workload_is_its_trace(case: Case) -> None:
    metrics = add_source(case, "metrics")
    start = T0 // 10**9
    add_series(case, metrics, "vllm:cache_config_info", cache(768), every(0, 300))
    add_series(case, metrics, "vllm:cache_config_info", cache(66), every(345, 600))
    points = [*every(0, 300, start - 500), *every(345, 600, start + 330)]
    add_series(case, metrics, "process_start_time_seconds", POD, points)
    assert [row[2] for row in derived(case)] == ["config"]


def test_versions_on_spans(case: Case) -> None:
    trace = add_source(case, "trace", shift_ns=-2 * 10**9)
    for i in range(20):
        version = "2.7.1" if i < 12 else "2.8.0"
        add_span(
            case,
            trace,
            f"t{i}",
            "gateway",
            "POST /v1",
            10.0 * i,
            resource__service__version=version,
        )
    assert derived(case) == [
        ("derived-1", 118.0, "deploy", "service/gateway", "version: 2.7.1", "version: 2.8.0", "service.version"),
    ]  # fmt: skip


def test_arguments_that_an_engine_logs(case: Case) -> None:
    log = add_source(case, "log")
    add_config(case, log, "engine", 0, max_num_seqs="16", dtype="bfloat16", port="8000")
    add_config(case, log, "engine", 6, dtype="torch.bfloat16")
    add_config(case, log, "engine", 400, max_num_seqs="2", dtype="bfloat16", port="8000")
    assert derived(case) == [
        ("derived-1", 400.0, "config", "engine", "max_num_seqs: 16", "max_num_seqs: 2", "engine_log"),
    ]  # fmt: skip


def test_configuration_that_differs_from_the_baseline(case: Case) -> None:
    old, new = add_source(case, "config", "baseline"), add_source(case, "config")
    metrics = add_source(case, "metrics")
    add_config(
        case, old, "Deployment/llm-engine", max_num_seqs="16", nodeName="a", dtype="auto"
    )
    add_config(case, new, "Deployment/llm-engine", max_num_seqs="2", nodeName="b", dtype="auto")
    add_config(case, new, "Deployment/other", replicas="3")
    add_series(case, metrics, "up", POD, every(0, 60))
    assert derived(case) == [
        ("derived-1", 0.0, "config", "Deployment/llm-engine", "max_num_seqs: 16", "max_num_seqs: 2", "config_diff"),
    ]  # fmt: skip
    start = T0 // 10**9
    points = [*every(0, 300, start - 500), *every(345, 600, start + 330)]
    add_series(case, metrics, "process_start_time_seconds", POD, points)
    assert [row[1:3] for row in derived(case)] == [(330.0, "config")]


def test_what_is_recorded_is_not_said_again(case: Case) -> None:
    metrics, records = add_source(case, "metrics"), add_source(case, "change")
    add_series(case, metrics, "vllm:cache_config_info", cache(768), every(0, 300))
    add_series(case, metrics, "vllm:cache_config_info", cache(66), every(345, 1500))
    add_change(case, records, "c1", 310, "deploy", "deployment/llm-engine",
               "--num-gpu-blocks-override=768", "--num-gpu-blocks-override=66")  # fmt: skip
    assert derived(case) == []
    case.execute("UPDATE change SET ts_ns = ts_ns - 700000000000")
    assert len(derived(case)) == 1
    case.execute("UPDATE change SET ts_ns = ?, before = 'rev 5', after = 'rev 6'", (at(310),))
    assert len(derived(case)) == 1


def test_an_option_that_is_new_and_recorded_as_a_flag_is_not_said_again(case: Case) -> None:
    old, new = add_source(case, "config", "baseline"), add_source(case, "config")
    add_config(case, old, "Deployment/llm-engine", max_num_seqs="16")
    add_config(case, new, "Deployment/llm-engine", max_num_seqs="16", middleware="audit.Scan")
    add_series(case, add_source(case, "metrics"), "up", POD, every(0, 60))
    assert len(derived(case)) == 1
    add_change(case, add_source(case, "change"), "c1", 30, "config", "deployment/llm-engine",
               "--middleware=", "--middleware=audit.Scan")  # fmt: skip
    assert derived(case) == []


def test_ids_are_stable_and_rows_are_written_once(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(
        case, metrics, "kube_deployment_spec_replicas", {"deployment": "b"}, [(0, 2), (30, 4)]
    )
    add_series(
        case, metrics, "kube_deployment_spec_replicas", {"deployment": "a"}, [(0, 2), (30, 4)]
    )
    first = derived(case)
    assert [row[0] for row in first] == ["derived-1", "derived-2"]
    assert derived(case) == first


def test_the_baseline_tells_of_no_changes(case: Case) -> None:
    metrics = add_source(case, "metrics", "baseline")
    add_series(
        case, metrics, "kube_deployment_spec_replicas", {"deployment": "b"}, [(0, 2), (30, 4)]
    )
    assert derived(case) == []


def rollout(case: Case, *starts: tuple[str, float]) -> None:
    """Pods of one workload that start anew, each first seen ten seconds after its start."""
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "up", {"instance": "prometheus"}, every(0, 3600))
    begin = T0 // 10**9
    for pod, second in starts:
        points = [
            (0.0, begin - 9000.0),
            (second + 10, begin + second),
            (3600.0, begin + second),
        ]
        labels = {"pod": pod, "instance": pod}
        add_series(case, metrics, "process_start_time_seconds", labels, points)


def test_the_restarts_of_a_slow_rollout_are_no_second_change(case: Case) -> None:
    rollout(case, ("llm-engine-0", 700.0), ("llm-engine-1", 1250.0), ("llm-engine-2", 1800.0))
    record = add_source(case, "change")
    add_change(case, record, "c1", 60, "deploy", "deployment/llm-engine", "v1", "v2")
    assert derived(case) == []
    took_effect = case.scalar("SELECT effective_ns FROM change WHERE id = 'c1'")
    assert (took_effect - T0) / 1e9 == 1810.0


def test_restarts_of_a_rollout_that_nobody_recorded_are_one_change(case: Case) -> None:
    rollout(case, ("llm-engine-0", 700.0), ("llm-engine-1", 1250.0), ("llm-engine-2", 1800.0))
    assert [row[1:3] for row in derived(case)] == [(700.0, "restart")]
    took_effect = case.scalar("SELECT effective_ns FROM change WHERE id = 'derived-1'")
    assert (took_effect - T0) / 1e9 == 1810.0


def test_a_restart_before_the_change_or_long_after_it_is_its_own(case: Case) -> None:
    rollout(case, ("llm-engine-0", 3000.0))
    record = add_source(case, "change")
    add_change(case, record, "c1", 60, "config", "deployment/llm-engine", "a: 1", "a: 2")
    assert [row[1:3] for row in derived(case)] == [(3000.0, "restart")]
    assert case.scalar("SELECT effective_ns FROM change WHERE id = 'c1'") is None


def test_a_restart_belongs_to_the_last_change_before_it(case: Case) -> None:
    rollout(case, ("llm-engine-0", 900.0))
    record = add_source(case, "change")
    add_change(case, record, "c1", 60, "config", "deployment/llm-engine", "a: 1", "a: 2")
    add_change(case, record, "c2", 800, "config", "deployment/llm-engine", "b: 1", "b: 2")
    derived(case)
    rows = case.rows("SELECT id, (effective_ns - ?) / 1e9 FROM change ORDER BY id", (T0,))
    assert rows == [("c1", None), ("c2", 910.0)]
