"""The timeline for trace viewers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import case_builder
import pytest
from recording_builder import SECOND, START, T0

from rca.case import Case
from rca.timeline import write


def events_of(case: Case, out: Path) -> tuple[int, list[dict[str, Any]]]:
    document = json.loads(gzip.decompress(write(case, out).read_bytes()))
    return int(document["otherData"]["origin_ns"]), document["traceEvents"]


def test_sources_stand_on_one_clock(tmp_path: Path) -> None:
    origin, events = events_of(case_builder.diagnosed(), tmp_path / "t.json.gz")
    window = next(e for e in events if e["name"] == "incident window")
    assert (window["ph"], window["dur"]) == ("X", 825 * SECOND / 1000)
    # the span clock is 2.3 s behind; corrected, the first slow request starts with the window
    slow = [e for e in events if e["ph"] == "b" and e["ts"] >= window["ts"]]
    assert min(e["ts"] for e in slow) == window["ts"]
    assert origin + round(window["ts"] * 1000) == START


def test_every_event_is_well_formed(tmp_path: Path) -> None:
    _, events = events_of(
        case_builder.diagnosed(name=case_builder.HOSTILE), tmp_path / "t.json.gz"
    )
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in "MXbeCi"
        assert event["ph"] == "M" or (event["pid"], event["tid"]) in named
        assert "\x1b" not in event["name"]
    marks = [e for e in events if e["ph"] == "i"]
    assert [m["args"].get("id") for m in marks if m["cat"] == "mark"][:2].count("c41") == 1
    begins, ends = (sum(e["ph"] == ph for e in events) for ph in "be")
    assert begins == ends == 600


def test_gpu_streams_keep_nanoseconds(tmp_path: Path) -> None:
    case = case_builder.gpu_only()
    case.execute("UPDATE gpu_op SET start_ns = start_ns + 1, dur_ns = dur_ns + 1 WHERE id = 1")
    origin, events = events_of(case, tmp_path / "t.json.gz")
    kernels = [e for e in events if e["ph"] == "X"]
    assert len(kernels) == 4
    assert kernels[1]["dur"] == 300.001
    assert origin + round(kernels[1]["ts"] * 1000) == T0 + 300_001


def test_counters_have_values(tmp_path: Path) -> None:
    case = case_builder.diagnosed()
    if not case.has("signal_value"):
        pytest.skip("the view signal_value is not there")
    _, events = events_of(case, tmp_path / "t.json.gz")
    values = [
        e["args"]["value"] for e in events if e["ph"] == "C" and e["name"] == "vllm waiting"
    ]
    assert len(values) == 120
    assert max(values) > 20
    assert min(values) < 2


def test_same_case_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        write(case_builder.diagnosed(), tmp_path / name).read_bytes() for name in "ab"
    )
    assert first == second


def test_empty_case_gives_an_empty_timeline(tmp_path: Path) -> None:
    assert events_of(Case.create(), tmp_path / "t.json.gz") == (0, [])
