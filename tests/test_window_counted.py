"""Objectives by what metrics count, where traces are a sample or absent; what is said of sampled figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from telemetry_builder import add_series, add_source, add_span, at

from rca import sampling
from rca.case import Case
from rca.findings import gather
from rca.gaps import look
from rca.roles import assign
from rca.window import locate

STEP = 15
FLOOR = "token_throughput"
HTTP = "http_server_request_duration_seconds"


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def counted(
    case: Case,
    buckets: dict[str, float],
    slow: dict[str, float] | None = None,
    *,
    metric: str = HTTP,
    part: str = "incident",
    scrapes: int = 120,
    slow_from: int = 60,
    slow_to: int = 80,
    **labels: str,
) -> int:
    """A histogram of half an hour: what each bucket gains a scrape, and from `slow_from` to `slow_to`."""
    source = add_source(case, "metrics", part, last_ns=at(scrapes * STEP))
    labels = {"service": "gateway", "instance": "g:1", **labels}
    total = [0.0] * (scrapes + 1)
    for le, usual in {**buckets, "+Inf": 0.0}.items():
        per_scrape = [
            (slow or {}).get(le, usual) if slow_from <= i < slow_to else usual
            for i in range(scrapes)
        ]
        own = _sums(per_scrape)
        total = [a + b for a, b in zip(total, own, strict=True)]
        cumulative(case, source, f"{metric}_bucket", {**labels, "le": le}, total)
    cumulative(case, source, f"{metric}_count", labels, total)
    cumulative(case, source, f"{metric}_sum", labels, [0.5 * n for n in total])
    return source


def _sums(values: Sequence[float]) -> list[float]:
    found = [0.0]
    for value in values:
        found.append(found[-1] + value)
    return found


def cumulative(
    case: Case, source: int, name: str, labels: dict[str, str], values: Sequence[float]
) -> None:
    points = [(i * STEP, v) for i, v in enumerate(values)]
    add_series(case, source, name, labels, points, "counter")


def tail_sampled(case: Case, **attributes: Any) -> None:
    """Traces of the slow requests and of few others: 14 % of them took longer than 2 s."""
    source = add_source(case, "trace", last_ns=at(1800))
    for i in range(100):
        dur = 3.0 if i % 7 == 0 else 0.4
        add_span(case, source, f"t{i}", "gateway", "POST", 18 * i, dur, **attributes)


def found(case: Case, **slo: str) -> tuple[Any, ...]:
    assign(case)
    locate(case, {"slo": slo})
    return case.rows("SELECT status, detected_by, start_ns, end_ns, slo FROM incident_window")[
        0
    ]


def unchecked(case: Case) -> list[str]:
    look(case)
    return [
        s for (s,) in case.rows("SELECT statement FROM gap WHERE code = 'objective_unchecked'")
    ]


def test_sampled_spans_break_no_objective_that_the_metrics_kept(case: Case) -> None:
    tail_sampled(case)
    counted(case, {"1": 95, "2": 4.2, "5": 0.8, "+Inf": 0})  # 0.8 % over 2 s
    assert (
        sampling.read(case) == sampling.Sampling()
    )  # nothing counts them before roles are assigned
    status, _, _, _, slo = found(case, e2e_p99="< 2 s")
    assert sampling.read(case).is_sampled
    assert (status, slo) == ("none", None)
    assert unchecked(case) == []


def test_whole_traces_are_held_to_the_objective_themselves(case: Case) -> None:
    tail_sampled(case)
    status, by, _, _, slo = found(case, e2e_p99="< 2 s")
    assert (status, by) == ("incident", "slo")
    assert "of requests over it)" in slo
    assert "histogram" not in slo


@pytest.mark.parametrize("traces", [True, False])
def test_a_histogram_breaks_an_objective(case: Case, traces: bool) -> None:
    if traces:
        tail_sampled(case)
    counted(case, {"1": 99, "2": 1, "5": 0}, {"1": 80, "2": 10, "5": 10})
    status, by, start, end, slo = found(case, e2e_p99="< 2 s")
    assert (status, by) == ("incident", "slo")
    assert (start, end) == (at(60 * STEP), at(80 * STEP))
    assert slo == "e2e_p99 < 2 s (10 % of requests over it by the histogram of gateway)"


def test_a_bucket_that_holds_the_limit_leaves_the_share_open(case: Case) -> None:
    counted(case, {"1": 100, "3": 0, "5": 0}, {"1": 70, "3": 12, "5": 18})
    *_, slo = found(case, e2e_p99="< 2 s")
    # Half of the bucket from 1 s to 3 s lies above 2 s: 18 + 12 / 2.
    assert slo == (
        "e2e_p99 < 2 s (24 % of requests over it by the histogram of gateway; 18 % to 30 %, "
        "as its bucket from 1 s to 3 s holds the limit)"
    )


def test_a_share_that_buckets_leave_open_is_no_claim_but_a_gap(case: Case) -> None:
    counted(case, {"1": 100, "3": 0, "5": 0}, {"1": 70, "3": 30, "5": 0})
    assert found(case, e2e_p99="< 2 s")[1] != "slo"
    (told,) = unchecked(case)
    assert told.startswith(
        "whether e2e_p99 < 2 s was kept is not known: 0 % to 5 % of what the"
    )
    assert "bucket from 1 s to 3 s holds the limit" in told


def test_what_is_broken_every_day_is_no_incident(case: Case) -> None:
    counted(case, {"1": 90, "2": 0, "5": 10}, part="baseline")
    counted(case, {"1": 90, "2": 0, "5": 10})
    assert found(case, e2e_p99="< 2 s")[0] == "none"


def test_the_engine_tells_where_no_gateway_is_known(case: Case) -> None:
    name = "vllm:e2e_request_latency_seconds"
    labels = {"service": "engine", "instance": "e:1"}
    counted(case, {"1": 100, "2": 0, "5": 0}, {"1": 80, "2": 0, "5": 20}, metric=name, **labels)
    counted(
        case, {"1": 0, "2": 0, "5": 100}
    )  # some other service, which users may not wait for
    *_, slo = found(case, e2e_p99="< 2 s")
    assert slo == "e2e_p99 < 2 s (20 % of requests over it by the histogram of engine)"


@pytest.mark.parametrize(
    ("name", "metric", "observed"),
    [
        ("ttft_p99", "vllm:time_to_first_token_seconds", "requests"),
        ("itl_p99", "vllm:inter_token_latency_seconds", "observations"),
    ],
)
def test_first_token_and_token_gaps_by_histogram(
    case: Case, name: str, metric: str, observed: str
) -> None:
    counted(case, {"0.1": 100, "0.5": 0, "5": 0}, {"0.1": 60, "0.5": 0, "5": 40}, metric=metric)
    *_, slo = found(case, **{name: "< 500 ms"})
    assert slo == f"{name} < 500 ms (40 % of {observed} over it by the histogram of gateway)"


def test_failed_requests_by_counters(case: Case) -> None:
    labels = {"http_response_status_code": "200"}
    counted(case, {"1": 100, "5": 0}, {"1": 70, "5": 0}, **labels)
    counted(case, {"1": 0, "5": 0}, {"1": 30, "5": 0}, http_response_status_code="503")
    *_, slo = found(case, error_share="< 1 %")
    assert slo == "error_share < 1 % (30 % of requests failed by the counters of gateway)"


def test_an_objective_that_nothing_tells_of_is_a_gap(case: Case) -> None:
    tail_sampled(case, sampler__type="probabilistic", sampler__param=0.01)
    assert found(case, e2e_p99="< 2 s")[1] != "slo"
    (told,) = unchecked(case)
    assert told == (
        "whether e2e_p99 < 2 s was kept is not known: samplers kept 1 % of the traces, "
        "as their tags say, and no counter of the metrics tells of it"
    )


@pytest.mark.parametrize(
    ("tags", "share"),
    [
        ({"sampler__type": "probabilistic", "sampler__param": 0.25}, 0.25),
        ({"sampling__probability": "0.1"}, 0.1),
        ({"SampleRate": 20}, 0.05),
        # Half of all: the upper half of 2^56 is kept.
        ({"tracestate": "vendor=x,ot=rv:1234;th:8"}, 0.5),
    ],
)
def test_samplers_say_what_they_kept(case: Case, tags: dict[str, Any], share: float) -> None:
    tail_sampled(case, **tags)
    told = sampling.read(case)
    assert told.is_sampled
    assert told.share == pytest.approx(share)


@pytest.mark.parametrize(
    "tags", [{"tailsampling__policy": "errors"}, {"sampler__type": "ratelimiting"}]
)
def test_a_sampler_that_chooses_leaves_no_share(case: Case, tags: dict[str, Any]) -> None:
    tail_sampled(case, **tags)
    assert sampling.read(case) == (None, "a sampler chose the traces, as their tags say")


@pytest.mark.parametrize(
    "tags",
    [
        {"sampler__type": "const", "sampler__param": True},
        {"sampler__type": "probabilistic", "sampler__param": 1},
        {"sampler__type": "probabilistic", "sampler__param": 0},
        {"gen_ai__request__sampling": "0.1"},
        {},
    ],
)
def test_a_sampler_that_keeps_all_makes_no_sample(case: Case, tags: dict[str, Any]) -> None:
    tail_sampled(case, **tags)
    assert not sampling.read(case).is_sampled


def test_metrics_know_better_than_tags(case: Case) -> None:
    tail_sampled(case, sampler__type="probabilistic", sampler__param=0.01)
    counted(case, {"1": 100 / 120, "5": 0})
    assign(case)
    assert not sampling.read(case).is_sampled


def test_tags_of_a_sampler_are_a_blind_spot(case: Case) -> None:
    tail_sampled(case, sampler__type="probabilistic", sampler__param=0.01)
    gather(case)
    look(case)
    assert case.scalar("SELECT sampled_by FROM cohort") == (
        "samplers kept 1 % of the traces, as their tags say"
    )
    assert case.scalar("SELECT statement FROM gap WHERE code = 'sampled_traces'") == (
        "samplers kept 1 % of the traces, as their tags say: counts and high quantiles from spans are biased"
    )


def throughput(
    case: Case, tokens: float, slow: float, waiting: float, part: str = "incident"
) -> None:
    """Two replicas that make `tokens` a second each, and `slow` from scrape 60 to 80."""
    source = add_source(case, "metrics", part, last_ns=at(120 * STEP))
    for pod in ("engine-0", "engine-1"):
        labels = {"service": "engine", "pod": pod}
        rates = [STEP * (slow if 60 <= i < 80 else tokens) for i in range(120)]
        cumulative(case, source, "vllm:generation_tokens_total", labels, _sums(rates))
        queue = [(i * STEP, waiting if 60 <= i < 80 else 0.0) for i in range(121)]
        add_series(case, source, "vllm:num_requests_waiting", labels, queue)


def test_too_few_tokens_a_second_break_a_floor(case: Case) -> None:
    throughput(case, 800, 300, waiting=9)
    status, by, start, end, slo = found(case, **{FLOOR: "> 1200 tok/s"})
    assert (status, by) == ("incident", "slo")
    assert abs(start - at(60 * STEP)) <= 2 * STEP * 10**9
    assert abs(end - at(80 * STEP)) <= 2 * STEP * 10**9
    assert (
        slo == "token_throughput > 1200 tok/s (100 % of the time under load below it of engine)"
    )


def test_a_floor_for_each_replica(case: Case) -> None:
    throughput(case, 800, 300, waiting=9)
    assert found(case, tokens_per_s="> 500 tok/s")[0] != "incident"  # together they make 600
    assert found(case, **{f"{FLOOR}_per_instance": "> 200 tok/s"})[0] != "incident"
    assert "engine engine-0" in found(case, **{f"{FLOOR}_per_instance": ">= 500 tokens/s"})[4]


def test_few_tokens_without_a_queue_are_few_requests(case: Case) -> None:
    throughput(case, 800, 300, waiting=0)
    assert found(case, **{FLOOR: "> 1200 tok/s"})[0] != "incident"


def test_a_floor_that_is_missed_every_day_is_no_incident(case: Case) -> None:
    throughput(case, 800, 300, waiting=9, part="baseline")
    throughput(case, 800, 300, waiting=9)
    assert found(case, **{FLOOR: "> 1200 tok/s"})[0] != "incident"
