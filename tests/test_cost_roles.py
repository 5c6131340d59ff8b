"""What kinds of requests cost against the others, engines that outlive callers, work done again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from telemetry_builder import add_series, add_source, add_span

from rca.case import Case
from rca.hypotheses.change_fit import engines, of_engine
from rca.roles import assign

POD = {"pod": "mixtral-server-7d9f8c6b5-abcd1", "instance": "10.0.0.1:8000", "model_name": "org/Mix-8x7B"}  # fmt: skip


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def values(case: Case, role: str) -> list[float]:
    rows = case.rows(
        "SELECT num / den FROM signal_value WHERE role = ? ORDER BY ts_ns", (role,)
    )
    return [round(float(v), 3) for (v,) in rows]


def add_request(
    case: Case,
    source: int,
    key: str,
    *,
    at_s: float = 0.5,
    tokens: int = 11,
    token_s: float = 0.1,
    ttft_s: float = 0.3,
    queue_s: float = 0.05,
    engine_s: float = 1.0,
    **option: object,
) -> None:
    """A request of one second at the gateway; its engine says what it measured."""
    add_span(case, source, key, "edge", "POST /v1/chat", at_s, 1.0)
    add_span(
        case, source, key, "mixtral-server", "llm_request", at_s, engine_s, parent=f"{key}-POST /v1/chat",
        gen_ai__latency__time_in_queue=queue_s, gen_ai__latency__time_in_model_prefill=0.2,
        gen_ai__latency__time_to_first_token=ttft_s, gen_ai__usage__completion_tokens=tokens,
        gen_ai__latency__time_in_model_decode=token_s * (tokens - 1), **option,
    )  # fmt: skip


def test_a_token_of_a_long_answer_against_one_of_a_short_answer(case: Case) -> None:
    trace = add_source(case, "trace")
    for i in range(4):
        add_request(case, trace, f"s{i}", tokens=11, token_s=0.1)
        add_request(case, trace, f"l{i}", tokens=101, token_s=0.25)
    assert values(case, "long_answer_cost") == [2.5]


def test_requests_with_penalties_or_a_schema_against_the_others(case: Case) -> None:
    trace = add_source(case, "trace")
    for i in range(2):
        add_request(case, trace, f"p{i}", gen_ai__request__frequency_penalty=0.4)
        add_request(case, trace, f"q{i}", token_s=0.05, gen_ai__request__frequency_penalty=0.0)
        add_request(case, trace, f"j{i}", token_s=0.05, ttft_s=3.0, gen_ai__output__type="json")
    assert values(case, "sampling_cost") == [2.0]
    assert values(case, "schema_cost") == [4.555, 4.555]


def test_time_in_the_server_before_the_queue(case: Case) -> None:
    add_request(case, add_source(case, "trace"), "a", ttft_s=0.75)
    assert values(case, "frontend_time") == [0.5]


def test_where_nobody_asks_for_a_schema_none_costs_more(case: Case) -> None:
    """Else a kind of request that is new in the incident would have nothing to be held against."""
    healthy, trace = add_source(case, "trace", "baseline"), add_source(case, "trace")
    for i in range(2):
        add_request(case, healthy, f"h{i}")
        add_request(case, trace, f"p{i}")
        add_request(case, trace, f"j{i}", ttft_s=3.0, gen_ai__output__type="json")
    assert sorted(values(case, "schema_cost")) == [0.0, 0.0, 4.555, 4.555]


def test_a_schema_is_held_against_requests_of_the_same_moment(case: Case) -> None:
    """A burst that all wait for is no cost of a schema, whichever kind it brings more of."""
    trace = add_source(case, "trace")
    for i, wait_s in enumerate((0.0, 0.0, 3.0, 3.0)):
        add_request(case, trace, f"p{i}", at_s=i, ttft_s=0.2 + wait_s)
    for at_s, ttft_s in ((0.5, 0.22), (2.4, 3.22), (2.6, 3.22)):
        add_request(
            case, trace, f"j{at_s}", at_s=at_s, ttft_s=ttft_s, gen_ai__output__type="json"
        )
    assert values(case, "schema_cost") == [1.0, 0.01, 0.01]


def test_a_grammar_that_is_made_before_the_queue_is_not_lost_in_the_queue(case: Case) -> None:
    trace = add_source(case, "trace")
    for i, queue_s in enumerate((0.0, 2.0, 0.0)):
        add_request(
            case, trace, f"p{i}", at_s=i, ttft_s=0.2 + 0.05 + queue_s, queue_s=0.05 + queue_s
        )
    add_request(
        case, trace, "j", at_s=1.5, ttft_s=0.2 + 0.06 + 0.05, queue_s=0.05, gen_ai__output__type="json"
    )  # fmt: skip
    assert values(case, "schema_frontend") == [2.0]
    assert values(case, "schema_cost") == [-3.041]


def add_decodes(case: Case, source: int, held_s: float, each_s: float) -> float:
    """Three minutes of an engine whose steps take longer by the text that all running requests have.

    Args:
        held_s: Time of a step for each token written so far.
        each_s: Time of a step for each running request.

    Returns:
        The share of all steps' time that the text took.
    """
    dice = Random(7)
    coming = sorted(dice.uniform(0, 180) for _ in range(700))
    running: list[
        tuple[int, float, int, int]
    ] = []  # (index, first s, tokens wanted, tokens made)
    now, by_text, spent, begun = 0.0, 0.0, 0.0, 0
    while begun < len(coming) or running:
        while begun < len(coming) and coming[begun] <= now:
            running.append((begun, now, dice.randint(5, 60), 1))
            begun += 1
        text = sum(made for *_, made in running)
        step = 0.01 + each_s * len(running) + held_s * text
        by_text, spent, now = by_text + held_s * text, spent + step, now + step
        grown = [(i, first, wanted, made + 1) for i, first, wanted, made in running]
        for i, first, wanted, made in grown:
            if made == wanted:
                add_span(
                    case, source, f"d{i}", "mixtral-server", "llm_request", first, now - first,
                    gen_ai__usage__completion_tokens=made, gen_ai__usage__prompt_tokens=dice.randint(1, 9),
                    gen_ai__latency__time_in_model_decode=now - first,
                )  # fmt: skip
        running = [r for r in grown if r[3] < r[2]]
    return by_text / spent


@pytest.mark.parametrize(
    ("held_s", "each_s"), [(0.0, 0.0), (0.0, 0.004), (2e-4, 0.0), (2e-4, 0.002)]
)
def test_what_the_text_written_so_far_costs(case: Case, held_s: float, each_s: float) -> None:
    """A larger batch costs too, and has more text: what goes with the text alone is told apart."""
    share = add_decodes(case, add_source(case, "trace"), held_s, each_s)
    ((found,),) = case.rows(
        "SELECT sum(num) / sum(den) FROM signal_value WHERE role = 'text_cost'"
    )
    assert found == pytest.approx(share, abs=0.15)
    assert (found > 0.25) == (held_s > 0)


def test_blocks_that_belong_to_no_running_request(case: Case) -> None:
    """A cache that is full while nothing runs; full of a batch, or empty with none, is as it should be."""
    metrics = add_source(case, "metrics")
    running, usage = [8, 8, 8, 0, 1, 0], [0.4, 0.9, 0.5, 0.8, 0.9, 0.1]
    for name, level in (("num_requests_running", running), ("kv_cache_usage_perc", usage)):
        add_series(case, metrics, f"vllm:{name}", POD, list(enumerate(level)))
    assign(case)
    assert values(case, "kv_without_work") == [0, 0, 0, 1, 1, 0]
    assert values(case, "kv_per_request") == [0.05, 0.113, 0.062, 0.9]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tokens_of_the_cache_that_a_running_request_holds(case: Case, engine: str) -> None:
    """A pool of 200 blocks, then one of 100: half of it is 800 tokens less, and not more a request."""
    metrics = add_source(case, "metrics")
    for name, level in (
        ("num_requests_running", [4, 0, 4]),
        ("kv_cache_usage_perc", [0.5, 0.1, 0.5]),
    ):
        known = {
            "num_requests_running": "num_running_reqs",
            "kv_cache_usage_perc": "token_usage",
        }
        called = name if engine == "vllm" else known[name]
        add_series(case, metrics, f"{engine}:{called}", POD, list(enumerate(level)))
    if engine == "vllm":
        for at, blocks in ((0, "200"), (2, "100")):
            size = {**POD, "num_gpu_blocks": blocks, "block_size": "16"}
            add_series(case, metrics, "vllm:cache_config_info", size, [(at, 1)])
    else:
        add_series(case, metrics, "sglang:max_total_num_tokens", POD, [(0, 3200), (2, 1600)])
    assign(case)
    assert values(case, "kv_tokens_per_request") == [400.0, 200.0]


def test_an_engine_that_goes_on_after_its_caller_has_gone(case: Case) -> None:
    trace = add_source(case, "trace")
    add_request(case, trace, "a", engine_s=0.9)
    add_request(case, trace, "b", engine_s=5.0)
    assert sorted(values(case, "outlived")) == [0.0, 1.0]


def test_tokens_worked_on_for_each_that_had_to_be(case: Case) -> None:
    """100 of 400 prompt tokens were cached and 200 generated: 500 is all the work there is."""
    metrics = add_source(case, "metrics")
    for name, end in (
        ("vllm:iteration_tokens_total_sum", 1500.0),
        ("vllm:iteration_tokens_total_count", 10.0),
        ("vllm:prompt_tokens_total", 400.0),
        ("vllm:prefix_cache_hits_total", 100.0),
        ("vllm:prefix_cache_queries_total", 400.0),
        ("vllm:generation_tokens_total", 200.0),
    ):
        add_series(case, metrics, name, POD, [(0, 0), (15, end)], "counter")
    assign(case)
    assert values(case, "recomputed") == [3.0]


def test_calls_of_an_envoy_speak_of_the_cluster_that_they_go_to(case: Case) -> None:
    metrics = add_source(case, "metrics")
    labels = {"pod": "edge-7d9f8c6b5-abcd1", "envoy_cluster_name": "vector-search"}
    for name, end in (("upstream_rq_time_sum", 5000.0), ("upstream_rq_time_count", 10.0),
                      ("upstream_rq_total", 10.0), ("upstream_rq_retry", 4.0)):  # fmt: skip
        add_series(
            case, metrics, f"envoy_cluster_{name}", labels, [(0, 0), (10, end)], "counter"
        )
    assign(case)
    found = case.rows(
        "SELECT role, service, num / den FROM signal_value WHERE den > 0 ORDER BY role"
    )
    assert found == [
        ("downstream_latency", "vector-search", 0.5), ("downstream_rate", "vector-search", 1.0),
        ("retries", "vector-search", 0.4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        ("deployment/mixtral-server", True),
        ("model/org/Mix-8x7B", True),
        ("statefulset/llm-engine", True),  # by its name alone
        ("deployment/llm-portal", False),  # a service of the recordings that is no engine
        ("deployment/billing", False),
    ],
)
def test_an_engine_is_known_by_what_is_measured_of_it(
    case: Case, subject: str, told: bool
) -> None:
    metrics = add_source(case, "metrics")
    add_series(case, metrics, "vllm:num_requests_running", POD, [(0, 1)])
    add_series(case, metrics, "process_cpu_seconds_total", {"pod": "llm-portal-7d9f8c6b5-abcd1"}, [(0, 1)])  # fmt: skip
    assign(case)
    assert engines(case) == {"mixtral-server"}
    assert of_engine(case)(subject) is told


def test_an_engine_on_tensorrt_llm_tells_of_requests_cache_and_batch(case: Case) -> None:
    """Names as its collector exports them; a gateway puts `trtllm:` in front of the older ones."""
    source = add_source(case, "incident", "metrics")
    labels = {"instance": "10.0.0.1:8000", "engine_type": "trtllm"}
    told = {
        "trtllm:time_to_first_token_seconds_sum": [0.0, 6.0, 18.0],
        "trtllm:time_to_first_token_seconds_count": [0.0, 30.0, 60.0],
        "trtllm_num_requests_waiting": [1.0, 2.0, 3.0],
        "trtllm_kv_cache_utilization": [0.25, 0.5, 0.75],
        "trtllm_prompt_tokens_total": [0.0, 1000.0, 3000.0],
        "trtllm_prompt_cached_tokens_total": [0.0, 500.0, 700.0],
    }
    for name, numbers in told.items():
        add_series(case, source, name, labels, [(15.0 * i, v) for i, v in enumerate(numbers)])
    assign(case)
    assert values(case, "ttft") == [0.2, 0.4]
    assert values(case, "waiting") == [1, 2, 3]
    assert values(case, "kv_usage") == [0.25, 0.5, 0.75]
    assert values(case, "prompt_throughput") == [66.667, 133.333]
    assert values(case, "prefix_hit_rate") == [0.5, 0.1]


def test_less_work_than_must_be_is_a_cache_that_counts_no_hits(case: Case) -> None:
    """As old engines have it: their cache may fail, which makes nothing be computed twice."""
    metrics = add_source(case, "metrics")
    for name, end in (
        ("vllm:iteration_tokens_total_sum", 300.0),
        ("vllm:iteration_tokens_total_count", 10.0),
        ("vllm:prompt_tokens_total", 400.0),
        ("vllm:generation_tokens_total", 200.0),
    ):
        add_series(case, metrics, name, POD, [(0, 0), (15, end)], "counter")
    assign(case)
    assert values(case, "recomputed") == [1.0]


@pytest.mark.parametrize(
    ("told", "decode_ns"),
    [({}, 1_500_000_000), ({"gen_ai.latency.time_in_model_decode": 1.4}, 1_400_000_000)],
)
def test_decode_is_what_follows_the_first_token_unless_the_engine_says(
    case: Case, told: dict[str, float], decode_ns: int
) -> None:
    latency = {"gen_ai.latency.e2e": 2.0, "gen_ai.latency.time_to_first_token": 0.5, **told}
    trace = add_source(case, "trace")
    add_span(case, trace, "a", "sglang", "Req 1", 0, 2.0, **latency)
    assert case.rows("SELECT decode_ns FROM engine_span") == [(decode_ns,)]


def test_the_models_around_an_engine_behind_triton_turn_text_into_tokens_and_back(
    case: Case,
) -> None:
    """As the backend for TensorRT-LLM names them; how long the engine itself infers is neither."""
    metrics = add_source(case, "metrics")
    for model, microseconds in (
        ("preprocessing", 40_000), ("tensorrt_llm", 20_000_000), ("postprocessing", 90_000),
    ):  # fmt: skip
        labels = {**POD, "model": model, "version": "1"}
        for name, end in (
            ("nv_inference_compute_infer_duration_us", microseconds),
            ("nv_inference_request_success", 10),
        ):
            add_series(case, metrics, name, labels, [(0, 0), (15, end)], "counter")
    assign(case)
    assert values(case, "tokenise_time") == [0.004]
    assert values(case, "detokenise_time") == [0.009]
