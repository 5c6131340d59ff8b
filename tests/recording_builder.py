"""Recordings made by hand: metrics, traces, changes and an alert of one service."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from rca.case import Case

# fmt: off
SECOND = 1_000_000_000
T0 = 1_769_825_700 * SECOND  # 2026-01-31 02:15:00 UTC
START, END, STOP = T0 + 135 * SECOND, T0 + 960 * SECOND, T0 + 1200 * SECOND
LEAD = T0 - 600 * SECOND
DAY = 86_400 * SECOND

SERIES = [  # id, name, type, role, healthy, incident, unit
    (1, "vllm:num_requests_waiting", "gauge", "waiting", 1.0, 24.0),
    (2, "vllm:kv_cache_usage_perc", "gauge", "kv_usage", 0.58, 0.99),
    (3, "vllm:num_requests_running", "gauge", "running", 14.0, 9.0),
    (4, "vllm:prefix_cache_hit_rate", "gauge", "prefix_hit_rate", 0.71, 0.71),
]


def recorded(path: Path | None, *, slow: bool, name: str = "deployment/vllm-llama") -> Case:
    """A case with recordings of both parts; slow between START and END when asked."""
    case = Case.create(path)
    for number, part in ((1, "baseline"), (11, "incident")):
        for offset, (kind, file) in enumerate(
            (
                ("metrics", "metrics.json"), ("trace", "traces.jsonl"),
                ("change", "changes.jsonl"), ("alert", "alerts.json"),
            )
        ):
            if part == "incident" or kind in {"metrics", "trace"}:
                add_source(case, number + offset, part, kind, f"bundle/{part}/{file}")
    _add_samples(case, slow)
    _add_spans(case, slow)
    case.insert(
        "change",
        pl.DataFrame(
            {
                "id": ["c41", "c40"], "source_id": [13, 13],
                "ts_ns": [T0 - 55 * SECOND, T0 - 500 * SECOND], "kind": ["deploy", "scale"],
                "subject": [name, "deployment/gateway"],
                "before": ["gpu_memory_utilization=0.92", "replicas=3"],
                "after": ["gpu_memory_utilization=0.60", "replicas=4"],
                "origin": ["record", "record"],
            }
        ),
    )
    if slow:
        case.insert(
            "alert",
            pl.DataFrame(
                {
                    "source_id": [14], "name": ["HighLatency"],
                    "start_ns": [START + 180 * SECOND], "end_ns": [END], "severity": ["page"],
                    "labels": ["{}"], "annotations": ["{}"],
                }
            ),
        )
    case.insert(
        "provenance", pl.DataFrame({"key": ["rca_version", "seed"], "value": ["0.1.0", "0"]})
    )
    case.insert(
        "gap",
        pl.DataFrame(
            {
                "code": ["no_gpu_profile"],
                "statement": [
                    "No GPU profile in the window: host gaps and kernels cannot be told apart."
                ],
                "would_decide": ["kv_pool_too_small against implicit_host_sync"],
                "record": ["curl -X POST http://HOST:8000/start_profile"],
            }
        ),
    )
    return case


def add_source(case: Case, number: int, part: str, kind: str, path: str) -> None:
    """One row of `source`; the traces of the incident have a clock of their own."""
    case.insert(
        "source",
        pl.DataFrame(
            [
                {
                    "id": number, "part": part, "kind": kind, "format": f"{kind}_test",
                    "path": path, "bytes": 1_200_000 + number, "sha256": f"{number:064x}",
                    "status": "ok",
                    "shift_ns": 2_300_000_000 if kind == "trace" and part == "incident" else 0,
                }
            ]
        ),
    )


def _add_samples(case: Case, slow: bool) -> None:
    series, samples = [], []
    for source, part, shift in ((1, "baseline", -DAY), (11, "incident", 0)):
        for number, name, kind, _role, well, ill in SERIES:
            key = number + 100 * source
            series.append({"id": key, "source_id": source, "name": name, "type": kind})
            for ts in range(LEAD, STOP, 15 * SECOND):
                inside = slow and part == "incident" and START <= ts < END
                wave = 1 + 0.02 * ((ts // SECOND // 15) % 5 - 2)
                samples.append(
                    {
                        "series_id": key, "ts_ns": ts + shift,
                        "value": (ill if inside else well) * wave,
                    }
                )
    for row in series:
        case.execute(
            "INSERT INTO series SELECT ?, ?, ?, MAP {'model_name': 'llama'}, ?, NULL",
            list(row.values()),
        )
        role = SERIES[row["id"] % 100 - 1][3]
        case.execute(
            "INSERT INTO series_role (series_id, role, how, scale, combine, service, replica) VALUES (?, ?, 'gauge', 1.0, 'mean', 'vllm', '')",
            [row["id"], role],
        )
    case.insert("sample", pl.DataFrame(samples))


def _add_spans(case: Case, slow: bool) -> None:
    rows = []
    for source, part, shift in ((2, "baseline", -DAY), (12, "incident", 0)):
        for i, ts in enumerate(range(LEAD, STOP, 3 * SECOND)):
            ill = slow and part == "incident" and START <= ts < END
            e2e = (5.9 if ill else 1.1) + 0.01 * (i % 20)
            queue = 3.6 if ill else 0.05
            attributes = {
                "gen_ai.request.id": f"r{source}-{i}", "gen_ai.request.model": "llama",
                "gen_ai.latency.e2e": e2e, "gen_ai.latency.time_in_queue": queue,
                "gen_ai.latency.time_to_first_token": queue + 0.2,
                "gen_ai.usage.prompt_tokens": 320, "gen_ai.usage.completion_tokens": 60,
                "resource.service.name": "vllm",
            }
            rows.append(
                {
                    "source_id": source, "trace_id": f"{source:016x}{i:016x}",
                    "span_id": f"{i:016x}", "parent_id": None, "service": "vllm",
                    "name": "llm_request", "kind": "server",
                    "start_ns": ts + shift - (2_300_000_000 if part == "incident" else 0),
                    "dur_ns": int(e2e * SECOND), "status": "ok",
                    "attributes": json.dumps(attributes),
                }
            )
    case.insert("span", pl.DataFrame(rows))
