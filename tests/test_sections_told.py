"""Sections about requests and memory: what the tables hold is what documents show."""

from __future__ import annotations

import case_builder
import numpy as np
import polars as pl
import pytest
from case_builder import START
from telemetry_builder import at

from rca.answer import read
from rca.answer.verdict_json import verdict
from rca.case import Case
from rca.findings.cohort import query
from rca.postmortem.section import Section
from rca.postmortem.sections import tell

GB = 1e9


def section(case: Case, title: str) -> Section | None:
    return next((s for s in tell(case, read(case)) if s.title == title), None)


def memory(case: Case, **more: object) -> Case:
    row = {"kind": "host", "service": "llm", "replica": "llm-0", "part": "incident", "n": 60, "first_bytes": 4 * GB,
           "last_bytes": 9 * GB, "most_bytes": 9 * GB, "total_bytes": None, "used_share": None, "since_ns": START,
           "growth_bytes_per_s": 2e6, "r_squared": 0.98} | more  # fmt: skip
    case.clear(["memory_use"])
    case.insert("memory_use", pl.DataFrame([row]))
    return case


@pytest.mark.parametrize("build", [case_builder.no_incident, case_builder.gpu_only])
def test_a_leak_is_told_without_an_incident(build: object) -> None:
    case = memory(build())  # type: ignore[operator]
    told = section(case, "Memory")
    assert told is not None
    (row,) = told.rows
    assert row[:2] == ("host llm llm-0", "4 GB → 9 GB")
    assert row[2].startswith("2 MB/s since ")


@pytest.mark.parametrize(
    ("kind", "share", "is_told"), [("gpu", 0.5, False), ("gpu", 0.95, True), ("allocator", 0.99, False)]
)  # fmt: skip
def test_memory_that_neither_grows_nor_fills_is_no_news(
    kind: str, share: float, is_told: bool
) -> None:
    flat = {"kind": kind, "growth_bytes_per_s": 0.0, "r_squared": None, "since_ns": None}
    case = memory(case_builder.no_incident(), **flat, total_bytes=10 * GB, used_share=share)
    assert (section(case, "Memory") is not None) is is_told


def requests(side: str, n: int, tokens: int, seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    ttft = np.random.default_rng(seed).permutation(np.arange(1, n + 1)) * 1_000_000
    return pl.DataFrame([
        {"source_id": 1, "trace_id": f"{side}{tokens}-{i}", "request_id": f"{side}{i}", "side": side,
         "start_ns": at(i), "e2e_ns": int(t), "is_slow": False, "status": "ok", "ttft_ns": int(t),
         "itl_ns": int(t) // 10, "input_tokens": tokens, "service": "llm"}
        for i, t in enumerate(ttft)
    ]), ttft  # fmt: skip


def test_quantiles_by_prompt_length_have_intervals_of_ranks() -> None:
    case = case_builder.diagnosed()
    case.clear(["cohort", "cohort_request", "latency_by_context"])
    case.insert("cohort", pl.DataFrame([{
        "start_ns": START, "end_ns": case_builder.END, "is_incident": True, "n_window": 1045, "n_reference": 60,
        "is_sampled": False,
    }]))  # fmt: skip
    for side, n, tokens in (("window", 1000, 100), ("window", 45, 300), ("reference", 60, 100)):
        case.insert("cohort_request", requests(side, n, tokens, n)[0])
    case.rows(f"INSERT INTO latency_by_context BY NAME {query('latency_by_context')}")
    bands = {(b.side, b.from_tokens): b for b in read(case).findings.latency_by_context}
    many = bands["window", 64]
    # 950 ± 1.96 · 6.89 of a thousand ranks, in ms; 990 ± 1.96 · 3.15 for the 99th percentile.
    assert (many.ttft_p95_low_ns, many.ttft_p95_high_ns) == (936e6, 965e6)
    assert (many.itl_p99_low_ns, many.itl_p99_high_ns) == (98.3e6, 99.8e6)
    few = bands["window", 256]
    assert few.ttft_p95_low_ns == 39e6 and few.ttft_p95_high_ns is None
    assert few.itl_p99_ns is None and few.itl_p99_low_ns is None
    told = section(case, "By prompt length")
    assert told is not None
    rows = {(row[0], row[1]): dict(zip(told.head, row, strict=True)) for row in told.rows}
    shown = rows["64 to 127", "incident"]
    assert shown["First token, P95 (95 %)"] == "950 ms (936 ms to 965 ms)"
    assert shown["Jitter (σ of the time between)"] == "28.9 ms"
    assert (
        rows["256 to 511", "incident"]["First token, P95 (95 %)"] == "42.8 ms (39 ms or more)"
    )
    written = verdict(case)["findings"]["latency_by_context"][0]
    assert {
        "itl_stddev_ns",
        "ttft_p95_low_ns",
        "ttft_p95_high_ns",
        "itl_p99_low_ns",
        "itl_p99_high_ns",
    } <= set(written)


def test_columns_that_no_band_has_are_left_out() -> None:
    case = case_builder.diagnosed()
    case.clear(["cohort", "latency_by_context"])
    case.insert("cohort", pl.DataFrame([{
        "start_ns": START, "end_ns": case_builder.END, "is_incident": True, "n_window": 1045, "n_reference": 60,
        "is_sampled": False,
    }]))  # fmt: skip
    case.insert("latency_by_context", pl.DataFrame([
        {"side": "window", "from_tokens": low, "below_tokens": 2 * low, "n": 6, "ttft_p50_ns": 1e6} for low in (64, 128)
    ]))  # fmt: skip
    told = section(case, "By prompt length")
    assert told is not None
    assert told.head == ("Prompt tokens", "Side", "Requests", "First token, median")
