"""Bundles of the reproducer: complete, consistent, and silent about their cause."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rca.errors import BundleError, CauseError, MissingExtra
from rca.models.faults import FAULTS
from rca.models.reproduce import Lengths, reproduce

SHORT = Lengths(baseline_s=15, lead_in_s=15, fault_s=15, profiled_steps=4)
SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("[0-9]*"))
_HERE = re.compile(r"/(tmp|home|root|Users)\b")  # no path of the machine that recorded
_STEP = re.compile(r"execute_context_\d+\(\d+\)_generation_\d+\(\d+\)")
TWINS = [fault.cause for fault in FAULTS.values() if fault.reproducible]


def _texts(folder: Path) -> dict[Path, str]:
    return {
        path: (gzip.decompress(data) if path.suffix == ".gz" else data).decode(
            "utf-8", "replace"
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for data in [path.read_bytes()]
    }


def _series(folder: Path) -> dict[str, list[dict[str, Any]]]:
    answer = json.loads(gzip.decompress((folder / "metrics.json.gz").read_bytes()))
    found: dict[str, list[dict[str, Any]]] = {}
    for series in answer["data"]["result"]:
        found.setdefault(series["metric"]["__name__"], []).append(series)
    return found


def _values(series: dict[str, Any]) -> list[float]:
    return [float(value) for _, value in series["values"]]


def _spans(folder: Path) -> list[dict[str, Any]]:
    text = gzip.decompress((folder / "traces.jsonl.gz").read_bytes()).decode()
    return [
        span
        for line in text.splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("twin") / "bundle"
    return reproduce("kv_pool_too_small", out, engine="twin", seed=3, lengths=SHORT)


def test_the_twin_gives_the_same_bytes(twin: Path, tmp_path: Path) -> None:
    again = reproduce("kv_pool_too_small", tmp_path / "b", engine="twin", seed=3, lengths=SHORT)
    for path in twin.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (again / path.relative_to(twin)).read_bytes()


def test_truth_and_change_agree(twin: Path) -> None:
    truth = tomllib.loads((twin / "truth.toml").read_text())
    assert (truth["cause"], truth["class"], truth["kind"]) == (
        "kv_pool_too_small",
        "config",
        "fault",
    )
    assert truth["end_ns"] - truth["injected_start_ns"] == 15_000_000_000
    lines = (twin / "incident" / "changes.jsonl").read_text().splitlines()
    changes = {change["id"]: change for change in map(json.loads, lines)}
    assert len(changes) == 4  # three decoys
    change = changes[truth["change"]]
    assert change["subject"] == "deployment/llm-engine"
    deployed = yaml.safe_load((twin / "incident" / "config" / "llm-engine.yaml").read_text())
    args = deployed["spec"]["template"]["spec"]["containers"][0]["args"]
    assert change["after"] in args
    assert change["before"] not in args


def test_metrics_carry_the_fault_and_restart_with_the_process(twin: Path) -> None:
    series = _series(twin / "incident")
    (preempted,) = series["vllm:num_preemptions_total"]
    assert _values(preempted)[14] == 0 < _values(preempted)[-1]
    (started,) = series["process_start_time_seconds"]
    assert len(set(_values(started))) == 2
    assert preempted["metric"].keys() >= {"model_name", "engine", "job", "instance"}
    assert len(preempted["values"]) == 30
    healthy = _series(twin / "baseline")["vllm:num_preemptions_total"]
    assert set(_values(healthy[0])) == {0.0}


def test_histograms_are_cumulative_and_agree_with_the_spans(twin: Path) -> None:
    series = _series(twin / "baseline")
    buckets = series["vllm:e2e_request_latency_seconds_bucket"]
    last = [_values(bucket)[-1] for bucket in buckets]
    assert last == sorted(last)
    (count,) = series["vllm:e2e_request_latency_seconds_count"]
    assert last[-1] == _values(count)[-1]
    finished = _values(count)[-1] - _values(count)[0]
    spans = [span for span in _spans(twin / "baseline") if span["name"] == "llm_request"]
    assert abs(finished - len(spans)) <= 6  # requests across the edges


def test_spans_form_trees_and_their_parts_add_up(twin: Path) -> None:
    spans = _spans(twin / "incident")
    ids = {span["spanId"] for span in spans}
    assert len(ids) == len(spans)
    assert all(span.get("parentSpanId", "") in ids | {""} for span in spans)
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if span["name"] == "llm_request":
            values = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
            lasts = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
            assert values["gen_ai.latency.e2e"] * 1e9 == pytest.approx(lasts, abs=1000)
            parts = ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
            total = sum(values[f"gen_ai.latency.{part}"] for part in parts)
            assert total <= values["gen_ai.latency.e2e"] + 1e-9


@pytest.mark.parametrize("cause", TWINS)
def test_no_file_but_the_truth_names_the_fault(cause: str, tmp_path: Path) -> None:
    out = reproduce(cause, tmp_path / "b", engine="twin", lengths=SHORT)
    assert json.dumps(cause) in (out / "truth.toml").read_text() or cause == "healthy"
    for part in ("incident", "baseline"):
        for path, text in _texts(out / part).items():
            assert cause not in text, path
            assert not re.search(r"fault|inject|reproduc|twin", text), path


def test_a_dose_of_zero_is_healthy(tmp_path: Path) -> None:
    out = reproduce("overload", tmp_path / "b", engine="twin", dose=0, lengths=SHORT)
    truth = tomllib.loads((out / "truth.toml").read_text())
    assert (truth["kind"], truth["cause"], truth["changes"]) == ("healthy", "", [])


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(CauseError, match="cannot be reproduced: it needs several GPUs"):
        reproduce("collective_straggler", tmp_path / "b")
    with pytest.raises(CauseError, match="no engine is called steam"):
        reproduce("overload", tmp_path / "b", engine="steam")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(BundleError, match="not empty"):
        reproduce("overload", tmp_path / "full", engine="twin")


def test_without_torch_the_twin_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("rca.models.worker", "rca.models.decoder")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'trace-rca\[torch\]'"):
        reproduce("overload", tmp_path / "torch", engine="torch", lengths=SHORT)
    reproduce("overload", tmp_path / "twin", engine="twin", lengths=SHORT)
    assert (tmp_path / "twin" / "incident" / "metrics.json.gz").exists()


@pytest.mark.slow
def test_a_torch_bundle_has_profiles_on_its_own_clock(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    out = reproduce("logits_processor_leak", tmp_path / "b", seed=1, lengths=SHORT)
    stacks = {}
    for part in ("incident", "baseline"):
        (path,) = (out / part).glob("*.pt.trace.json.gz")
        trace = json.loads(gzip.decompress(path.read_bytes()))
        ranges = [e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
        steps = [event for event in ranges if _STEP.fullmatch(event["name"])]
        assert len(steps) == 4
        assert {event["name"] for event in ranges if event not in steps} == {"detokenize"}
        first_us = min(event["ts"] for event in steps)
        at_ns = trace["baseTimeNanoseconds"] + int(first_us * 1000)
        (up,) = (s for s in _series(out / part)["up"] if s["metric"]["job"] == "llm-engine")
        assert 0 < at_ns - up["values"][-1][0] * 1e9 < 15e9
        ops = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
        stacks[part] = ops.count("aten::stack")
        assert not _HERE.search(json.dumps(trace))
    assert stacks["incident"] > 0 == stacks["baseline"]
    (memory,) = _series(out / "incident")["process_resident_memory_bytes"]
    assert _values(memory)[-1] - _values(memory)[17] > 20 << 20


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_small_complete_and_silent(sample: Path) -> None:
    size = sum(path.stat().st_size for path in sample.rglob("*") if path.is_file())
    assert size < 2_000_000
    truth = tomllib.loads((sample / "truth.toml").read_text())
    named = sample.name[3:] if sample.name[3:] in FAULTS else truth["cause"] or "healthy"
    assert named == (truth["cause"] or "healthy")
    for part in ("incident", "baseline"):
        names = {re.sub(r"\d{10,}", "N", p.name) for p in (sample / part).rglob("*.*")}
        assert names >= {
            "metrics.json.gz",
            "traces.jsonl.gz",
            "llm-engine.yaml",
            "llm-engine-0.N.pt.trace.json.gz",
        }
        for path, text in _texts(sample / part).items():
            assert not _HERE.search(text), path
            for word in (truth["cause"], "leak", "mismatch", "too_small"):
                assert not word or word not in text, (path, word)


def test_the_samples_are_numbered_small_and_of_all_classes() -> None:
    assert [path.name[:2] for path in SAMPLES] == [f"{n:02}" for n in range(1, 15)]
    files = [path for sample in SAMPLES for path in sample.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25_000_000
    truths = [tomllib.loads((sample / "truth.toml").read_text()) for sample in SAMPLES]
    assert {truth["class"] for truth in truths} - {""} == {
        "code-regression",
        "config",
        "infra",
        "dependency",
        "traffic-spike",
    }
    assert [truth["kind"] for truth in truths].count("healthy") == 2
    assert [len(truth["causes"]) for truth in truths].count(2) == 1


def test_two_faults_leave_two_changes_and_the_red_herring_none(tmp_path: Path) -> None:
    both = "dependency_slow+tiny_batch"
    out = reproduce(both, tmp_path / "both", engine="twin", lengths=SHORT)
    truth = tomllib.loads((out / "truth.toml").read_text())
    assert truth["causes"] == ["dependency_slow", "tiny_batch"]
    assert truth["acceptable"] == ["tiny_batch"]
    assert len(set(truth["changes"])) == 2
    calm = reproduce("red_herring", tmp_path / "calm", engine="twin", lengths=SHORT)
    truth = tomllib.loads((calm / "truth.toml").read_text())
    assert (truth["kind"], truth["cause"], truth["changes"]) == ("healthy", "", [])
    (memory,) = _series(calm / "incident")["process_resident_memory_bytes"]
    assert _values(memory)[-1] - _values(memory)[14] > 10 << 20


@pytest.mark.parametrize("cause", ["structured_output_compile", "healthy"])
def test_requests_for_a_structured_answer_say_so(tmp_path: Path, cause: str) -> None:
    out = reproduce(cause, tmp_path / "b", engine="twin", lengths=SHORT)
    requests = [s for s in _spans(out / "incident") if s["name"] == "POST /v1/completions"]
    asked = [s for s in requests if "gen_ai.output.type" in str(s["attributes"])]
    assert 0.15 < len(asked) / len(requests) < 0.45, "three in ten, whatever is wrong"


def test_what_the_log_takes_is_counted_as_written(tmp_path: Path) -> None:
    out = reproduce("verbose_logging", tmp_path / "b", engine="twin", lengths=SHORT)
    (healthy,) = _series(out / "baseline")["container_fs_writes_bytes_total"]
    (logging,) = _series(out / "incident")["container_fs_writes_bytes_total"]
    assert max(_values(healthy)) == 0
    assert _values(logging)[-1] > 10_000


def test_an_engine_that_ignores_who_has_gone_goes_on_after_its_caller(tmp_path: Path) -> None:
    out = reproduce(
        "zombie_requests_after_disconnect", tmp_path / "b", engine="twin", lengths=SHORT
    )
    spans = _spans(out / "incident")
    ends = {
        (s["traceId"], s["name"]): int(s["endTimeUnixNano"])
        for s in spans
        if s["name"] in ("POST /v1/completions", "llm_request")
    }
    status = {"key": "http.response.status_code", "value": {"intValue": "499"}}
    gone = {s["traceId"] for s in spans if status in s["attributes"]}
    after = [
        ends[t, "llm_request"] - ends[t, "POST /v1/completions"]
        for t in gone
        if (t, "llm_request") in ends
    ]
    assert after
    assert min(after) > 0
    others = {t for t, name in ends if name == "llm_request"} - gone
    assert all(ends[t, "llm_request"] < ends[t, "POST /v1/completions"] for t in others)
