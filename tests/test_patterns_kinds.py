"""Phases, kernels and events: planted groups with their members, in the case and in the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import md5
from string import ascii_lowercase
from typing import Any

import case_builder
import numpy as np
import polars as pl
import pytest
from recording_builder import END, SECOND, START, STOP, T0, add_source

from rca.case import Case, sql_text
from rca.patterns import cluster, events, kernels, windows
from rca.patterns.grouping import Matrix
from rca.postmortem import pattern_sections
from rca.postmortem.markdown import render
from rca.postmortem.story import tell
from rca.signals import Points, Signal

STEP = 15 * SECOND


def members(row: dict[str, Any]) -> list[Any]:
    found: list[Any] = json.loads(row["members"])
    return found


# Phases


@pytest.fixture
def slow() -> Iterator[Case]:
    """Four metrics that leave their range from START to END, and requests likewise."""
    with case_builder.diagnosed() as case:
        yield case


def test_slices_of_the_incident_are_a_phase_of_their_own(slow: Case) -> None:
    healthy, ill = windows.groups(slow)
    assert healthy["name"] == "as healthy"
    assert {"waiting of vllm", "queue_time of vllm"} <= set(json.loads(ill["centre"]))
    assert all(START - STEP < ts < END for ts in members(ill))
    assert all(not START <= ts < END - STEP for ts in members(healthy))
    assert len(members(ill)) + len(members(healthy)) == healthy["size"] + ill["size"]
    assert healthy["size"] + ill["size"] == (STOP - T0 + 600 * SECOND) // STEP


def test_a_phase_in_between_is_found_and_phases_stand_in_the_order_of_time(slow: Case) -> None:
    """For five minutes the pool is full and the queue long, and users feel nothing yet."""
    early = START - 300 * SECOND
    slow.execute(
        "UPDATE sample SET value = CASE series_id WHEN 1101 THEN 24 WHEN 1102 THEN 0.99 ELSE 9 END "
        "WHERE series_id BETWEEN 1101 AND 1103 AND ts_ns BETWEEN ? AND ?",
        [early, START - 1],
    )
    found = windows.groups(slow)
    healthy, full, ill = found
    assert healthy["name"] == "as healthy"
    assert full["name"] == "waiting of vllm up, KV usage of vllm up"
    assert json.loads(full["centre"])["queue_time of vllm"] == pytest.approx(0.0, abs=0.2)
    assert json.loads(ill["centre"])["queue_time of vllm"] > 0.9
    assert all(early - STEP < ts < START for ts in members(found[1]))
    assert [members(row)[0] for row in found] == sorted(members(row)[0] for row in found)


def test_without_a_window_or_a_healthy_reference_there_are_no_phases(slow: Case) -> None:
    slow.execute("DELETE FROM sample WHERE series_id < 1000")
    slow.execute("DELETE FROM span WHERE source_id = 2")
    assert len(windows.groups(slow)) == 2  # what came before the window is the reference
    slow.execute("DELETE FROM sample WHERE ts_ns < ?", [START])
    slow.execute("DELETE FROM span WHERE start_ns < ?", [START])
    assert windows.groups(slow) == []
    with case_builder.no_incident() as well:
        assert windows.groups(well) == []


def test_noise_has_no_phases() -> None:
    """Four signals that only stray, over 40 recordings of 100 slices; a healthy baseline beside each."""
    split = [seed for seed in range(40) if windows.group(_noise(seed)).labels.max() > 0]
    assert len(split) <= 4


def _noise(seed: int) -> Matrix:
    random = np.random.default_rng(seed)
    at = np.arange(100) * windows._SHORTEST_NS
    sides = [
        [Points(at, random.lognormal(0.0, 0.3, 100), np.ones(100)) for _ in range(2)]
        for _ in range(4)
    ]
    signals = [Signal("metrics", "waiting", f"s{i}", "", *side) for i, side in enumerate(sides)]
    features, _ = windows._features(signals, windows._Slices(0, windows._SHORTEST_NS, 100), 0)
    assert features.shape == (100, 4)
    return features


# Kernels


def captured(rows: list[tuple[str, str, int, int, str]]) -> Case:
    """A case of one capture a side: kernels as (part, name, runs, ns a run, grid)."""
    case = Case.create()
    for number, part in ((1, "baseline"), (2, "incident")):
        add_source(case, number, part, "torch_profiler", f"{part}.pt.trace.json")
    ops = [
        {"source_id": 1 if part == "baseline" else 2, "kind": "kernel", "name": name,
         "start_ns": T0 + i, "dur_ns": dur_ns + i % 3, "grid": grid}
        for part, name, runs, dur_ns, grid in rows for i in range(runs)
    ]  # fmt: skip
    case.insert("gpu_op", pl.DataFrame(ops).with_row_index("id").cast({"id": pl.Int64}))
    return case


def kernel_rows(slower: int, *, baseline: bool = True) -> list[tuple[str, str, int, int, str]]:
    """24 kernels of which the first 8 take so many times as long in the incident."""
    rows = [("incident", f"k{i:02}", 10 + i, (5000 + 200 * i) * (slower if i < 8 else 1), "64,1,1")
            for i in range(24)]  # fmt: skip
    if baseline:
        rows += [("baseline", f"k{i:02}", 10 + i, 5000 + 200 * i, "64,1,1") for i in range(24)]
    return rows


def test_kernels_that_became_slower_are_a_group() -> None:
    with captured(kernel_rows(3)) as case:
        rest, slower = kernels.groups(case)
    assert sorted(members(slower)) == [f"k{i:02}" for i in range(8)]
    assert slower["name"].startswith("slower")
    assert sorted(members(rest)) == [f"k{i:02}" for i in range(8, 24)]
    assert slower["stability"] == pytest.approx(1.0, abs=0.1)


def test_kernels_that_did_not_change_are_one_group() -> None:
    with captured(kernel_rows(1)) as case:
        (one,) = kernels.groups(case)
    assert (one["name"], one["size"], one["silhouette"]) == ("as in the baseline", 24, None)


def test_kernels_that_stray_are_one_group() -> None:
    changes = [np.random.default_rng(seed).normal(0.0, 0.3, (60, 4)) for seed in range(40)]
    split = [
        c
        for c in changes
        if kernels.group(kernels._features(c, True), kernels._SIZES).labels.any()
    ]
    assert len(split) <= 4


def test_kernels_of_the_baseline_alone_are_not_gone() -> None:
    with captured([row for row in kernel_rows(1) if row[0] == "baseline"]) as case:
        assert kernels.groups(case) == []


def test_new_kernels_are_told_from_slower_ones() -> None:
    added = [("incident", f"new{i}", 20, 4000, "8,8,1") for i in range(6)]
    with captured([*kernel_rows(1), *added]) as case:
        _, fresh = kernels.groups(case)
    assert sorted(members(fresh)) == [f"new{i}" for i in range(6)]
    assert "new" in fresh["name"]
    assert json.loads(fresh["centre"])["presence"] == pytest.approx(0.93, abs=0.01)


@pytest.mark.parametrize("counted", ["steps", "requests", "neither"])
def test_runs_count_by_the_work_that_they_were_for(counted: str) -> None:
    """Every kernel runs twice as often, for twice the steps or for twice the requests."""
    rows = [
        (p, n, runs * 2 if p == "incident" else runs, ns, g)
        for p, n, runs, ns, g in kernel_rows(1)
    ]
    query = sql_text("patterns", "kernels").strip().removesuffix(";")
    twice = ((1, 10), (2, 20))
    with captured(rows) as case:
        if counted == "steps":
            case.insert("cpu_op", pl.DataFrame([
                {"source_id": source, "id": i, "kind": "annotation", "name": f"ProfilerStep#{i}",
                 "start_ns": T0 + i, "dur_ns": 1} for source, n in twice for i in range(n)]))  # fmt: skip
        if counted == "requests":
            case.insert("span", pl.DataFrame([
                {"source_id": source, "trace_id": f"{source}-{i}", "span_id": "a", "name": "llm_request",
                 "kind": "server", "start_ns": T0, "dur_ns": SECOND, "status": "ok", "attributes": "{}"}
                for source, n in twice for i in range(n)]))  # fmt: skip
        same = case.rows(f"SELECT calls FROM ({query}) WHERE name = 'k00'", [600])
        if counted != "neither":  # twice the runs for the same work
            case.execute(f"DELETE FROM {'cpu_op' if counted == 'steps' else 'span'} WHERE source_id = 2 "
                         f"AND {'id >= 10' if counted == 'steps' else 'rowid >= 20'}")  # fmt: skip
            more = case.rows(f"SELECT calls FROM ({query}) WHERE name = 'k00'", [600])
            assert more[0][0] == pytest.approx(np.log(2.0))
    assert same[0][0] == pytest.approx(0.0)


def test_without_a_baseline_kernels_are_grouped_by_what_they_are_like() -> None:
    rows = [("incident", f"long{i}", 5, 900_000 + 9000 * i, "512,8,1") for i in range(10)]
    rows += [("incident", f"short{i}", 400, 2_000 + 20 * i, "4,1,1") for i in range(14)]
    with captured(rows) as case:
        found = {tuple(sorted(members(row))): row["name"] for row in kernels.groups(case)}
    assert set(found) == {
        tuple(f"long{i}" for i in range(10)),
        tuple(sorted(f"short{i}" for i in range(14))),
    }
    assert found[tuple(f"long{i}" for i in range(10))].startswith(
        ("long", "run seldom", "of large grids")
    )


def test_a_handful_of_kernels_is_not_grouped() -> None:
    with captured(kernel_rows(3)[:11]) as case:
        cluster(case)
        assert case.scalar("SELECT count(*) FROM pattern") == 0


# Events


STORIES = {
    "queue": ["RequestQueueTooDeep", "request waits in queue, depth <*>", "queue depth above <*> for request <*>"],
    "disk": ["DiskLatencyHigh", "slow write to disk volume <*>", "disk volume flush took <*> ms"],
}  # fmt: skip


def told(late_s: int = 500) -> Case:
    """A queue that grows at once and a disk that is slow later: an alert, two kinds of lines, evidence of each."""
    case = case_builder.recorded(None, slow=True)
    case.execute("DELETE FROM alert")
    case.execute(
        "INSERT INTO incident_window (id, status, start_ns, end_ns, margin_ns) VALUES (1, 'incident', ?, ?, ?)",
        [START, END, 15 * SECOND],
    )
    add_source(case, 15, "incident", "log", "app.log")
    lines: list[dict[str, Any]] = []
    for (story, texts), at in zip(STORIES.items(), (5, late_s), strict=True):
        begins = START + at * SECOND
        case.insert("alert", pl.DataFrame([{
            "source_id": 14, "name": texts[0], "start_ns": begins + 60 * SECOND,
            "labels": json.dumps({"service": f"{story}-service"}), "annotations": "{}"}]))  # fmt: skip
        lines += [{"source_id": 15, "ts_ns": begins + i * SECOND, "service": f"{story}-service", "level": "warning",
                   "template": text, "message": text, "fields": "{}"} for text in texts[1:] for i in range(5)]  # fmt: skip
    lines += [{"source_id": 15, "ts_ns": ts, "service": "web", "level": "info", "template": "request served",
               "message": "request served", "fields": "{}"} for ts in range(START - 600 * SECOND, END, 10 * SECOND)]  # fmt: skip
    case.insert("log", pl.DataFrame(lines))
    rows = [("E1", "queue_time", "queue", "time in the queue", 6), ("E2", "waiting", "queue", "queue depth", 8),
            ("E3", "disk_wait", "disk", "wait for the disk", late_s + 1), ("E4", "flat_one", "disk", "disk", 1)]  # fmt: skip
    case.insert("evidence", pl.DataFrame([
        {"id": key, "source": "metrics", "role": role, "service": f"{story}-service", "subject": role,
         "statement": f"{text} of {story}-service rose against the baseline", "unit": "s",
         "direction": "flat" if key == "E4" else "up", "strength": 0.0 if key == "E4" else 0.9,
         "n_reference": 9, "n_observed": 9, "onset_ns": START + at * SECOND, "sql": "SELECT 1"}
        for key, role, story, text, at in rows]))  # fmt: skip
    return case


def log_id(template: str) -> str:
    return "log:" + md5(template.encode(), usedforsecurity=False).hexdigest()[:8]


def test_events_of_one_story_are_a_group_and_the_first_comes_first() -> None:
    with told() as case:
        queue, disk = events.groups(case)
    assert members(queue)[-1] == "alert:RequestQueueTooDeep"
    assert set(members(queue)) == {
        "E1", "E2", "alert:RequestQueueTooDeep", *map(log_id, STORIES["queue"][1:])
    }  # fmt: skip
    assert set(members(disk)) == {
        "E3",
        "alert:DiskLatencyHigh",
        *map(log_id, STORIES["disk"][1:]),
    }
    assert queue["name"].endswith("; first 5 s after the start")
    assert "queue" in queue["name"].partition(";")[0]
    assert "disk" in disk["name"].partition(";")[0]


def test_events_that_have_nothing_in_common_are_one_group() -> None:
    split = [
        seed for seed in range(40) if events.group(_unrelated(seed), events._SIZES).labels.any()
    ]
    assert len(split) <= 4


def _unrelated(seed: int) -> Matrix:
    """24 events of four random words each, at any time, in one of three services."""
    random = np.random.default_rng(seed)
    texts, _ = events._weights(
        [random.choice(list(ascii_lowercase), 4).tolist() for _ in range(24)]
    )
    services, places = random.choice(["a", "b", "c"], 24), random.uniform(-0.2, 1.0, 24)
    return events._features(texts, pl.DataFrame({"service": services, "place": places}))


def test_lines_that_come_as_often_as_before_are_no_events() -> None:
    with told() as case:
        named = {key for row in events.groups(case) for key in members(row)}
    assert log_id("request served") not in named


def test_operations_that_became_slow_are_events_with_their_onset() -> None:
    with told() as case:
        case.execute(
            "INSERT INTO suspect (rank, service, metric, score) VALUES (1, 'vllm', 'llm_request', 9.0)"
        )
        (found,) = [
            r
            for r in case.sql(sql_text("patterns", "events")).to_dicts()
            if r["id"] == "span:vllm llm_request"
        ]
    assert abs(found["onset_ns"] - START) <= 5 * SECOND


def test_names_are_taken_apart_into_words() -> None:
    assert events.tokens("HTTPServerErrors") == ["http", "server", "error"]
    assert events.tokens("vllm:num_requests_waiting is 42") == [
        "vllm",
        "num",
        "request",
        "waiting",
    ]
    assert events.tokens("очередь <*> status") == ["очередь", "status"]


def test_words_of_nothing_but_signs_are_no_fault() -> None:
    with told() as case:
        case.execute("UPDATE alert SET name = '!!!' || name[1:1]")
        case.execute("UPDATE log SET template = '???' || ts_ns WHERE level = 'warning'")
        assert [row["kind"] for row in events.groups(case)] != []


# All of them


def test_hostile_names_are_data_in_the_case_and_in_the_document() -> None:
    hostile = case_builder.HOSTILE
    with told() as case:
        case.execute("UPDATE alert SET name = ? || name", [hostile])
        case.execute(
            "UPDATE log SET template = ? || template WHERE level = 'warning'", [hostile]
        )
        case.execute("UPDATE evidence SET service = ?", [hostile])
        cluster(case)
        kept = [
            json.loads(m)
            for (m,) in case.rows("SELECT members FROM pattern WHERE kind = 'alert'")
        ]
        assert f"alert:{hostile}DiskLatencyHigh" in [key for group in kept for key in group]
        (section,) = pattern_sections.tell(case)
    shown = "\n".join(" ".join(row) for row in section.rows)
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_the_document_tells_phases_and_events(slow: Case) -> None:
    cluster(slow)
    document = render(tell(slow), (), "alerts.rules.yml")
    table = document.split("### Patterns")[1].split("All of it")[0]
    assert "as healthy" in table
    assert "2026-01-31 02:17:" in table


def test_the_document_has_no_table_where_there_is_nothing_to_tell_apart() -> None:
    with captured(kernel_rows(1)) as case:
        cluster(case)
        assert case.scalar("SELECT count(*) FROM pattern") == 1
        assert pattern_sections.tell(case) == []
