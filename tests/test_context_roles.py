"""Signals of logs and of attributes of requests, on small telemetry."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from telemetry_builder import T0, add_series, add_source, add_span, at

from rca.case import Case
from rca.catalogue import load
from rca.hypotheses.change_fit import engines
from rca.roles import assign
from rca.signals import meanings


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def values(
    case: Case, role: str, part: str = "incident", service: str = "%"
) -> list[tuple[float, float, float]]:
    """(seconds, num, den) of a role, as evidence sees it."""
    return case.rows(
        "SELECT (ts_ns - ?) / 1e9, num, den FROM signal_value WHERE role = ? AND part = ? AND service LIKE ? ORDER BY ALL",
        (T0, role, part, service),
    )


def add_lines(case: Case, source: int, lines: list[tuple[float, str, str]]) -> None:
    rows = [
        {"ts_ns": at(s), "level": level, "template": text, "message": text, "fields": "{}"}
        for s, level, text in lines
    ]
    case.insert("log", pl.DataFrame(rows), source_id=source)


def add_request(
    case: Case, source: int, key: str, seconds: float, **attributes: object
) -> None:
    add_span(case, source, key, "gateway", "POST /v1/completions", seconds, **attributes)  # type: ignore[arg-type]


def test_lines_a_second_with_silence_counted(case: Case) -> None:
    log = add_source(case, "log")
    lines = [
        (0, "info", "start"),
        (12, "info", "a"),
        (13, "info", "a"),
        (41, "info", "b"),
        (55, "info", "c"),
    ]
    add_lines(case, log, lines)
    assert values(case, "log_rate") == [
        (10.0, 2.0, 10.0), (20.0, 0.0, 10.0), (30.0, 0.0, 10.0), (40.0, 1.0, 10.0),
    ]  # fmt: skip


def test_errors_of_a_kind_that_the_baseline_never_wrote(case: Case) -> None:
    healthy, log = add_source(case, "log", "baseline"), add_source(case, "log")
    add_lines(case, healthy, [(0, "info", "x"), (15, "warning", "known"), (40, "info", "x")])
    add_lines(case, log, [(0, "info", "x"), (15, "warning", "known"), (25, "error", "lost"),
                          (26, "error", "lost"), (27, "info", "fresh"), (50, "info", "x")])  # fmt: skip
    assert values(case, "new_log_template") == [
        (10.0, 0.0, 10.0), (20.0, 2.0, 10.0), (30.0, 0.0, 10.0), (40.0, 0.0, 10.0),
    ]  # fmt: skip
    assert {num for _, num, _ in values(case, "new_log_template", "baseline")} == {0.0}


def test_without_a_baseline_the_first_third_of_the_log_is_known(case: Case) -> None:
    log = add_source(case, "log")
    add_lines(case, log, [(0, "info", "x"), (15, "warning", "early"), (60, "warning", "early"),
                          (65, "warning", "late"), (90, "info", "x")])  # fmt: skip
    assert [(s, n) for s, n, _ in values(case, "new_log_template") if n] == [(60.0, 1.0)]


def test_size_of_answers_from_spans_and_from_metrics(case: Case) -> None:
    trace, metrics = add_source(case, "trace"), add_source(case, "metrics")
    add_request(case, trace, "a", 1, http__response__body__size=1200)
    add_request(case, trace, "b", 2)
    name = "http_server_response_body_size_bytes"
    labels = {"service": "gateway"}
    add_series(case, metrics, f"{name}_sum", labels, [(0, 0), (15, 3000)], "counter")
    add_series(case, metrics, f"{name}_count", labels, [(0, 0), (15, 2)], "counter")
    assign(case)
    assert values(case, "response_bytes") == [(1.0, 1200.0, 1.0), (15.0, 3000.0, 2.0)]


def test_share_of_structured_answers(case: Case) -> None:
    trace = add_source(case, "trace")
    add_request(case, trace, "a", 1, gen_ai__request__response_format="json_schema")
    add_request(case, trace, "b", 2, gen_ai__request__response_format="text")
    add_request(case, trace, "c", 3)
    add_request(case, trace, "d", 4)
    add_span(case, trace, "d", "vllm", "llm_request", 4, parent="d-POST /v1/completions", guided_json="{}",
             structured_outputs=True)  # fmt: skip
    assert [(s, n) for s, n, _ in values(case, "schema_share")] == [
        (1, 1),
        (2, 0),
        (3, 0),
        (4, 1),
    ]


def test_without_a_sign_of_structured_answers_their_share_is_not_known(case: Case) -> None:
    trace = add_source(case, "trace")
    add_request(case, trace, "a", 1)
    assert values(case, "schema_share") == []


def test_adapters_that_wait_are_read_from_the_series_in_force(case: Case) -> None:
    metrics = add_source(case, "metrics")
    start = T0 / 1e9
    target = {"instance": "e0:8000", "service": "llm-engine", "max_lora": "2"}
    idle = {**target, "running_lora_adapters": "a", "waiting_lora_adapters": ""}
    busy = {**target, "running_lora_adapters": "a,b", "waiting_lora_adapters": "c,d,e"}
    name = "vllm:lora_requests_info"
    add_series(case, metrics, name, idle, [(0, start), (15, start + 14), (30, start + 14)])
    add_series(case, metrics, name, busy, [(30, start + 29)])
    add_series(case, metrics, "vllm:num_requests_running", target, [(0, 1), (15, 1)])
    assign(case)
    assert values(case, "lora_waiting") == [(0.0, 0.0, 1.0), (15.0, 0.0, 1.0), (30.0, 3.0, 1.0)]
    found = case.rows("SELECT DISTINCT service FROM signal_value WHERE role = 'lora_waiting'")
    assert found == [("llm-engine",)]


def test_versions_that_do_not_belong_together(case: Case) -> None:
    trace = add_source(case, "trace")
    pairs = [("7", "7")] * 6 + [("8", "7"), ("8", "7"), ("8", "8"), ("8", "8")]
    for i, (model, tokenizer) in enumerate(pairs):
        add_request(case, trace, f"t{i}", i)
        add_span(case, trace, f"t{i}", "token-service", "tokenise", i, parent=f"t{i}-POST /v1/completions",
                 tokenizer__version=tokenizer)  # fmt: skip
        add_span(case, trace, f"t{i}", "vllm", "llm_request", i, parent=f"t{i}-POST /v1/completions",
                 model__version=model)  # fmt: skip
    assert [n for _, n, _ in values(case, "version_skew", service="")] == [0] * 6 + [1, 1, 0, 0]


def test_versions_that_count_differently_are_held_to_their_usual_partner(case: Case) -> None:
    trace = add_source(case, "trace")
    pairs = [("llama-3.1", "v41")] * 6 + [("llama-3.3", "v41")] + [("llama-3.3", "v42")] * 3
    for i, (model, cache) in enumerate(pairs):
        add_request(case, trace, f"t{i}", i, model__version=model, cache__model_version=cache)
    assert [n for _, n, _ in values(case, "cache_version_skew", service="")] == [0] * 6 + [
        1,
        0,
        0,
        0,
    ]


def test_a_new_model_that_never_meets_its_own_tokenizer(case: Case) -> None:
    trace = add_source(case, "trace")
    for i, model in enumerate(["emb-4"] * 6 + ["emb-5"] * 3):
        add_request(case, trace, f"t{i}", i, model__version=model, tokenizer__version="emb-4")
    assert [n for _, n, _ in values(case, "version_skew", service="")] == [0] * 6 + [1] * 3


def test_one_request_that_two_models_answer(case: Case) -> None:
    trace = add_source(case, "trace")
    for i, other in enumerate(["1", "1", "2"]):
        add_request(case, trace, f"t{i}", i, model__version="1", tokenizer__version="1")
        add_span(case, trace, f"t{i}", "vllm", "llm_request", i, parent=f"t{i}-POST /v1/completions",
                 model__version=other)  # fmt: skip
    assert [n for _, n, _ in values(case, "version_skew", service="")] == [0, 0, 1]


def test_a_service_that_answers_with_two_versions_at_once(case: Case) -> None:
    trace = add_source(case, "trace")
    versions = [
        (1, "7", "a"),
        (5, "7", "a"),
        (12, "7", "a"),
        (15, "8", "a"),
        (22, "8", "a"),
        (25, "1", "b"),
    ]
    for second, version, model in versions:
        add_request(
            case, trace, f"t{second}", second, model__version=version, model__name=model
        )
    found = values(case, "version_skew", service="gateway")
    assert found == [(0.0, 0.0, 1.0), (10.0, 1.0, 1.0), (20.0, 0.0, 1.0)]


def test_tenants_that_the_baseline_does_not_know(case: Case) -> None:
    healthy, trace = add_source(case, "trace", "baseline"), add_source(case, "trace")
    for i in range(9):
        add_request(case, healthy, f"h{i}", i, tenant__id="abc"[i // 3])
    for i, tenant in enumerate("abcdd"):
        add_request(case, trace, f"t{i}", 100 + i, tenant__id=tenant)
    assert [n for _, n, _ in values(case, "tenant_new")] == [0, 0, 0, 1, 1]
    # The baseline is held to its own first third, which shows how many are new on any day.
    assert [n for _, n, _ in values(case, "tenant_new", "baseline")] == [1] * 6


def test_every_role_of_the_catalogue_has_a_meaning() -> None:
    spoken = {role for cause in load().values() for role in {*cause.expected, *cause.neutral}}
    assert spoken - set(meanings()) <= {"numa_remote"}


def test_lines_of_compilation_at_any_level(case: Case) -> None:
    log = add_source(case, "log")
    add_lines(case, log, [(0, "info", "x"), (15, "info", "Recompiling kernel fwd"), (25, "info", "JIT compilation"),
                          (35, "info", "complied with the policy"), (50, "info", "x")])  # fmt: skip
    assert [(s, n) for s, n, _ in values(case, "compile_lines")] == [
        (10.0, 1.0), (20.0, 1.0), (30.0, 0.0), (40.0, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "labels", "role"),
    [
        ("nv_trt_llm_request_metrics", {"request_type": "scheduled"}, "running"),
        ("nv_trt_llm_request_metrics", {"request_type": "waiting"}, "waiting"),
        ("nv_trt_llm_request_metrics", {"request_type": "max"}, None),
        ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "fraction"}, "kv_usage"),
        ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "used"}, None),
        ("nv_llm_input_token_len_sum", {}, "prompt_tokens"),
        ("nv_llm_output_token_len_sum", {}, "output_tokens"),
        ("nv_inference_request_success", {}, "finish_rate"),
        ("vllm:gpu_prefix_cache_hit_rate", {}, "prefix_hit_rate"),
        ("vllm:spec_decode_draft_acceptance_rate", {}, "spec_acceptance"),
        ("envoy_http_downstream_rq_total", {}, "arrival_rate"),
        ("envoy_http_downstream_rq_xx", {"envoy_response_code_class": "5"}, "error_rate"),
        ("envoy_http_downstream_rq_xx", {"envoy_response_code_class": "2"}, None),
        ("envoy_http_downstream_cx_tx_bytes_total", {}, "response_bytes"),
        ("db_client_operation_duration_seconds_sum", {"server_address": "pg"}, "downstream_latency"),
        ("db_client_operation_duration_seconds_count", {"server_address": "pg"}, "downstream_rate"),
        ("up", {"job": "vllm"}, "answering_scrapes"),
    ],
)  # fmt: skip
def test_names_of_engines_and_gateways(
    case: Case, name: str, labels: dict[str, str], role: str | None
) -> None:
    add_series(case, add_source(case, "metrics"), name, labels, [(0, 1), (15, 2)])
    assign(case)
    roles = {r for (r,) in case.rows("SELECT role FROM series_role")}
    assert role in roles if role else not any(r in meanings() for r in roles)


def test_what_a_process_collects_while_it_starts_is_no_pause(case: Case) -> None:
    metrics = add_source(case, "metrics")
    counts = [(0, 100), (15, 101), (30, 60), (45, 61)]
    name, labels = "python_gc_collections_total", {"generation": "2", "job": "vllm"}
    add_series(case, metrics, name, labels, counts, "counter")
    add_series(case, metrics, "vllm:num_preemptions_total", {"job": "vllm"}, counts, "counter")
    assign(case)
    assert [v[:2] for v in values(case, "gc_full")] == [(15.0, 1.0), (45.0, 1.0)]
    assert [v[:2] for v in values(case, "preemptions")] == [
        (15.0, 1.0),
        (30.0, 60.0),
        (45.0, 1.0),
    ]


def test_a_call_to_whatever_serves_the_model_is_no_dependency(case: Case) -> None:
    """Engines that trace nothing of their own are known by their metrics, whatever they are called."""
    metrics, trace = add_source(case, "metrics"), add_source(case, "trace")
    engine, other = {"service": "mixtral-server"}, {"service": "reranker"}
    running = {**engine, "request_type": "scheduled"}
    add_series(case, metrics, "nv_trt_llm_request_metrics", running, [(0, 1), (15, 1)])
    add_series(case, metrics, "nv_inference_pending_request_count", other, [(0, 1), (15, 1)])
    assign(case)
    called = ("mixtral-server", "mixtral-server.prod.svc.cluster.local", "reranker", "vllm-9")
    add_request(case, trace, "a", 1, dur_s=4.0)
    for i, callee in enumerate(called):
        add_span(case, trace, "a", "gateway", f"POST {i}", 1 + i, kind="client",
                 parent="a-POST /v1/completions", server__address=callee)  # fmt: skip
    for role in ("dependency_time", "call_wait"):
        found = case.rows("SELECT DISTINCT service FROM signal_value WHERE role = ?", (role,))
        assert found == [("reranker",)]
    pieces = case.rows("SELECT piece, round(ns / 1e9, 1) FROM latency_part ORDER BY piece")
    assert pieces == [
        ("calls of reranker", 0.1), ("end to end", 4.0), ("no engine span", 3.9),
    ]  # fmt: skip


def test_a_queue_names_the_engine_only_where_nothing_better_does(case: Case) -> None:
    metrics = add_source(case, "metrics")
    waits = ("nv_inference_pending_request_count", {"service": "reranker"}, [(0, 1.0)])
    add_series(case, metrics, *waits)
    assign(case)
    assert engines(case) == {"reranker"}
    add_series(case, metrics, "vllm:num_requests_running", {"service": "llama"}, [(0, 1.0)])
    assign(case)
    assert engines(case) == {"llama"}
