"""Durations that are none: the row stays, marked; no sum, no request and no time range counts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_recordings import event, notes, trace
from test_nsys_sqlite import PID, SESSION, build

from rca.case import Case

Read = Callable[..., Case]
_NS = 1_700_000_000_000_000_000
_MS = 1_000_000


def _span(number: int, start_ns: int, end_ns: int, parent: int | None = None) -> dict[str, Any]:
    return {
        "traceId": f"{number if parent is None else parent:032x}", "spanId": f"{number:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}", "name": f"s{number}", "kind": 2,
        "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(end_ns),
    }  # fmt: skip


def _otlp(spans: list[dict[str, Any]]) -> str:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "gw"}}]}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    )


@pytest.fixture
def case(tmp_path: Path, read_files: Read) -> Case:
    """Sound roots 1 and 2; 3 ends before it begins, 4 begins in 1970; 5 and 6 are children of 1, 6 without an end."""
    spans = [
        _span(1, _NS, _NS + 100 * _MS), _span(2, _NS + _MS, _NS + 51 * _MS),
        _span(3, _NS, _NS - 10**17), _span(4, 1_000, _NS + 5 * _MS),
        _span(5, 2_000, _NS + 20 * _MS, parent=1), _span(6, _NS + 10 * _MS, 0, parent=1),
    ]  # fmt: skip
    path = tmp_path / "spans.json"
    path.write_text(_otlp(spans), encoding="utf-8")
    return read_files(path)


def test_spans_are_kept_and_marked(case: Case) -> None:
    assert case.rows("SELECT name, dur_ns, flaw FROM span ORDER BY name") == [
        ("s1", 100 * _MS, None), ("s2", 50 * _MS, None), ("s3", -(10**17), "negative_duration"),
        ("s4", _NS + 5 * _MS - 1_000, "absurd_duration"),
        ("s5", _NS + 20 * _MS - 2_000, "absurd_duration"), ("s6", None, "no_duration"),
    ]  # fmt: skip
    assert case.rows("SELECT code, level, count, example FROM ingest_note") == [
        ("bad_duration", "warning", 3, "s3: negative_duration")
    ]
    assert case.rows("SELECT status, n_elements FROM source") == [("ok", 6)]


def test_no_sum_and_no_request_counts_them(case: Case) -> None:
    assert case.rows("SELECT name, self_ns FROM span_self ORDER BY name") == [
        ("s1", 100 * _MS), ("s2", 50 * _MS),
    ]  # fmt: skip
    assert case.rows("SELECT e2e_ns FROM request ORDER BY e2e_ns") == [
        (50 * _MS,),
        (100 * _MS,),
    ]
    assert case.rows("SELECT min(start_ns), max(dur_ns) FROM trace_span") == [(_NS, 100 * _MS)]
    assert case.rows("SELECT first_ns, last_ns FROM source") == [(_NS, _NS + 100 * _MS)]


def test_calls_of_a_profile_are_kept_and_marked(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "p.json"
    calls = [("cudaLaunchKernel", 10), ("cudaLaunchKernel", -5), ("cudaLaunchKernel", 30)]
    path.write_text(trace(*(
        event(name, str(1000 + 100 * n), str(dur), cat="cuda_runtime", correlation=n)
        for n, (name, dur) in enumerate(calls)
    )), encoding="utf-8")  # fmt: skip
    _check_calls(read_files(path))


def test_calls_of_an_export_are_kept_and_marked(tmp_path: Path, read_files: Read) -> None:
    rows = ", ".join(f"({1000 + n * 10**5}, {1000 + n * 10**5 + dur}, {PID}, {n}, 2)"
                     for n, dur in enumerate((10_000, -5_000, 30_000)))  # fmt: skip
    table = f"""CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES {rows};"""
    _check_calls(read_files(build(tmp_path / "r.sqlite", SESSION, table)))


def _check_calls(case: Case) -> None:
    assert case.rows("SELECT dur_ns, flaw FROM cpu_op ORDER BY start_ns") == [
        (10_000, None), (0, "negative_duration"), (30_000, None),
    ]  # fmt: skip
    assert case.rows("SELECT count, min_ns, avg_ns FROM api_summary") == [(2, 10_000, 20_000.0)]
    assert notes(case)["bad_duration"] == 1


@pytest.mark.parametrize(("call", "noted"), [("hipLaunchKernel", 1), ("cudaGraphLaunch", None)])
def test_a_kernel_of_rocm_that_covers_the_next_is_said(
    call: str, noted: int | None, tmp_path: Path, read_files: Read
) -> None:
    kernels = [
        ("a", 100, 10),
        ("long", 200, 90_000),
        ("b", 300, 10),
        ("c", 90_500, 10),
        ("d", 90_500, 10),
    ]
    path = tmp_path / "p.json"
    path.write_text(trace(
        event(call, "50", "5", cat="cuda_runtime", correlation=1),
        *(event(n, str(ts), str(dur), cat="kernel", device=0, stream=3) for n, ts, dur in kernels),
        event("other stream", "210", "5", cat="kernel", device=0, stream=4),
    ), encoding="utf-8")  # fmt: skip
    case = read_files(path)
    assert notes(case).get("overrun") == noted
    if noted:
        example = case.scalar("SELECT example FROM ingest_note WHERE code = 'overrun'")
        assert example == "long: 90 ms"
    assert case.scalar("SELECT count(*) FROM gpu_op WHERE flaw IS NULL") == 6
