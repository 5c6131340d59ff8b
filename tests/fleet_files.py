"""A small fleet of mixed files, three of them broken, and what shards and cases hold of it."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

from gpu_recordings import event, trace
from jaeger_builder import traced
from otlp_bytes import fixed, put, request

from rca.case import Case

BROKEN = ("broken1.json", "broken2.bin", "broken3.json")
_SKIPPED = {"bytes"}


def rank_trace(path: Path, rank: int, compute_us: int, *, host: str, steps: int = 4) -> None:
    """A rank whose kernel takes so long in steps of 1000 µs; the collective ends for all at 950 µs."""
    made = []
    for step in range(steps):
        at = 1000 * step
        made += [
            event(f"ProfilerStep#{step}", f"{at}.000", "990", "user_annotation"),
            event("gemm", f"{at}.000", f"{compute_us}", "kernel", stream=7),
            event("ncclDevKernel_AllReduce", f"{at + compute_us}.000", f"{950 - compute_us}", "kernel", stream=7),
        ]  # fmt: skip
    head = {
        "schemaVersion": 1, "host_name": host,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 5},
    }  # fmt: skip
    path.write_text(trace(*made, head=json.dumps(head)[1:-1]))


def make_fleet(folder: Path) -> Path:
    """Thirteen files: five ranks (one slow, rank 3), metrics, changes, logs, configuration, broken ones."""
    folder.mkdir(parents=True)
    for rank in range(5):
        compute_us = 800 if rank == 3 else 500 + rank
        rank_trace(folder / f"rank{rank}.json", rank, compute_us, host=f"node-{rank // 2}")
    for pod in range(2):
        lines = [
            f'load{{pod="p{i % 3}"}} {i / 7} {1700000000 + i}.5\n' for i in range(200 + pod)
        ]
        text = "# TYPE load gauge\n" + "".join(lines) + "# EOF\n"
        (folder / f"metrics{pod}.txt").write_text(text)
    change = '{"id": "c1", "time": "2026-03-01T10:00:00Z", "kind": "deploy", "subject": "a"}\n'
    (folder / "changes.jsonl").write_text(change)
    (folder / "again.jsonl").write_text(change)  # the same bytes: read once
    (folder / "app.env").write_text("MAX_BATCH=8\nMODEL=small\n")
    (folder / BROKEN[0]).write_text('{"no": "format that is known"}')
    (folder / BROKEN[1]).write_bytes(bytes(range(256)) * 4)
    (folder / BROKEN[2]).write_text("The quick brown fox jumps over the lazy dog.\n")
    return folder


def make_mixed_fleet(folder: Path) -> Path:
    """Forty files of nine formats, some packed, three of them broken."""
    make_fleet(folder)
    for i in range(4):
        rank_trace(folder / "t.json", i, 400 + i, host=f"far-{i}", steps=40 + i)
        (folder / f"far{i}.json.gz").write_bytes(
            gzip.compress((folder / "t.json").read_bytes())
        )
        (folder / "t.json").unlink()
        traced(folder / f"jaeger{i}", n=50 + i, seed=i)
        span = put(1, bytes([i + 1] * 16)) + put(2, bytes([i + 1] * 8)) + put(5, "POST /chat")
        span += fixed(7, 1_772_359_200_000_000_000 + i) + fixed(8, 1_772_359_200_500_000_000)
        (folder / f"spans{i}.pb").write_bytes(request(span))
    for i in range(5):
        sample = {
            "metric": {"__name__": "up", "pod": f"p{i}"},
            "values": [[1_772_359_200 + i, "1"]],
        }
        answer = {"status": "success", "data": {"resultType": "matrix", "result": [sample]}}
        (folder / f"prometheus{i}.json").write_text(json.dumps(answer))
    for i in range(4):
        line = {"time": f"2026-03-01T10:00:0{i}Z", "level": "error", "msg": "out of blocks"}
        (folder / f"engine{i}.log").write_text((json.dumps(line) + "\n") * 5)
    for i in range(3):
        change = (
            f'{{"id": "z{i}", "time": "2026-03-01T10:00:00Z", "kind": "x", "subject": "a"}}\n'
        )
        with zipfile.ZipFile(folder / f"packed{i}.zip", "w") as packed:
            packed.writestr("changes.jsonl", change)
            packed.writestr("load.txt", f"# TYPE load gauge\nload {i} 1700000000\n# EOF\n")
        manifest = (
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{i}}}\ndata: {{A: '{i}'}}\n"
        )
        (folder / f"config{i}.yaml").write_text(manifest)
    return folder


def contents(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all recorded tables; sources by their paths, series by names and labels."""
    found = {}
    paths = dict(case.rows("SELECT id, path FROM source"))
    series = {
        row[0]: (paths[row[1]], row[2], str(row[3]))
        for row in case.rows("SELECT id, source_id, name, labels FROM series")
    }
    for table in RECORDED:
        rows = case.sql(f"SELECT * FROM {table}").to_dicts()
        for row in rows:
            if table == "source":
                del row["id"]
            if "series_id" in row:
                row["series_id"] = series[row["series_id"]]
            if table == "series":
                del row["id"]
            if "source_id" in row:
                row["source_id"] = paths.get(row["source_id"])
        found[table] = sorted(tuple(map(str, row.values())) for row in rows)
    return found


with Case.create() as _empty:
    RECORDED = _empty.recorded_tables()
