"""How operations of the CPU lie in each other."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import gpu_recordings as recordings
import polars as pl
from gpu_recordings import event, trace

from rca.case import Case

_ROWS = "SELECT o.name, n.depth, p.name FROM nested_op AS n JOIN cpu_op AS o ON o.id = n.id LEFT JOIN cpu_op AS p ON p.id = n.parent ORDER BY n.id"


def test_operators_calls_frames_and_annotations(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(trace(
        event("ProfilerStep#1", "10", "90", "user_annotation"),
        event("forward", "10", "90", "python_function"),  # as long: in the one before
        event("aten::linear", "20", "30"),
        event("aten::mm", "22", "10"),
        event("cudaLaunchKernel", "23", "2", "cuda_runtime"),
        event("mark", "24", "0"),
        event("aten::add", "50", "5"),  # begins where linear ends
        event("gemm", "30", "5", "kernel"),
        event("overhead", "23", "50", "overhead"),
        event("later", "100", "5", "cpu_op"),
    ))  # fmt: skip
    assert recordings.read(path).rows(_ROWS) == [
        ("ProfilerStep#1", 0, None),
        ("forward", 1, "ProfilerStep#1"),
        ("aten::linear", 2, "forward"),
        ("aten::mm", 3, "aten::linear"),
        ("cudaLaunchKernel", 4, "aten::mm"),
        ("mark", 5, "cudaLaunchKernel"),
        ("aten::add", 2, "forward"),
        ("later", 0, None),
    ]


def test_a_range_that_outlasts_the_call_it_begins_in(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(trace(
        event("__enter__", "10", "10", "python_function"),
        event("region", "15", "50"),
        event("inside", "30", "5"),
        event("after", "70", "5"),
    ))  # fmt: skip
    assert recordings.read(path).rows(_ROWS) == [
        ("__enter__", 0, None),
        ("region", 1, "__enter__"),
        ("inside", 1, "region"),
        ("after", 0, None),
    ]


def test_threads_are_apart_and_ranges_that_may_cross_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            'CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER)'
        )
        db.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)",
            [
                (0, 100, 59, "step", 1 << 24 | 1), (10, 50, 59, "prefill", 1 << 24 | 1),
                (5, 60, 60, "request", 1 << 24 | 1), (20, None, 34, "token", 1 << 24 | 1),
                (20, 30, 59, "other thread", 1 << 24 | 2),
            ],
        )  # fmt: skip
    case = recordings.read(path)
    assert case.rows(_ROWS) == [
        ("step", 0, None),
        ("prefill", 1, "step"),
        ("token", 2, "prefill"),
        ("other thread", 0, None),
    ]
    assert case.rows("SELECT name FROM cpu_op WHERE is_free") == [("request",)]


def _nested(rng: random.Random, at: int, end: int, depth: int, parent: int | None, rows: list[Any]) -> None:  # fmt: skip
    """Intervals within [at, end), and for each the one it lies in."""
    while at < end and len(rows) < 400:
        begin = at + rng.randrange(0, 5)
        stop = min(end, begin + rng.randrange(1, 60))
        if begin >= stop:
            return
        rows.append((len(rows), begin, stop - begin, depth, parent))
        if rng.random() < 0.6:
            inside = begin + rng.randrange(1, 4)
            _nested(rng, inside, stop, depth + 1, rows[-1][0], rows)
        at = stop


def test_any_tree_is_found_again() -> None:
    for seed in range(30):
        rows: list[Any] = []
        _nested(random.Random(seed), 0, 2000, 0, None, rows)
        made = pl.DataFrame(rows, ["id", "start_ns", "dur_ns", "depth", "parent"], orient="row")
        shuffled = made.drop("depth", "parent").sample(fraction=1, shuffle=True, seed=seed)
        with Case.create() as case:
            case.insert("cpu_op", shuffled.with_columns(kind=pl.lit("op"), name=pl.lit("x"), pid=1), source_id=1)  # fmt: skip
            found = case.rows("SELECT id, depth, parent FROM nested_op ORDER BY id")
        assert found == [(r[0], r[3], r[4]) for r in rows], seed


def test_the_recorded_parents_of_python_frames_are_found(conformance: Path) -> None:
    path = conformance / "kineto" / "b200_eager.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), strict=False)["traceEvents"]
    frames = {
        e["args"]["Python id"]: i for i, e in enumerate(events) if e.get("cat") == "python_function"
    }  # fmt: skip
    told = {i: frames.get(events[i]["args"]["Python parent id"]) for i in frames.values()}
    case = recordings.read(path)
    parents = dict(case.rows("SELECT id, parent FROM nested_op"))
    frame_ids = set(told)

    def holder(number: int) -> int | None:
        above = parents[number]
        while above is not None and above not in frame_ids:
            above = parents[above]
        return above

    found = {number: holder(number) for number in told}
    wrong = [n for n in told if found[n] not in (told[n], None)]
    unclear = [n for n in told if found[n] is None and told[n] is not None]
    assert len(told) == 15_230
    assert len(wrong) + len(unclear) <= 11  # where record_function outlasts its __enter__
