"""Blind spots: each with telemetry that has it and telemetry that has not."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from telemetry_builder import add_series, add_source, add_span, at

from rca.case import Case
from rca.findings import gather
from rca.gaps import look
from rca.roles import assign

LABELS = {
    "resource__service__version": "1.0",
    "resource__deployment__environment__name": "prod",
}


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def gaps(case: Case) -> dict[str, str]:
    """Code → statement of what was found, without the kinds of recordings that are absent."""
    assign(case)
    look(case)
    rows = case.rows("SELECT code, statement FROM gap")
    assert len({code for code, _ in rows}) == len(rows)
    absent = ("no_torch_profiler", "no_trace", "no_metrics", "no_change", "no_baseline", "no_log", "no_config",
              "no_gpu_metrics", "no_gpu_capture")  # fmt: skip
    return {code: statement for code, statement in rows if code not in absent}


def add_requests(case: Case, trace: int, count: int = 20) -> None:
    for i in range(count):
        add_span(case, trace, f"t{i}", "gateway", "POST /v1", i, span="root", **LABELS)
        add_span(case, trace, f"t{i}", "vllm", "llm_request", i, parent="root", **LABELS)


def every(last: int, *, without: range = range(0)) -> list[tuple[float, float]]:
    return [(t, 1.0) for t in range(0, last, 15) if t not in without]


def test_whole_traces_with_labels_have_no_blind_spot(case: Case) -> None:
    add_requests(case, add_source(case, "trace"))
    assert gaps(case) == {}


def test_spans_whose_parent_is_missing(case: Case) -> None:
    trace = add_source(case, "trace")
    add_requests(case, trace)
    for i in range(5):
        add_span(case, trace, f"t{i}", "worker", "decode", i, parent="gone", **LABELS)
    assert gaps(case)["orphaned_spans"].startswith("5 of 5 spans of worker name a parent")


def test_context_that_is_lost_between_prefill_and_decode(case: Case) -> None:
    trace = add_source(case, "trace")
    add_requests(case, trace)
    for i in range(5):
        add_span(case, trace, f"lost{i}", "vllm", "llm_request", i, **LABELS)
    for i in range(3):
        add_span(case, trace, f"start{i}", "vllm", "Load model", i, kind="internal", **LABELS)
    found = gaps(case)
    assert list(found) == ["lost_context"]
    assert found["lost_context"].startswith("5 spans of vllm begin a trace")


def test_spans_that_stand_for_a_batch(case: Case) -> None:
    trace = add_source(case, "trace")
    add_requests(case, trace)
    add_span(case, trace, "t0", "vllm", "execute", 1, parent="root", kind="internal",
             batch__size=8, **LABELS)  # fmt: skip
    add_span(case, trace, "t1", "vllm", "execute", 1, parent="root", kind="internal", **LABELS)
    links = [{"trace_id": "t1", "span_id": "t1-execute", "linked_trace_id": f"t{i}",
              "linked_span_id": "root", "attributes": "{}"} for i in range(4)]  # fmt: skip
    case.insert("span_link", pl.DataFrame(links), source_id=trace)
    assert gaps(case)["batch_mixed"].startswith(
        "2 spans execute of vllm stand for 6 requests each"
    )


def test_counters_of_batches(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "nv_inference_count", {"model": "m"}, [(0, 0), (15, 800)])
    add_series(case, metrics, "nv_inference_exec_count", {"model": "m"}, [(0, 0), (15, 100)])
    assert "batches of 8 requests" in gaps(case)["batch_mixed"]


def test_traces_that_are_a_sample(case: Case) -> None:
    add_requests(case, add_source(case, "trace"))
    metrics = add_source(case, "metrics")
    labels = {"service": "gateway", "instance": "g:1"}
    for ending, per_step in (("count", 40), ("sum", 4)):
        points = [(t, per_step * t / 15) for t in range(0, 46, 15)]
        name = f"http_server_request_duration_seconds_{ending}"
        add_series(case, metrics, name, labels, points, "counter")
    assert gaps(case)["sampled_traces"].startswith(
        "traces have 5 of the 120 requests of gateway"
    )


def test_engines_whose_memory_nobody_watches(case: Case) -> None:
    metrics = add_source(case, "metrics")
    for pod in ("llm-engine-0", "llm-engine-1"):
        add_series(case, metrics, "vllm:num_requests_running", {"pod": pod}, every(60))
    memory = "container_memory_working_set_bytes"
    add_series(case, metrics, memory, {"pod": "llm-engine-0"}, every(60))
    assert gaps(case)["no_instance_memory"] == "memory is recorded for 1 of 2 engine instances"
    add_series(case, metrics, memory, {"pod": "llm-engine-1"}, every(60))
    assert "no_instance_memory" not in gaps(case)


def test_a_clock_that_could_not_be_compared(case: Case) -> None:
    trace = add_source(case, "trace")
    add_source(case, "metrics")
    add_requests(case, trace)
    note = {
        "source_id": trace,
        "level": "info",
        "code": "clock_skew_unknown",
        "message": "no lag stands out",
        "count": 1,
    }
    case.insert("ingest_note", pl.DataFrame([note]))
    assert "no lag stands out" in gaps(case)["clock_skew_unknown"]


def test_pauses_of_the_scrapes(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "up", {"instance": "a:1"}, every(600))
    points = every(600, without=range(300, 361))
    add_series(case, metrics, "vllm:num_requests_waiting", {"instance": "a:1"}, points)
    add_series(case, metrics, "node_load1", {"instance": "b:1"}, every(600))
    found = gaps(case)
    assert (
        found["scrape_gaps"] == "a:1 could not be scraped for up to 90 s (usually every 15 s)"
    )


def test_labels_that_spans_lack(case: Case) -> None:
    trace = add_source(case, "trace")
    add_span(case, trace, "t", "gateway", "GET", 0, resource__service__version="1")
    add_span(case, trace, "t", "vllm", "llm_request", 0, parent="t-GET", **LABELS)
    assert gaps(case) == {
        "span_labels": "spans of gateway carry no deployment.environment.name"
    }


def test_one_environment_needs_no_name(case: Case) -> None:
    trace = add_source(case, "trace")
    add_span(case, trace, "t", "gateway", "GET", 0, resource__service__version="1")
    assert gaps(case) == {}


def test_requests_without_tenant_and_length(case: Case) -> None:
    trace = add_source(case, "trace", last_ns=at(100))
    add_requests(case, trace)
    gather(case)
    assert gaps(case)["request_attributes"] == "requests carry no tenant and no prompt length"


def test_memory_that_grows_with_nobody_looking(case: Case) -> None:
    metrics = add_source(case, "metrics", last_ns=at(600))
    labels = {"pod": "llm-engine-0"}
    name = "container_memory_working_set_bytes"
    add_series(case, metrics, name, labels, [(t, 1e9 + 1e6 * t) for t in range(0, 600, 15)])
    assign(case)
    gather(case)
    found = gaps(case)
    assert found["no_memory_total"].startswith("memory in use is recorded for host")
    assert "no_allocator" in found
    add_series(case, metrics, "container_spec_memory_limit_bytes", labels, every(600))
    assign(case)
    gather(case)
    assert "no_memory_total" not in gaps(case)


def test_a_capture_while_no_request_was_traced(case: Case) -> None:
    add_requests(case, add_source(case, "trace", last_ns=at(100)))
    profile = add_source(case, "torch_profiler", first_ns=at(500), last_ns=at(501))
    row = {"id": 0, "kind": "kernel", "name": "gemm", "start_ns": at(500), "dur_ns": 10}
    case.insert("gpu_op", pl.DataFrame([row]), source_id=profile)
    assert "capture_without_requests" in gaps(case)


def test_series_that_name_no_service(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "vllm:num_requests_waiting", {"le": "1"}, every(60))
    assert gaps(case)["series_labels"].startswith("1 of 1 series do not say")


def decided(case: Case) -> dict[str, tuple[str | None, str | None]]:
    """Code → what a gap would decide and how to record it."""
    assign(case)
    look(case)
    rows = case.rows("SELECT code, would_decide, record FROM gap")
    return {code: (decides, record) for code, decides, record in rows}


@pytest.mark.parametrize(
    ("kind", "words", "command"),
    [
        ("log", "evictions", "kubectl logs"),
        ("config", "a setting is at fault", "kubectl get deployment,configmap"),
        ("change", "at the onset", "changes.jsonl"),
    ],
)
def test_recordings_that_are_absent(case: Case, kind: str, words: str, command: str) -> None:
    decides, record = decided(case)[f"no_{kind}"]
    assert words in (decides or "")
    assert command in (record or "")
    add_source(case, kind)
    assert f"no_{kind}" not in decided(case)


def test_gpus_of_which_nothing_is_known(case: Case) -> None:
    metrics = add_source(case, "metrics")
    assert "no_gpu_metrics" not in decided(case)  # nobody said that there is an engine
    add_series(case, metrics, "vllm:num_requests_running", {"pod": "e-0"}, every(60))
    assert "dcgm-exporter" in (decided(case)["no_gpu_metrics"][1] or "")
    assert "no_gpu_capture" not in decided(case)  # there is no capture at all
    profile = add_source(case, "torch_profiler")
    assert "no_gpu_capture" not in decided(case)  # perhaps there is no GPU
    add_series(case, metrics, "DCGM_FI_DEV_SM_CLOCK", {"gpu": "0"}, every(60))
    assert "nsys profile" in (decided(case)["no_gpu_capture"][1] or "")
    row = {"id": 0, "kind": "kernel", "name": "gemm", "start_ns": at(5), "dur_ns": 10}
    case.insert("gpu_op", pl.DataFrame([row]), source_id=profile)
    assert not {"no_gpu_metrics", "no_gpu_capture"} & decided(case).keys()


def test_clocks_that_nothing_was_set_against(case: Case) -> None:
    change = add_source(case, "change")
    add_source(case, "log")
    assert "clock_unchecked" not in gaps(case)  # and nothing is there to set them against
    add_source(case, "metrics")
    assert gaps(case)["clock_unchecked"].startswith(
        "the clock of changes, logs was not checked"
    )
    case.execute("UPDATE source SET shift_error_ns = 0 WHERE id = ?", (change,))
    assert gaps(case)["clock_unchecked"].startswith("the clock of logs was not checked")


def test_versions_and_environments_of_series(case: Case) -> None:
    metrics = add_source(case, "metrics")
    running = "vllm:num_requests_running"
    add_series(case, metrics, running, {"service": "engine", "instance": "e:1"}, every(60))
    assert gaps(case)["series_versions"] == "series of engine carry no version"
    trace = add_source(case, "trace")
    add_span(case, trace, "t", "engine", "llm_request", 0, **LABELS)
    assert "series_versions" not in gaps(case)  # spans tell it
    case.execute("DELETE FROM span")
    add_series(
        case, metrics, running, {"service": "engine", "version": "1", "env": "prod"}, every(60)
    )
    assert "series_versions" not in gaps(case)
    add_series(case, metrics, "node_load1", {"service": "host"}, every(60))
    assert gaps(case)["series_versions"] == "series of host carry no environment"


def test_identifiers_as_labels(case: Case) -> None:
    metrics = add_source(case, "metrics")
    for i in range(60):
        labels = {"request_id": f"cmpl-{i}", "instance": f"pod-{i}", "service": "x"}
        add_series(case, metrics, "request_seconds", labels, [(0, 1), (15, 1)])
    found = gaps(case)
    assert found["identifier_labels"].startswith(
        "label request_id has 60 values (on request_seconds)"
    )
    assert "which service or replica" in (decided(case)["identifier_labels"][0] or "")


def test_what_would_decide_something_comes_first(case: Case) -> None:
    trace = add_source(case, "trace")
    add_span(case, trace, "t", "gateway", "GET", 0, resource__service__version="1")
    for i in range(5):
        add_span(case, trace, f"t{i}", "worker", "decode", i, parent="gone", **LABELS)
    look(case)
    decides = [
        row[0] is not None for row in case.rows("SELECT would_decide FROM gap ORDER BY rowid")
    ]
    assert decides == sorted(decides, reverse=True)
    assert decides[0]


def test_times_are_those_of_the_recording(case: Case) -> None:
    metrics = add_source(case, "metrics")
    add_series(
        case, metrics, "node_load1", {"instance": "b:1"}, every(600, without=range(300, 361))
    )
    assert case.rows("SELECT pauses, since_ns FROM scrape_pause") == [(1, at(285))]
