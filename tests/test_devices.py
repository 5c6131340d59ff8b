"""Hosts with several devices: labels told apart, memory by device, and the one that is ill named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
from telemetry_builder import T0, add_series, add_source, at

from rca.answer import Evidence
from rca.answer.wording import movement
from rca.case import Case
from rca.evidence import gather
from rca.findings.memory import fit
from rca.labels import told
from rca.roles import assign

MIB = 1_048_576
GIB = 1024  # MiB
Course = Callable[[str, int], float]  # (part, step) → value


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def labels_of(gpu: int) -> dict[str, str]:
    return {
        "gpu": str(gpu), "UUID": f"GPU-{gpu:04d}", "device": f"nvidia{gpu}", "Hostname": "node-3",
        "modelName": "NVIDIA H100 80GB HBM3", "instance": "10.0.0.3:9400", "job": "dcgm",
    }  # fmt: skip


def record(case: Case, gpus: Mapping[int, Mapping[str, Course]], steps: int = 40) -> None:
    """A healthy and an ill recording of metrics by GPU, one value every 15 s."""
    for part in ("baseline", "incident"):
        source = add_source(case, "metrics", part, last_ns=at(15 * steps))
        for gpu, metrics in gpus.items():
            for name, course in metrics.items():
                points = [(15.0 * i, course(part, i)) for i in range(steps)]
                add_series(case, source, name, labels_of(gpu), points)
    assign(case)


def steady(level: float) -> Course:
    return lambda part, i: level * (1 + 0.002 * (i % 3))


def ill(healthy: float, sick: float) -> Course:
    return lambda part, i: (sick if part == "incident" else healthy) * (1 + 0.002 * (i % 3))


def found(case: Case, role: str) -> dict[str, Any]:
    """The one row of evidence of a role, which its own query must give again."""
    gather(case)
    (row,) = case.sql(f"SELECT * FROM evidence WHERE role = '{role}'").to_dicts()
    assert case.rows(row["sql"])[0] == pytest.approx(
        (row["reference"], row["observed"], row["n_reference"], row["n_observed"])
    )
    return dict(row)


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", labels_of(1), ("dcgm", "10.0.0.3:9400", "GPU-0001", None, None, None)),
        ("DCGM_FI_DEV_SM_CLOCK", {"gpu": "1", "Hostname": "n1"}, ("", "n1", "n1/1", None, None, None)),
        ("nv_gpu_utilization", {"gpu_uuid": "GPU-7", "pod": "triton-0"}, ("triton", "triton-0", "GPU-7", None, None, None)),
        ("DCGM_FI_DEV_FB_USED", {"UUID": "GPU-7", "GPU_I_ID": "3"}, ("", "", "GPU-7/3", None, None, None)),
        ("nvidia_smi_memory_used", {"gpu": "0", "name": "NVIDIA L4"}, ("", "", "0", None, None, None)),
        ("vllm_kv_cache_usage_perc", {"model_name": "llama", "engine": "0", "instance": "a:8000"},
         ("a:8000", "a:8000", None, "llama", "vllm", None)),
        ("nv_inference_count", {"model": "llama"}, ("", "", None, "llama", "triton", None)),
        ("queue", {"model.id": "m", "device.id": "d", "runtime": "mlc", "replica": "r", "tenant": "t"},
         ("", "r", "d", "m", "mlc", "t")),
        ("vllm_e2e_request_latency_seconds_sum", {"inference_type": "pytorch", "tenant_id": "t", "service.name": "s"},
         ("s", "", None, None, "pytorch", "t")),
        ("up", {}, ("", "", None, None, None, None)),
    ],
)  # fmt: skip
def test_what_labels_tell(
    name: str, labels: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    assert tuple(told(name, labels)) == expected


def test_labels_stand_beside_the_roles_of_a_series(case: Case) -> None:
    source = add_source(case, "metrics")
    labels = {"model_name": "llama", "tenant": "acme", "instance": "a:8000"}
    add_series(case, source, "vllm:num_requests_running", labels, [(0, 1)])
    add_series(case, source, "DCGM_FI_DEV_GPU_TEMP", labels_of(2), [(0, 50)])
    assign(case)
    assert case.rows(
        "SELECT role, device, model, runtime, tenant, devices FROM series_role ORDER BY role"
    ) == [
        ("gpu_temperature", "GPU-0002", None, None, None, "max"),
        ("running", None, "llama", "vllm", "acme", "sum"),
    ]


def test_memory_of_two_devices_is_told_by_device_and_summed(case: Case) -> None:
    """One leaks from 40 to 64 of 80 GiB, the other holds 40: 104 of 160 GiB at the end, 65 %."""
    leak: Course = lambda part, i: (40 + 24 * i / 39 * (part == "incident")) * GIB  # noqa: E731
    free: Course = lambda part, i: 80 * GIB - leak(part, i)  # noqa: E731
    held = dict.fromkeys(
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"), lambda part, i: 40.0 * GIB
    )
    record(case, {0: {"DCGM_FI_DEV_FB_USED": leak, "DCGM_FI_DEV_FB_FREE": free}, 1: held})
    fit(case)
    rows = case.rows(
        "SELECT device, devices, round(most_bytes / 1073741824), round(total_bytes / 1073741824), round(used_share, 3), "
        "round(growth_bytes_per_s * 585 / 1073741824) FROM memory_use WHERE part = 'incident' ORDER BY device NULLS FIRST"
    )
    assert rows == [
        (None, 2, 104.0, 160.0, 0.65, 24.0),
        ("GPU-0000", 1, 64.0, 80.0, 0.8, 24.0),
        ("GPU-0001", 1, 40.0, 80.0, 0.5, 0.0),
    ]


def test_a_total_of_devices_is_not_known_when_that_of_one_is_not(case: Case) -> None:
    used = {"DCGM_FI_DEV_FB_USED": steady(40 * GIB)}
    record(case, {0: {**used, "DCGM_FI_DEV_FB_TOTAL": steady(80 * GIB)}, 1: used})
    fit(case)
    rows = case.rows(
        "SELECT device, total_bytes IS NULL FROM memory_use WHERE part = 'incident' ORDER BY 1 NULLS FIRST"
    )
    assert rows == [(None, True), ("GPU-0000", False), ("GPU-0001", True)]


def test_what_a_driver_reserves_belongs_to_the_total(case: Case) -> None:
    sizes = {"USED": 60, "FREE": 19, "RESERVED": 1}
    record(
        case,
        {0: {f"DCGM_FI_DEV_FB_{k}": lambda part, i, v=v: v * GIB for k, v in sizes.items()}},
    )  # type: ignore[misc]
    fit(case)
    rows = case.rows(
        "SELECT device, devices, total_bytes / 1073741824, used_share FROM memory_use WHERE part = 'incident'"
    )
    assert rows == [("GPU-0000", 1, 80.0, 0.75)]


def test_devices_read_one_after_the_other_are_summed_at_the_same_time(case: Case) -> None:
    """nvidia-smi writes a line a GPU, each with the time at which it was read."""
    source = add_source(case, "metrics")
    for gpu in (0, 1):
        points = [(10.0 * i + 0.004 * gpu, 10.0 + gpu) for i in range(9)]
        add_series(
            case,
            source,
            "nvidia_smi_memory_used",
            {"gpu": str(gpu), "uuid": f"GPU-{gpu}"},
            points,
        )
    assign(case)
    fit(case)
    rows = case.rows(
        "SELECT device, first_bytes, most_bytes FROM memory_use ORDER BY device NULLS FIRST"
    )
    assert rows == [
        (None, 21.0 * MIB, 21.0 * MIB), ("GPU-0", 10.0 * MIB, 10.0 * MIB), ("GPU-1", 11.0 * MIB, 11.0 * MIB),
    ]  # fmt: skip


CLOCK, UTIL = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL"


def test_one_throttled_device_of_eight_is_named(case: Case) -> None:
    busy = {UTIL: steady(95)}
    gpus: dict[int, Mapping[str, Course]] = {i: {**busy, CLOCK: steady(1980)} for i in range(8)}
    record(case, gpus | {5: {**busy, CLOCK: ill(1980, 900)}})
    row = found(case, "sm_clock")
    assert row["statement"] == (
        "clock of the SMs of dcgm on device GPU-0005 (the others stayed) fell against the baseline"
    )
    assert row["direction"] == "down" and row["strength"] < -0.9
    assert (round(row["reference"], -1), round(row["observed"], -1)) == (1980, 900)
    assert (row["service"], row["device"]) == ("dcgm", "GPU-0005")
    told = Evidence(**{f.name: row[f.name] for f in fields(Evidence)})
    assert movement(told).startswith("dcgm GPU-0005 SM clock 1,98")
    assert found(case, "gpu_util")["direction"] == "flat"


def test_an_idle_device_is_not_called_throttled(case: Case) -> None:
    """Clocks fall when there is nothing to do."""
    gpus: dict[int, Mapping[str, Course]] = {
        i: {UTIL: steady(95), CLOCK: steady(1980)} for i in range(8)
    }
    record(case, gpus | {5: {UTIL: ill(95, 2), CLOCK: ill(1980, 345)}})
    assert "GPU-0005" in found(case, "gpu_util")["statement"]
    clock = found(case, "sm_clock")
    assert "device" not in clock["statement"]
    assert clock["observed"] == pytest.approx((7 * 1980 + 345) / 8, rel=0.01)


def test_devices_that_move_together_are_told_together(case: Case) -> None:
    record(case, {i: {CLOCK: ill(1980, 900)} for i in range(4)})
    assert "device" not in found(case, "sm_clock")["statement"]


def test_growth_of_one_devices_memory_is_named(case: Case) -> None:
    leak: Course = lambda part, i: 40 * GIB + 50.0 * i * (part == "incident") + 20 * (i % 2)  # noqa: E731
    gpus: dict[int, Mapping[str, Course]] = {
        i: {"DCGM_FI_DEV_FB_USED": lambda part, i: 40.0 * GIB + 20 * (i % 2)} for i in range(3)
    }
    record(case, gpus | {1: {"DCGM_FI_DEV_FB_USED": leak}})
    row = found(case, "gpu_memory_growth")
    assert "on device GPU-0001 (the others stayed) rose" in row["statement"]
    assert row["observed"] == pytest.approx(50 * MIB / 15, rel=0.05)


def test_the_hottest_of_several_devices_counts(case: Case) -> None:
    record(case, {i: {"DCGM_FI_DEV_GPU_TEMP": steady(40 + 20 * i)} for i in range(3)}, steps=1)
    assert case.rows("SELECT part, value FROM role_value WHERE role = 'gpu_temperature' ORDER BY part") == [
        ("baseline", 80.0), ("incident", 80.0),
    ]  # fmt: skip


def test_one_device_keeps_its_mean_of_both_sensors(case: Case) -> None:
    source = add_source(case, "metrics")
    for name, degrees in (("GPU", 60), ("MEMORY", 80)):
        add_series(case, source, f"DCGM_FI_DEV_{name}_TEMP", labels_of(0), [(0, degrees)])
    assign(case)
    assert case.rows(
        "SELECT ts_ns, num, den FROM role_value WHERE role = 'gpu_temperature'"
    ) == [(T0, 140.0, 2.0)]
