"""Hosts by a formula: the telemetry tells of them by real names, and catalogue and faults agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_reproduce import SHORT, _series, _spans, _values
from typer.testing import CliRunner

from rca.catalogue import load
from rca.cli import app
from rca.errors import CauseError
from rca.models.cpu_quota import CpuQuota
from rca.models.experiment import run
from rca.models.faults import FAULTS, find, names
from rca.models.reproduce import reproduce
from rca.models.settings import MS


def _made(cause: str, folder: Path, **options: float) -> Path:
    return reproduce(cause, folder / "b", engine="twin", seed=2, lengths=SHORT, **options)  # type: ignore[arg-type]


def _first_and_last(folder: Path, name: str, **labels: str) -> tuple[float, float]:
    (series,) = (
        s for s in _series(folder)[name] if s["metric"].items() >= labels.items()
    )  # fmt: skip
    values = _values(series)
    return values[1], values[-1]


def test_what_the_catalogue_promises_can_be_made_and_nothing_else() -> None:
    for cause, known in load().items():
        fault = FAULTS[cause]
        if known.reproducible == "no":
            assert not fault.reproducible, cause
            continue
        assert fault.reproducible, cause
        assert fault.by_model == (known.reproducible == "model"), cause


def test_work_beyond_the_limit_waits_for_the_next_period() -> None:
    half = CpuQuota(0.5)
    assert half.stretch(0, 30 * MS, 30 * MS) == 30 * MS
    assert half.stretch(30 * MS, 30 * MS, 30 * MS) == 80 * MS  # 20 now, 10 after the pause
    assert (half.periods, half.throttled, half.throttled_ns) == (2, 1, 50 * MS)
    assert half.stretch(310 * MS, 50 * MS, 100 * MS) == 115 * MS  # two threads use it up sooner
    assert CpuQuota(4.0).stretch(0, 250 * MS, 250 * MS) == 250 * MS


def test_a_throttled_gpu_is_told_by_its_exporter(tmp_path: Path) -> None:
    out = _made("gpu_thermal_or_power_throttle", tmp_path)
    begin, end = _first_and_last(out / "incident", "DCGM_FI_DEV_SM_CLOCK")
    assert end < 0.8 * begin
    assert _first_and_last(out / "incident", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == (0, 0x20)
    begin, end = _first_and_last(out / "incident", "DCGM_FI_DEV_GPU_TEMP")
    assert end > begin + 15
    assert _first_and_last(out / "baseline", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == (0, 0)
    (series,) = _series(out / "baseline")["DCGM_FI_DEV_SM_CLOCK"]
    assert "no GPU was measured" in series["metric"]["modelName"]
    (started,) = _series(out / "incident")["process_start_time_seconds"]
    assert len(set(_values(started))) == 1, "heat starts no process anew"


def test_a_cpu_limit_is_told_by_cadvisor_and_by_the_change(tmp_path: Path) -> None:
    out = _made("cpu_limit_throttling", tmp_path)
    throttled = "container_cpu_cfs_throttled_periods_total"
    assert _first_and_last(out / "baseline", throttled) == (0, 0)
    assert _first_and_last(out / "incident", throttled)[1] > 20
    assert _first_and_last(out / "baseline", "container_cpu_cfs_periods_total")[1] > 20
    assert "cpu: 690m" in (out / "incident" / "config" / "llm-engine.yaml").read_text()
    changes = (out / "incident" / "changes.jsonl").read_text()
    assert "resources.limits.cpu: 4000m" in changes


def test_a_slow_path_lies_between_the_gateways_call_and_the_engine(tmp_path: Path) -> None:
    out = _made("network_degraded", tmp_path)
    gaps = {}
    for part in ("baseline", "incident"):
        spans = {span["spanId"]: span for span in _spans(out / part)}
        pairs = [
            (spans[s["parentSpanId"]], s) for s in spans.values() if s["name"] == "llm_request"
        ]
        assert {call["kind"] for call, _ in pairs} == {3}
        late = sorted(
            int(s["startTimeUnixNano"]) - int(call["startTimeUnixNano"]) for call, s in pairs
        )
        gaps[part] = late[-len(late) // 4]
    assert gaps["baseline"] == MS // 2
    assert gaps["incident"] > 70 * MS
    assert _first_and_last(out / "incident", "node_netstat_Tcp_RetransSegs")[1] > 10


def test_a_router_loads_one_of_two_recorded_replicas(tmp_path: Path) -> None:
    out = _made("router_imbalance", tmp_path)
    served = {}
    for part in ("baseline", "incident"):
        finished = [
            _first_and_last(
                out / part,
                "vllm:request_success_total",
                pod=f"llm-engine-{number}",
                finished_reason="length",
            )
            for number in (0, 1)
        ]
        served[part] = [end - begin for begin, end in finished]
        (count,) = _series(out / part)["http_server_request_duration_seconds_count"]
        told = _values(count)[-1] - _values(count)[1]
        assert told == pytest.approx(sum(served[part]), abs=4), "the gateway sees both"
    assert 0.6 < served["baseline"][0] / served["baseline"][1] < 1.6
    assert served["incident"][0] > 1.5 * served["incident"][1]


@pytest.mark.parametrize("cause", [f.cause for f in FAULTS.values() if f.by_model])
def test_torch_does_not_pretend_and_the_twin_never_validates(
    cause: str, tmp_path: Path
) -> None:
    with pytest.raises(CauseError, match="cost model") as caught:
        reproduce(cause, tmp_path / "b", engine="torch")
    assert caught.value.hint == "add --engine twin"
    found = run(cause, budget_s=60.0)
    assert (found.status, found.pairs) == ("mechanism_only", 0)
    assert "cost model" in found.reason
    assert found.fault
    assert "has_" not in found.fault, "what makes a host visible is no fault"


def test_a_healthy_service_has_no_telemetry_of_a_host_that_is_not_modelled(
    tmp_path: Path,
) -> None:
    out = _made("healthy", tmp_path)
    told = {name for name in _series(out / "incident") if name.startswith(("DCGM", "node_net"))}
    assert told == set()


@pytest.mark.parametrize(
    ("duration", "is_long_enough"), [("5s", False), ("14s", False), ("15s", True)]
)
def test_a_duration_that_leaves_no_room_is_refused(
    duration: str, is_long_enough: bool, tmp_path: Path
) -> None:
    asked = ["reproduce", "overload", "--engine", "twin", "--duration", duration]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "b"), "-q"])
    assert (done.exit_code == 0) == is_long_enough
    if not is_long_enough:
        assert "at least 15s" in str(getattr(done.exception, "hint", ""))
        assert not (tmp_path / "b").exists()


def test_the_names_beside_the_causes_are_offered() -> None:
    with pytest.raises(CauseError) as caught:
        find("nonsense")
    assert caught.value.hint == f"one of: {', '.join(names())}"
    assert {"healthy", "red_herring", "model_without_tokenizer"} <= set(names())
    told = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}).output
    for name in ("red_herring", "model_without_tokenizer", "A+B"):
        assert name in told
    document = (Path(__file__).parent.parent / "docs" / "reproducer.md").read_text()
    for name in ("red_herring", "model_without_tokenizer", "A+B"):
        assert f"`{name}`" in document or f"`{name}`," in document
