"""Evidence of operations, log lines, kernels and cohorts: what moved, and the query that tells it again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from case_builder import diagnosed
from telemetry_builder import SECOND, T0, add_series, add_source, at

from rca import signals
from rca.case import Case
from rca.catalogue import of
from rca.evidence import groups
from rca.hypotheses import rank
from rca.judge.facts import collect
from rca.pipeline import Options, analyze
from rca.postmortem.markdown import render
from rca.postmortem.story import tell

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "05_dependency_slow"
DAY = 86_400
FROM, UNTIL, STOP = 200, 300, 400
HOSTILE = "<img src=x> '); DROP TABLE evidence; -- lost <*> of shard"


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        row = {
            "id": 1,
            "status": "incident",
            "start_ns": at(FROM),
            "end_ns": at(UNTIL) - 1,
            "margin_ns": SECOND,
        }
        made.insert("incident_window", pl.DataFrame([row]))
        yield made


def gathered(case: Case) -> dict[str, dict[str, Any]]:
    """Rows of groups by subject, each held against its own query."""
    groups.gather(case, signals.load(case, spans=True))
    rows = case.sql("SELECT * FROM evidence ORDER BY rowid").to_dicts()
    for row in rows:
        again = case.rows(row["sql"])[0]
        told = [row[k] for k in ("reference", "observed", "n_reference", "n_observed")]
        assert list(again) == pytest.approx(told), row["subject"]
        assert row["role"] is None
        assert (row["seed"] is None) == (row["effect_low"] is None)
    return {row["subject"]: row for row in rows}


def add_calls(
    case: Case,
    source: int,
    service: str,
    name: str,
    *calls: tuple[float, float, str],
    **attributes: str,
) -> None:
    """Root spans: (seconds, how long in seconds, status)."""
    first = case.scalar("SELECT count(*) FROM span")
    rows = [
        {"trace_id": f"t{first + i}", "span_id": f"s{first + i}", "service": service, "name": name,
         "kind": "server", "start_ns": at(s), "dur_ns": round(dur * SECOND), "status": status,
         "attributes": json.dumps(attributes)}
        for i, (s, dur, status) in enumerate(calls)
    ]  # fmt: skip
    case.insert("span", pl.DataFrame(rows), source_id=source)


def steady(
    first: int, last: int, dur: float, every: int = 1, status: str = "ok"
) -> list[tuple[float, float, str]]:
    """A call each `every` seconds, none quite as long as the one before."""
    return [(s + 0.5, dur * (1 + s % 5 / 100), status) for s in range(first, last, every)]


def two_sides(case: Case, kind: str) -> tuple[int, int]:
    return add_source(case, kind, "baseline"), add_source(case, kind, "incident")


def test_operations_tell_time_errors_and_calls(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    add_calls(case, healthy, "shop", "search", *steady(-DAY, -DAY + STOP, 0.01))
    add_calls(case, healthy, "shop", "pay", *steady(-DAY, -DAY + STOP, 0.02, 2))
    add_calls(case, trace, "shop", "search", *steady(0, FROM, 0.01), *steady(FROM, UNTIL, 0.5),
              *steady(UNTIL, STOP, 0.01))  # fmt: skip
    add_calls(case, trace, "shop", "pay", *steady(0, FROM, 0.02, 2),
              *steady(FROM, UNTIL, 0.02, 2, "error"), *steady(UNTIL, STOP, 0.02, 2))  # fmt: skip
    add_calls(case, trace, "shop", "probe", *steady(FROM, UNTIL, 0.001, 4))
    found = gathered(case)
    assert found.keys() == {"call_time:search", "call_errors:pay", "call_rate:probe"}
    slow = found["call_time:search"]
    assert (slow["source"], slow["service"], slow["unit"]) == ("trace", "shop", "s")
    assert (slow["direction"], slow["n_reference"], slow["n_observed"]) == ("up", 400, 100)
    assert slow["effect_low"] < slow["effect"] < slow["effect_high"]
    assert slow["observed"] / slow["reference"] == pytest.approx(50)
    assert slow["onset_ns"] == at(FROM)
    failing = found["call_errors:pay"]
    assert (failing["direction"], failing["reference"], failing["observed"]) == ("new", 0, 1)
    probe = found["call_rate:probe"]
    assert (probe["direction"], probe["reference"], probe["observed"]) == ("new", 0, 0.25)
    assert (probe["n_reference"], probe["onset_ns"]) == (176, at(FROM))


def test_a_sample_of_traces_counts_no_calls(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    metrics = add_source(case, "metrics")
    served = add_series(
        case,
        metrics,
        "gateway_seconds_count",
        {},
        [(s, 10 * s) for s in range(0, STOP, 10)],
        "counter",
    )
    case.insert("series_role", pl.DataFrame([{
        "series_id": served, "role": "gateway_latency", "service": "shop", "replica": "",
        "scale": 1.0, "combine": "mean", "how": "den"}]))  # fmt: skip
    add_calls(case, healthy, "shop", "pay", *steady(-DAY, -DAY + STOP, 0.02))
    add_calls(case, trace, "shop", "pay", *steady(0, FROM, 0.02), *steady(FROM, UNTIL, 0.2, 4, "error"),
              *steady(UNTIL, STOP, 0.02))  # fmt: skip
    found = gathered(case)
    assert found.keys() == {"call_time:pay"}
    assert found["call_time:pay"]["statement"].endswith("(traces hold a sample)")


def test_spans_without_a_start_are_in_no_row(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    add_calls(case, healthy, "shop", "search", *steady(-DAY, -DAY + STOP, 0.01))
    add_calls(case, trace, "shop", "search", *steady(0, FROM, 0.01), *steady(FROM, UNTIL, 0.5),
              *steady(UNTIL, STOP, 0.01))  # fmt: skip
    case.execute("UPDATE span SET start_ns = NULL WHERE span_id IN ('s0', 's450')")
    assert gathered(case)["call_time:search"]["n_reference"] == 399


def test_another_incident_is_no_reference(case: Case) -> None:
    trace = add_source(case, "trace")
    before = {
        "id": 2,
        "status": "incident",
        "start_ns": at(40),
        "end_ns": at(80),
        "margin_ns": 0,
    }
    case.insert("incident_window", pl.DataFrame([before]))
    add_calls(case, trace, "shop", "search", *steady(0, 40, 0.01), *steady(40, 80, 0.5), *steady(80, FROM, 0.01),
              *steady(FROM, UNTIL, 0.5), *steady(UNTIL, STOP, 0.01))  # fmt: skip
    row = gathered(case)["call_time:search"]
    assert row["reference"] == pytest.approx(0.0102, rel=0.01)
    assert row["statement"].endswith("rose against the lead-in")


def add_lines(case: Case, source: int, text: str, level: str, seconds: range) -> None:
    rows = [
        {
            "ts_ns": at(s),
            "level": level,
            "template": text,
            "message": text,
            "service": "api",
            "fields": "{}",
        }
        for s in seconds
    ]
    case.insert("log", pl.DataFrame(rows), source_id=source)


def test_log_lines_that_are_new_gone_or_more(case: Case) -> None:
    healthy, log = two_sides(case, "log")
    for source, day in ((healthy, -DAY), (log, 0)):
        add_lines(case, source, "request <*> served", "info", range(day, day + STOP, 2))
    add_lines(case, healthy, "cache warmed", "info", range(-DAY, -DAY + STOP, 5))
    add_lines(case, log, "cache warmed", "info", range(0, FROM, 5))
    add_lines(case, log, HOSTILE, "error", range(FROM + 12, UNTIL, 4))
    add_lines(case, healthy, "retry <*>", "warning", range(-DAY, -DAY + STOP, 20))
    add_lines(case, log, "retry <*>", "warning", range(0, STOP, 20))
    add_lines(case, log, "retry <*>", "warning", range(FROM, UNTIL, 2))
    add_lines(case, healthy, "tick", "info", range(-DAY, -DAY + STOP, 8))
    add_lines(case, log, "tick", "info", range(0, STOP, 8))
    add_lines(case, log, "tick", "info", range(FROM, UNTIL))
    found = gathered(case)
    assert list(found) == ["retry <*>", HOSTILE, "tick", "cache warmed"]  # what is bad first
    assert [r["direction"] for r in found.values()] == ["up", "new", "up", "gone"]
    new = found[HOSTILE]
    assert (new["source"], new["service"], new["unit"]) == ("log", "api", "lines/s")
    assert (new["reference"], new["observed"]) == (0, pytest.approx(0.22))
    assert (new["n_reference"], new["n_observed"], new["onset_ns"]) == (17, 10, at(FROM + 10))
    assert found["cache warmed"]["effect"] is None


def test_no_more_rows_than_there_is_room_for(case: Case) -> None:
    healthy, log = two_sides(case, "log")
    add_lines(case, healthy, "steady", "info", range(-DAY, -DAY + STOP))
    add_lines(case, log, "steady", "info", range(STOP))
    for i in range(30):
        add_lines(
            case,
            log,
            f"kind {'abcdefghij'[i % 10] * (i // 10 + 1)}",
            "error",
            range(FROM, UNTIL),
        )
    assert len(gathered(case)) == groups.LINES


def add_kernels(
    case: Case, source: int, name: str, starts_us: range, dur_us: int, first_id: int
) -> None:
    rows = [
        {"id": first_id + i, "kind": "kernel", "name": name, "device": 0, "stream": 7,
         "start_ns": T0 + us * 1000, "dur_ns": dur_us * 1000 + us % 7}
        for i, us in enumerate(starts_us)
    ]  # fmt: skip
    case.insert("gpu_op", pl.DataFrame(rows), source_id=source)


@pytest.mark.parametrize("kind", ["nsys", "torch_profiler"])
def test_families_of_kernels(case: Case, kind: str) -> None:
    sides = two_sides(case, kind)
    for source, slower, more in zip(sides, (1, 3), (1, 2), strict=True):
        add_kernels(
            case, source, "void at::gemm<float, 4>(int)", range(0, 160_000, 1000), 100, 0
        )
        add_kernels(case, source, "attn_128x64_3", range(200, 160_200, 1000), 50 * slower, 1000)
        add_kernels(case, source, "copy_1", range(500, 160_500, 1000 // more), 20, 2000)
        steps = [
            {"id": i, "kind": "annotation", "name": f"ProfilerStep#{i}", "start_ns": T0 + i * 10_000_000,
             "dur_ns": 9_000_000}
            for i in range(16)
        ]  # fmt: skip
        case.insert("cpu_op", pl.DataFrame(steps), source_id=source)
    found = gathered(case)
    slow = found["family_time:attn_*"]
    assert (slow["source"], slow["direction"], slow["unit"]) == (kind, "up", "s")
    assert slow["observed"] / slow["reference"] == pytest.approx(3, rel=1e-3)
    assert (slow["n_reference"], slow["n_observed"]) == (16, 16)
    assert slow["effect_low"] <= slow["effect"] <= slow["effect_high"]
    calls = found["family_calls:copy"]
    assert (calls["reference"], calls["observed"], calls["unit"]) == (10, 20, "per step")
    assert found["family_share:at::gemm"]["direction"] == "down"
    assert "family_time:at::gemm" not in found
    assert "family_calls:attn_*" not in found


def test_only_one_tenant_is_slow(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    for tenant, slow in (("blue", 1.0), ("red", 6.0), ("green", 1.0)):
        named = {"tenant.id": tenant, "gen_ai.request.model": f"model of {tenant == 'red'}"}
        add_calls(case, healthy, "api", "chat", *steady(-DAY, -DAY + STOP, 1.0, 2), **named)
        add_calls(case, trace, "api", "chat", *steady(0, FROM, 1.0, 2), *steady(FROM, UNTIL, slow, 2),
                  *steady(UNTIL, STOP, 1.0, 2), **named)  # fmt: skip
    found = {k: r for k, r in gathered(case).items() if k.startswith("cohort_")}
    # The model's requests are the tenant's own: told once.
    assert found.keys() == {"cohort_latency:tenant red"}
    row = found["cohort_latency:tenant red"]
    assert (row["direction"], row["n_reference"], row["n_observed"]) == ("up", 88, 50)
    assert row["observed"] / row["reference"] == pytest.approx(6, rel=0.01)
    assert row["statement"].endswith("; all other requests: ×1")


def test_when_all_tenants_are_slow_none_stands_apart(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    for tenant in ("blue", "red", "green"):
        named = {"tenant.id": tenant}
        add_calls(case, healthy, "api", "chat", *steady(-DAY, -DAY + STOP, 1.0, 2), **named)
        add_calls(case, trace, "api", "chat", *steady(0, FROM, 1.0, 2), *steady(FROM, UNTIL, 6.0, 2),
                  *steady(UNTIL, STOP, 1.0, 2), **named)  # fmt: skip
    assert not [k for k in gathered(case) if k.startswith("cohort_")]


def test_groups_come_last_and_move_no_hypothesis() -> None:
    with analyze([SAMPLE], options=Options(trial_budget_s=None)) as case:
        ids = [(k, g) for k, s, r, g in case.rows("SELECT id, source, role, subject FROM evidence ORDER BY rowid")
               if signals.group_of(s, r, g)]  # fmt: skip
        every = [k for (k,) in case.rows("SELECT id FROM evidence ORDER BY rowid")]
        assert ("E105", "call_time:GET /search") in ids
        assert every == [f"E{i}" for i in range(1, len(every) + 1)]
        assert [k for k, _ in ids] == every[-len(ids) :]
        ranked = case.rows("SELECT * FROM hypothesis ORDER BY rank")
        case.execute("DELETE FROM evidence WHERE list_contains(?, id)", [[k for k, _ in ids]])
        rank(case)
        assert case.rows("SELECT * FROM hypothesis ORDER BY rank") == ranked


def test_a_question_names_a_few_groups_by_placeholders(case: Case) -> None:
    healthy, trace = two_sides(case, "trace")
    for name in ("one", "two", "three", "four", "five", "six"):
        add_calls(case, healthy, "shop", f"secret-{name}", *steady(-DAY, -DAY + STOP, 0.01))
        add_calls(case, trace, "shop", f"secret-{name}", *steady(0, FROM, 0.01), *steady(FROM, UNTIL, 0.5),
                  *steady(UNTIL, STOP, 0.01))  # fmt: skip
    assert len(gathered(case)) == 6
    shown = [f.shown for f in collect(case, of(case)).evidence]
    assert [s["meaning"] for s in shown] == ["time of a call of an operation"] * 4
    assert "secret-" not in json.dumps(shown)


def test_a_log_line_is_shown_as_data_in_the_document() -> None:
    with diagnosed() as case:
        row = case.sql("SELECT * FROM evidence LIMIT 1").to_dicts()[0]
        line = row | {"id": "E99", "source": "log", "role": None, "service": None, "subject": HOSTILE,
                      "statement": f"log line {HOSTILE} appeared", "direction": "new", "unit": "lines/s"}  # fmt: skip
        case.insert("evidence", pl.DataFrame([line]))
        text = render(tell(case), (), None)
    section = text.partition("What else moved")[2].partition("\n#")[0]
    assert "lost" in section
    assert "E99" in section
    assert not re.search("(?<!`)<img", text)  # in backticks it is no markup
