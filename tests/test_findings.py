"""Findings about requests: small telemetry in, expected rows out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from telemetry_builder import SECOND, add_series, add_source, add_span, at

from rca.case import Case
from rca.findings import conclude, counts, gather
from rca.findings.causal import Node, lag_of
from rca.findings.graph import mermaid
from rca.findings.indicators import cold_share, jitter
from rca.findings.memory import growth
from rca.findings.parts import PathSpan, path
from rca.findings.queueing import fifo, shapley
from rca.findings.records import document, read
from rca.roles import assign


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def add_window(case: Case, start: float, end: float, slo: str | None = None) -> None:
    row = {"id": 1, "status": "incident", "start_ns": at(start), "end_ns": at(end), "margin_ns": SECOND,
           "detected_by": "hint", "slo": slo}  # fmt: skip
    case.insert("incident_window", pl.DataFrame([row]))


def add_request(
    case: Case,
    source: int,
    key: str,
    second: float,
    dur_s: float,
    calls: str = "",
    **attributes: Any,
) -> None:
    add_span(case, source, key, "gateway", "POST /v1", second, dur_s, span="root", **attributes)
    if calls:
        add_span(case, source, key, calls, "check", second, dur_s / 2, parent="root")


def risky(case: Case) -> None:
    """100 requests of a window, of which 30 are slow: 25 of these call risk-api, 8 of the others do."""
    trace = add_source(case, "trace", last_ns=at(200))
    for i in range(100):
        slow = i < 30
        calls = "risk-api" if (i < 25 or 30 <= i < 38) else "stock-api"
        add_request(case, trace, f"t{i}", 100 + i * 0.5, 5.0 if slow else 0.2, calls,
                    tenant__id=f"t-{i % 4}", request__id=f"r{i}", size=i)  # fmt: skip
    for i in range(40):
        add_request(case, trace, f"before{i}", i, 0.2, "stock-api", tenant__id=f"t-{i % 4}")
    add_window(case, 100, 150, "e2e p99 < 1 s")


def test_slow_requests_against_the_rest(case: Case) -> None:
    risky(case)
    gather(case)
    rows = case.sql("SELECT * FROM slow_attribute ORDER BY rank").to_dicts()
    first = rows[0]
    assert (first["attribute"], first["value"]) == ("calls", "risk-api")
    assert (first["n_slow"], first["n_slow_with"], first["n_other"], first["n_other_with"]) == (
        30,
        25,
        70,
        8,
    )
    assert first["statement"] == (
        "83.3 % of the slow requests called risk-api (11.4 % of the others, 0 % of healthy requests)"
    )
    assert first["lift"] == pytest.approx((25 / 30) / (8 / 70))
    assert first["q_value"] < 1e-9
    assert {r["attribute"] for r in rows}.isdisjoint({"request.id", "size"})
    # The tenant's attribute and the tenant of the request are one thing.
    tenant = next(r for r in rows if r["attribute"] == "tenant")
    assert json.loads(tenant["same_as"]) == [f"tenant.id={tenant['value']}"]
    assert tenant["q_value"] > 0.05


def test_who_was_hit(case: Case) -> None:
    risky(case)
    gather(case)
    rows = case.sql("SELECT * FROM blast_radius WHERE kind = 'tenant' ORDER BY name").to_dicts()
    assert [(r["name"], r["requests"], r["slow"]) for r in rows] == [
        ("t-0", 25, 8), ("t-1", 25, 8), ("t-2", 25, 7), ("t-3", 25, 7),
    ]  # fmt: skip
    assert rows[0]["ratio"] == pytest.approx((8 / 25) / (30 / 100))
    assert rows[0]["share_low"] < 8 / 25 < rows[0]["share_high"]
    assert rows[0]["share_reference"] == 0


def test_without_an_objective_the_healthy_p99_says_what_is_slow(case: Case) -> None:
    risky(case)
    case.execute("UPDATE incident_window SET slo = NULL")
    gather(case)
    row = case.sql("SELECT limit_ns, limit_by, split_by, reference FROM cohort").row(0)
    assert row == (200_000_000, "healthy p99", "healthy p99", "lead-in")


def test_nothing_is_told_without_requests(case: Case) -> None:
    add_source(case, "metrics", last_ns=at(100))
    gather(case)
    found = read(case)
    assert (found.cohort is not None, found.slow_attributes, found.blast_radius, found.drivers) == (
        True, [], [], [],
    )  # fmt: skip


def test_shares_among_sampled_traces_are_called_biased(case: Case) -> None:
    risky(case)
    metrics = add_source(case, "metrics")
    for ending, step in (("count", 400), ("sum", 40)):
        points = [(t, step * t / 15) for t in range(0, 200, 15)]
        name = f"http_server_request_duration_seconds_{ending}"
        add_series(
            case, metrics, name, {"service": "gateway", "instance": "g:1"}, points, "counter"
        )
    assign(case)
    gather(case)
    assert case.scalar("SELECT is_sampled FROM cohort")
    assert case.scalar("SELECT count(*) FROM queue_replay") == 0
    notes = case.rows("SELECT DISTINCT note FROM indicator WHERE name = 'jitter'")
    assert "biased" in notes[0][0]


SPAN = PathSpan(1, "t", "a", None, "gateway", 0, 100, "", False, None, False, None, None, None)


def test_parts_along_the_critical_path() -> None:
    spans = [
        SPAN,
        SPAN._replace(span_id="c", parent_id="a", start_ns=10, end_ns=40, is_call=True, callee="risk"),
        SPAN._replace(span_id="s", parent_id="c", start_ns=15, end_ns=35, service="risk"),
        # Runs beside the engine's call and ends before it: it is not waited for.
        SPAN._replace(span_id="x", parent_id="a", start_ns=45, end_ns=60, service="audit"),
        SPAN._replace(span_id="e", parent_id="a", start_ns=40, end_ns=95, service="vllm", is_engine=True,
                      queue_ns=20, prefill_ns=10, decode_ns=20),
    ]  # fmt: skip
    assert sorted(path(spans)) == [
        ("decode", "vllm", 20), ("engine, rest", "vllm", 5), ("network", "risk", 10),
        ("own time", "gateway", 15), ("own time", "risk", 20), ("prefill", "vllm", 10), ("queue", "vllm", 20),
    ]  # fmt: skip


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 90), st.integers(0, 60)), max_size=12)
)
def test_parts_add_up_whatever_the_spans_do(rows: list[tuple[int, int, int]]) -> None:
    spans = [SPAN]
    for i, (parent, start, dur) in enumerate(rows):
        spans.append(SPAN._replace(span_id=str(i), parent_id="a" if parent < 0 else str(parent),
                                   start_ns=start, end_ns=start + dur, service=f"s{i % 3}"))  # fmt: skip
    reached = [
        s for s in spans if s.parent_id is None or s.parent_id in {x.span_id for x in spans}
    ]
    assert sum(ns for _, _, ns in path(reached)) == 100


def test_parts_of_a_cohort_add_up_to_its_latency(case: Case) -> None:
    risky(case)
    gather(case)
    added, es95 = case.rows("SELECT sum(added_ns), sum(es95_added_ns) FROM cohort_part")[0]
    before, after = (
        case.scalar(f"SELECT avg(e2e_ns) FROM cohort_request WHERE side = '{side}'")
        for side in ("reference", "window")
    )
    assert added == pytest.approx(after - before)
    assert es95 == pytest.approx(5 * SECOND - 0.2 * SECOND)


def test_a_queue_of_too_few_slots_is_put_down_to_them(case: Case) -> None:
    for part, slots in (("baseline", 8), ("incident", 2)):
        trace = add_source(case, "trace", part, last_ns=at(100))
        needs = [(at(i * 0.25) + 0, 0.6 * SECOND, slots) for i in range(200)]
        for i, wait in enumerate(fifo(needs)):
            add_span(case, trace, f"{part}{i}", "vllm", "llm_request", i * 0.25, wait / SECOND + 0.6,
                     gen_ai__latency__time_in_queue=wait / SECOND, gen_ai__latency__e2e=1.0)  # fmt: skip
    add_window(case, 0, 60)
    gather(case)
    rows = dict(case.rows("SELECT driver, share FROM latency_driver"))
    assert rows["fewer slots"] == pytest.approx(1, abs=0.05)
    ratio, note = case.rows(
        "SELECT observed, note FROM indicator WHERE name = 'queue_model_ratio'"
    )[0]
    assert ratio == pytest.approx(1, abs=0.1)
    assert note is None


def test_first_come_first_served() -> None:
    assert fifo([(0, 10, 1), (1, 10, 1), (2, 10, 1)]) == [0, 9, 18]
    assert fifo([(0, 10, 2), (1, 10, 2), (2, 10, 2)]) == [0, 0, 8]


def test_shapley_values_add_up_and_know_a_bystander() -> None:
    def queue(s: tuple[bool, bool, bool]) -> float:
        return 10.0 * s[0] + 4.0 * s[0] * s[1]

    every = {
        (a, b, c): queue((a, b, c))
        for a in (False, True)
        for b in (False, True)
        for c in (False, True)
    }
    assert shapley(every) == pytest.approx((12, 2, 0))


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_fisher_agrees_with_scipy(n: int, m: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    ours = counts.fisher(np.array([a]), n, np.array([b]), m)[0]
    assert ours == pytest.approx(stats.fisher_exact([[a, n - a], [b, m - b]])[1], rel=1e-6)


def test_discovery_rates_agree_with_scipy() -> None:
    p = np.array([0.001, 0.2, 0.03, 0.03, 0.9])
    assert counts.discovery_rates(p) == pytest.approx(stats.false_discovery_control(p))


def test_jitter_is_what_the_batch_does_not_explain() -> None:
    batch = np.arange(1.0, 41)
    explained = jitter(10 * batch, batch)
    assert explained is not None
    assert explained[0] == pytest.approx(0, abs=1e-6)
    falling = jitter(1000 - 10 * batch, batch)
    assert falling is not None
    assert falling[0] == pytest.approx(0, abs=1e-6)
    assert falling[1] == pytest.approx(
        4 * (1000 - 10 * batch).std() / (1000 - 10 * batch).mean()
    )
    assert jitter(batch[:19], batch[:19]) is None


def test_a_leak_is_found_from_where_it_begins() -> None:
    times = np.arange(40, dtype=np.int64) * SECOND
    level = 100.0 + 5.0 * np.maximum(np.arange(40) - 20, 0)
    found = growth(times, level)
    assert found.slope == pytest.approx(5, rel=0.05)
    assert found.r_squared == pytest.approx(1, abs=0.01)
    assert found.since is not None and abs(found.since - 20) <= 1
    assert growth(times, np.full(40, 7.0)).r_squared is None


def test_keys_at_the_end_of_a_recording_are_not_cold() -> None:
    times = np.arange(0, 100, 10, dtype=np.int64)
    share, common, n = cold_share(times, ["a", "b"] * 5, 30)
    assert (share, common, n) == (0.0, 0.2, 7)


def test_versions_that_do_not_belong_together(case: Case) -> None:
    trace = add_source(case, "trace", last_ns=at(200))
    for i in range(40):
        model = "v1" if i < 20 else "v2"
        add_request(case, trace, f"t{i}", 100 + i, 0.1 if i < 20 else 3.0, model__version=model,
                    tokenizer__version="v1")  # fmt: skip
    add_window(case, 100, 140, "e2e p99 < 1 s")
    gather(case)
    rows = case.rows(
        "SELECT model, partner, is_skewed, requests, first_ns, share_slow, share_slow_others FROM version_window"
    )
    assert rows == [
        ("v1", "v1", False, 20, at(100), 0.0, 0.0),
        ("v2", "v1", True, 20, at(120), 1.0, 0.0),
    ]


def test_a_burst_of_invalidations(case: Case) -> None:
    trace = add_source(case, "trace", last_ns=at(200))
    for i in range(60):
        second = 100 + i if i < 20 else 150 + (i - 20) / 20
        add_span(case, trace, f"i{i}", "catalogue", "cache-invalidate", second, 0.01,
                 cache__reason="stock_update", cache__key=f"product:{i % 5}")  # fmt: skip
    add_window(case, 100, 180)
    gather(case)
    (row,) = case.rows("SELECT reason, start_ns, end_ns, n, n_keys FROM invalidation_storm")
    assert row == ("stock_update", at(150), at(152), 40, 5)


def test_retries_multiply_on_the_way_down(case: Case) -> None:
    trace = add_source(case, "trace", last_ns=at(200))
    for i in range(40):
        tries = 1 if i < 20 else 3
        second = i if i < 20 else 100 + i
        add_span(case, trace, f"t{i}", "gateway", "POST", second, 1, span="root")
        for n in range(tries):
            add_span(
                case, trace, f"t{i}", "shop", "get", second, 0.2, span=f"s{n}", parent="root"
            )
            for k in range(tries):
                add_span(
                    case,
                    trace,
                    f"t{i}",
                    "db",
                    "read",
                    second,
                    0.1,
                    span=f"d{n}{k}",
                    parent=f"s{n}",
                )
    add_window(case, 100, 180)
    gather(case)
    assert case.rows("SELECT depth, per_request_reference, per_request, hop_ratio FROM call_depth") == [
        (0, 1.0, 1.0, None), (1, 1.0, 3.0, 3.0), (2, 1.0, 9.0, 3.0),
    ]  # fmt: skip


def node(key: str, onset: int | None, step: int, clock: str = "metrics") -> Node:
    return Node(key, key, "mechanism", 1.0, onset, step, clock)


@pytest.mark.parametrize(
    ("begin", "end", "agree", "expected"),
    [
        (node("a", 100, 15), node("b", 160, 15), True, ("cause first", 60)),
        (node("a", 100, 15), node("b", 140, 15), True, ("unknown", None)),
        (node("a", 160, 15), node("b", 100, 15), True, ("effect first", -60)),
        (node("a", 100, 15), node("b", None, 15), True, ("unknown", None)),
        (node("a", 100, 1), node("b", 160, 1, "trace"), False, ("unknown", None)),
    ],
)
def test_order_is_told_only_where_onsets_are_apart(
    begin: Node, end: Node, agree: bool, expected: tuple[str, int | None]
) -> None:
    found = lag_of(begin, end, clocks_agree=agree)
    assert (found.order, found.ns) == expected


def test_names_in_the_graph_are_no_markup(case: Case) -> None:
    import case_builder

    with case_builder.diagnosed(name='x"]; click n0 "javascript:alert(1)" <b>`') as made:
        conclude(made)
        found = read(made)
        assert [e.cause for e in found.edges][:2] == ["change:c41", "cause:kv_pool_too_small"]
        drawn = mermaid(found.edges)
        assert drawn.startswith("flowchart LR\n")
        labels = "".join(line.split('"')[1] for line in drawn.splitlines()[1:])
        assert not set("[]<>`;\"'") & set(labels.replace(";", "", labels.count("#")))
        assert (
            json.loads(json.dumps(document(found)))["causal_graph"]["edges"][0]["effect"]
            == "cause:kv_pool_too_small"
        )


def test_a_p99_needs_a_thousand_requests(case: Case) -> None:
    trace = add_source(case, "trace", last_ns=at(2000))
    rows = [
        {"source_id": trace, "trace_id": f"t{i}", "span_id": "s", "parent_id": None, "service": "g", "name": "POST",
         "kind": "server", "start_ns": at(i) - i * 1_000_000, "dur_ns": i * 1_000_000, "status": "ok", "attributes": "{}"}
        for i in range(1, 1201)
    ]  # fmt: skip
    case.insert("span", pl.DataFrame(rows))
    found = case.sql(
        "SELECT * FROM golden_signals WHERE requests IS NOT NULL ORDER BY ts_ns"
    ).to_dicts()
    assert found[0]["p99_ns"] is None
    last = found[-1]
    assert (last["p99_low_ns"], last["p99_ns"], last["p99_high_ns"]) == (
        1_184_000_000,
        1_190_000_000,
        1_197_000_000,
    )
    assert last["p99_since_ns"] == at(201)
