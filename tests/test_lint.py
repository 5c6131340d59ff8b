"""Rules for settings: each on a setting that breaks it and on one that keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from telemetry_builder import add_change, add_config, add_series, add_source, add_span

from rca.case import Case
from rca.lint import check, number, rules

WORKLOAD = "Deployment/llm-engine"


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def findings(case: Case) -> list[tuple[str, str, str, str | None]]:
    check(case)
    return case.rows("SELECT rule, key, expected, change_id FROM lint_finding ORDER BY ALL")


def configured(case: Case, **settings: str) -> list[tuple[str, str]]:
    case.execute("DELETE FROM config")
    add_config(case, add_source(case, "config"), WORKLOAD, **settings)
    return [row[:2] for row in findings(case)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("batch_window", {"max_queue_delay_microseconds": "500000"}, {"max_queue_delay_microseconds": "50000"}),
        ("batch_window", {"batch_window_ms": "2"}, {"batch_window_ms": "10"}),
        ("gpu_memory", {"gpu_memory_utilization": "0.98"}, {"gpu_memory_utilization": "0.95"}),
        ("small_batch", {"max_num_seqs": "2"}, {"max_num_seqs": "64"}),
        ("eager", {"enforce_eager": "true"}, {"enforce_eager": "false"}),
        ("debug_log", {"VLLM_LOGGING_LEVEL": "DEBUG"}, {"VLLM_LOGGING_LEVEL": "INFO"}),
        ("unchunked_prefill", {"max_num_batched_tokens": "16384", "enable_chunked_prefill": "false"},
         {"max_num_batched_tokens": "16384", "enable_chunked_prefill": "true"}),
        ("threads", {"OMP_NUM_THREADS": "16", "resources.limits.cpu": "4000m"},
         {"OMP_NUM_THREADS": "4", "resources.limits.cpu": "4000m"}),
        ("threads", {"OMP_NUM_THREADS": "16", "resources.limits.cpu": "4000m"}, {"OMP_NUM_THREADS": "16"}),
        ("retries", {"max_retries": "10"}, {"max_retries": "2"}),
        ("batch_window", {"wait_ms": "500"}, {"wait_ms": "50"}),
        ("large_window_batch", {"max_batch_size": "64", "wait_ms": "50"}, {"max_batch_size": "32", "wait_ms": "50"}),
        ("large_window_batch", {"max_batch_size": "64", "wait_ms": "50"}, {"max_batch_size": "64", "wait_ms": "0"}),
        ("large_window_batch", {"max_batch_size": "64", "wait_ms": "50"}, {"max_batch_size": "64"}),
        ("http2_stream_window", {"http2_protocol_options.initial_stream_window_size": "65535"},
         {"http2_protocol_options.initial_stream_window_size": "2097152"}),
        ("http2_streams", {"listeners.0.http2_protocol_options.max_concurrent_streams": "100"},
         {"max_concurrent_streams": "1000"}),
        ("no_memory_limit", {"image": "engine:1"}, {"image": "engine:1", "resources.limits.memory": "16Gi"}),
        ("memory_overcommit", {"resources.limits.memory": "32Gi", "resources.requests.memory": "16000M"},
         {"resources.limits.memory": "16Gi", "resources.requests.memory": "16Gi"}),
    ],
)  # fmt: skip
def test_a_rule_speaks_of_what_breaks_it_only(
    case: Case, rule: str, bad: dict[str, str], good: dict[str, str]
) -> None:
    assert rule in [r for r, _ in configured(case, **bad)]
    assert rule not in [r for r, _ in configured(case, **good)]


def test_a_batch_that_the_cache_cannot_hold_is_told_by_the_measured_requests(
    case: Case,
) -> None:
    trace = add_source(case, "trace")
    for i in range(3):
        add_span(case, trace, f"t{i}", "vllm", "llm_request", i, gen_ai__usage__prompt_tokens=400,
                 gen_ai__usage__completion_tokens=96)  # fmt: skip
    small = {"num_gpu_blocks_override": "66", "block_size": "32", "max_num_seqs": "16"}
    assert configured(case, **small) == [("kv_for_batch", "num_gpu_blocks_override")]
    statement = case.scalar("SELECT statement FROM lint_finding")
    assert "132 tokens of KV cache for each sequence" in statement
    assert case.scalar("SELECT expected FROM lint_finding").startswith("at least 496 ")
    assert configured(case, **{**small, "num_gpu_blocks_override": "768"}) == []


def test_settings_that_metrics_carry_are_read_too(case: Case) -> None:
    labels = {"pod": "llm-engine-0", "kv_cache_max_concurrency": "1.03"}
    add_series(
        case, add_source(case, "metrics"), "vllm:cache_config_info", labels, [(0, 1), (15, 1)]
    )
    assert [row[:2] for row in findings(case)] == [
        ("kv_concurrency", "kv_cache_max_concurrency")
    ]


def test_a_change_is_named_and_stands_for_the_configuration_that_it_led_to(case: Case) -> None:
    changes, config = add_source(case, "change"), add_source(case, "config")
    add_config(case, config, WORKLOAD, gpu_memory_utilization="0.98")
    add_change(case, changes, "c7", 0, "config", "deployment/llm-engine",
               "--gpu-memory-utilization 0.90", "--gpu-memory-utilization 0.98")  # fmt: skip
    assert findings(case) == [("gpu_memory", "gpu_memory_utilization", "0.5 to 0.95", "c7")]


def test_the_baselines_configuration_is_not_judged(case: Case) -> None:
    add_config(case, add_source(case, "config", "baseline"), WORKLOAD, enforce_eager="true")
    assert findings(case) == []


def test_a_model_without_its_tokenizer(case: Case) -> None:
    changes, config = add_source(case, "change"), add_source(case, "config")
    add_config(case, config, WORKLOAD, tokenizer_revision="v7")
    add_change(case, changes, "c1", 0, "deploy", "deployment/llm-engine",
               "model_version: v7", "model_version: v8")  # fmt: skip
    assert [row[0] for row in findings(case)] == ["model_without_tokenizer"]
    assert case.scalar("SELECT severity FROM lint_finding") == "warning"
    assert "tokenizer_revision stays v7" in case.scalar("SELECT statement FROM lint_finding")
    add_change(case, changes, "c2", 60, "deploy", "deployment/llm-engine",
               "tokenizer_revision: v7", "tokenizer_revision: v8")  # fmt: skip
    assert findings(case) == []


def test_a_change_that_tells_of_the_tokenizer_it_keeps_has_forgotten_it(case: Case) -> None:
    add_change(case, add_source(case, "change"), "c1", 5, "deploy", WORKLOAD,
               "--model-revision=r1 --tokenizer-revision=r1", "--model-revision=r2 --tokenizer-revision=r1")  # fmt: skip
    assert [(r, c) for r, *_, c in findings(case)] == [("model_without_tokenizer", "c1")]
    assert case.rows("SELECT severity, len(causes) FROM lint_finding") == [("warning", 2)]


def test_a_tokenizer_without_its_model(case: Case) -> None:
    changes, config = add_source(case, "change"), add_source(case, "config")
    add_config(case, config, WORKLOAD, model="llama-3.1")
    add_change(
        case,
        changes,
        "c1",
        0,
        "deploy",
        WORKLOAD,
        "--tokenizer-revision=r1",
        "--tokenizer-revision=r2",
    )
    check(case)
    assert case.rows("SELECT rule, severity, causes FROM lint_finding") == [
        (
            "tokenizer_without_model",
            "warning",
            ["stale_tokenizer_cache_key", "embedding_version_race"],
        )
    ]
    assert "model stays llama-3.1" in case.scalar("SELECT statement FROM lint_finding")
    add_change(
        case, changes, "c2", 1, "deploy", WORKLOAD, "--model=llama-3.1", "--model=llama-3.2"
    )
    assert findings(case) == []


def test_memory_limits_are_asked_of_containers_of_kubernetes_only(case: Case) -> None:
    """A sidecar has a limit of its own; what else names an image may set its limit elsewhere."""
    config = add_source(case, "config")
    for subject in ("service/engine", "chart"):
        add_config(case, config, subject, image="engine:1")
    add_config(
        case, config, WORKLOAD, **{"image": "engine:1", "resources.limits.memory": "16Gi"}
    )
    add_config(case, config, f"{WORKLOAD}/proxy", image="envoy:1")
    check(case)
    assert case.rows("SELECT subject, rule, severity FROM lint_finding") == [
        (f"{WORKLOAD}/proxy", "no_memory_limit", "notice")
    ]


def test_engines_that_share_a_gpu_by_time_slices(case: Case) -> None:
    """The number of slices stands in a ConfigMap of the device plugin, under a name of its own."""
    config = add_source(case, "config")
    add_config(case, config, WORKLOAD, gpu_memory_utilization="0.9")
    assert findings(case) == []
    key = "any.sharing.timeSlicing.resources.nvidia.com/gpu.replicas"
    add_config(case, config, "ConfigMap/time-slicing-config", **{key: "4"})
    assert findings(case) == [
        (
            "gpu_overcommit",
            "gpu_memory_utilization",
            "at most 1 of the GPU's memory by all that share it",
            None,
        )
    ]
    assert "3.6" in case.scalar("SELECT statement FROM lint_finding")


def test_a_model_that_brings_its_tokenizer_is_worth_a_look_only(case: Case) -> None:
    add_change(case, add_source(case, "change"), "c1", 0, "deploy", "deployment/llm-engine",
               "model_version: v7", "model_version: v8")  # fmt: skip
    check(case)
    assert case.rows("SELECT rule, severity FROM lint_finding") == [
        ("model_without_tokenizer", "notice")
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.9", 0.9),
        ("500m", 0.5),
        ("4Gi", 4 * 1024.0**3),
        ("512M", 512e6),
        ("1Ti", 1024.0**4),
        ("16", 16.0),
        ("auto", None),
        ("", None),
    ],
)
def test_numbers_as_configuration_writes_them(text: str, value: float | None) -> None:
    assert number(text) == (None if value is None else pytest.approx(value))


def test_every_rule_says_what_is_safe() -> None:
    assert len({r.id for r in rules()}) == len(rules())
    for rule in rules():
        safe = (
            rule.low,
            rule.high,
            rule.at_most,
            rule.at_least,
            rule.is_,
            rule.partner,
            rule.absent,
        )
        assert any(x is not None and x != () for x in safe), rule.id
        assert rule.severity in ("warning", "notice")
