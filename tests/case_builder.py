"""Cases made by hand: an incident with its cause, one without, a healthy one, a lone GPU capture.

Base tables and result tables agree: the values of the evidence come from running its own SQL.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
from recording_builder import (
    END,
    SECOND,
    SERIES,
    START,
    T0,
    add_source,
    recorded,
)

from rca.case import Case

# fmt: off
HOSTILE = (
    "\x1b[31m<img src=x onerror=alert(1)>[click](javascript:alert(1))|`x`\u202e"
    "${{7*7}}{{7*7}}</script>\n# pwned @everyone"
)

_EVIDENCE = [  # id, series or None, role, unit, direction, statement
    ("E1", 1, "waiting", "requests", "up", "Requests wait for a slot: queue depth rose."),
    ("E2", 2, "kv_usage", "share", "up", "The KV pool is nearly full."),
    ("E3", 3, "running", "requests", "down", "Fewer requests run at the same time."),
    ("E4", 4, "prefix_hit_rate", "share", "flat", "The prefix-cache hit rate did not move."),
]
_GAUGE_SQL = """SELECT avg(value) FILTER (part = 'baseline') AS reference,
    avg(value) FILTER (part = 'incident' AND ts_ns >= {start} AND ts_ns < {end}) AS observed,
    count(*) FILTER (part = 'baseline') AS n_reference,
    count(*) FILTER (part = 'incident' AND ts_ns >= {start} AND ts_ns < {end}) AS n_observed
FROM sample JOIN series ON series.id = sample.series_id
JOIN source ON source.id = series.source_id
WHERE series.name = '{name}'"""
_SPAN_SQL = """SELECT quantile_cont(dur_ns, 0.99) FILTER (part = 'baseline') / 1e9 AS reference,
    quantile_cont(dur_ns, 0.99) FILTER (part = 'incident' AND start_ns BETWEEN {start} AND {end})
        / 1e9 AS observed,
    count(*) FILTER (part = 'baseline') AS n_reference,
    count(*) FILTER (part = 'incident' AND start_ns BETWEEN {start} AND {end}) AS n_observed
FROM span JOIN source ON source.id = span.source_id WHERE span.name = 'llm_request'"""


def diagnosed(path: Path | None = None, *, name: str = "deployment/vllm-llama") -> Case:
    """A KV pool that a rollout made too small; `name` is the subject of the change."""
    case = recorded(path, slow=True, name=name)
    _add_window(case, "incident")
    _add_evidence(case)
    _add_hypotheses(case, confidence=0.93)
    _add_verdict(
        case, "diagnosed", "KV pool shrank; running requests are preempted and recomputed.", 0.93,
    )
    _add_fixes(case, name)
    _add_trial(case)
    return case


def unknown(path: Path | None = None) -> Case:
    """Slow, and no cause of the catalogue fits."""
    case = recorded(path, slow=True)
    _add_window(case, "incident")
    _add_evidence(case)
    _add_hypotheses(case, confidence=0.31)
    _add_verdict(case, "unknown", "No cause explains both strongest movements.", 0.31)
    return case


def no_incident(path: Path | None = None) -> Case:
    """The same service, well."""
    case = recorded(path, slow=False)
    _add_window(case, "none")
    _add_evidence(case)
    _add_verdict(case, "no_incident", "Nothing moved beyond the healthy reference.", 0.96)
    return case


def gpu_only(path: Path | None = None) -> Case:
    """One GPU capture, nothing to compare with."""
    case = Case.create(path)
    add_source(case, 1, "incident", "torch_profiler", "rank0.pt.trace.json.gz")
    ops = [("gemm", 0, 400), ("ncclAllReduce", 300, 300), ("gemm", 700, 100), (HOSTILE, 900, 100)]
    case.insert(
        "gpu_op",
        pl.DataFrame(
            [
                {
                    "source_id": 1, "id": i, "kind": "kernel", "name": n, "device": 0,
                    "stream": 7, "start_ns": T0 + s * 1000, "dur_ns": d * 1000,
                }
                for i, (n, s, d) in enumerate(ops)
            ]
        ),
    )
    _add_window(case, "unknown")
    _add_verdict(case, "unknown", "Nothing to compare with: a single GPU capture.", 0.0)
    return case






def _add_window(case: Case, status: str) -> None:
    found = status == "incident"
    case.insert(
        "incident_window",
        pl.DataFrame(
            [
                {
                    "id": 1, "status": status, "start_ns": START if found else None,
                    "end_ns": END if found else None, "margin_ns": 15 * SECOND if found else None,
                    "detected_by": "scan" if status != "unknown" else None,
                    "slo": "e2e p99 < 2 s" if found else None,
                    "score": {"incident": 31.0, "none": 3.1, "unknown": None}[status],
                    "threshold": None if status == "unknown" else 9.5, "note": None if found
                    else "no reference" if status == "unknown" else "quiet",
                }
            ]
        ),
    )


def _add_evidence(case: Case) -> None:
    rows: list[dict[str, Any]] = []
    bounds = {"start": START, "end": END}
    for key, series, role, unit, direction, statement in _EVIDENCE:
        name = SERIES[series - 1][1]
        rows.append(
            _measured(
                case,
                key,
                _GAUGE_SQL.format(name=name, **bounds),
                {
                    "source": "metrics", "role": role, "service": "vllm", "subject": name, "unit": unit,
                    "direction": direction, "statement": statement,
                    "onset_ns": START + series * SECOND,
                },
            )
        )
    shifted = {k: v - 2_300_000_000 for k, v in bounds.items()}
    rows.append(
        _measured(
            case,
            "E7",
            _SPAN_SQL.format(**shifted),
            {
                "source": "trace", "role": "e2e_latency", "service": "vllm",
                "subject": "llm_request", "unit": "s", "direction": "up",
                "statement": "Requests take longer end to end.", "onset_ns": START,
            },
        )
    )
    rows.append(
        {
            "id": "E10", "source": "change", "role": "change", "subject": "c41", "unit": "",
            "direction": "event",
            "statement": "Change c41 came 190 s before the window: gpu_memory_utilization=0.92 → 0.60.",
            "strength": 0.0, "n_reference": 0, "n_observed": 1, "onset_ns": T0 - 55 * SECOND,
            "sql": "SELECT NULL, NULL, 0, count(*) FROM change WHERE id = 'c41'",
        }
    )
    case.insert("evidence", pl.DataFrame(rows, infer_schema_length=None))


def _measured(case: Case, key: str, sql: str, row: dict[str, Any]) -> dict[str, Any]:
    reference, observed, n_reference, n_observed = case.rows(sql)[0]
    effect = case.scalar("SELECT ln(?::DOUBLE / ?)", [observed, reference])
    flat = row["direction"] == "flat" or abs(effect) < 0.1
    return {
        **row, "id": key, "sql": sql, "reference": reference, "observed": observed,
        "effect": effect, "effect_low": effect - 0.1, "effect_high": effect + 0.1,
        "n_reference": n_reference, "n_observed": n_observed,
        "direction": "flat" if flat else row["direction"],
        "strength": 0.0 if flat else (0.9 if effect > 0 else -0.9), "seed": 7,
    }


def _add_hypotheses(case: Case, *, confidence: float) -> None:
    rows = [
        (
            1, "kv_pool_too_small", "config", 4.1, confidence, 0.81, ["E1", "E2", "E7", "E10"],
            [], "c41",
        ),
        (2, "overload", "traffic-spike", 1.2, 0.04, 0.5, ["E1", "E7"], ["E3"], None),
        (3, "prefix_cache_pollution", "traffic-spike", 0.4, 0.01, None, ["E7"], ["E4"], None),
    ]
    keys = (
        "rank", "cause", "class", "score", "confidence", "explained_share", "evidence",
        "contradicting", "change_id",
    )
    competitors = [
        [
            {"cause": "overload", "score_gap": 2.9, "decided_by": "E3", "because": "more requests come in there"},
            {"cause": "prefix_cache_pollution", "score_gap": 3.7, "decided_by": "E4", "because": None},
        ],
        [],
        [],
    ]
    missing = [{"role": "preemptions", "largest_change": 0.04}]
    case.insert(
        "hypothesis",
        pl.DataFrame(
            [
                {
                    **dict(zip(keys, row, strict=True)), "evidence": json.dumps(row[6]),
                    "contradicting": json.dumps(row[7]), "competitors": json.dumps(rivals),
                    "missing": json.dumps(missing),
                }
                for row, rivals in zip(rows, competitors, strict=True)
            ]
        ),
    )
    case.insert(
        "suspect",
        pl.DataFrame(
            {
                "rank": [1, 2], "service": ["vllm", None],
                "metric": ["vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"],
                "score": [9.4, 8.8],
            }
        ),
    )
    parts = [("queue", 0.05, 2.5), ("decode", 0.9, 2.6), ("residual", 0.15, 0.44)]
    added = sum(b - a for _, a, b in parts)
    case.insert(
        "attribution",
        pl.DataFrame(
            [
                {
                    "part": n, "reference_ns": a * SECOND, "observed_ns": b * SECOND,
                    "delta_ns": (b - a) * SECOND, "share": (b - a) / added, "evidence": "E7",
                }
                for n, a, b in parts
            ]
        ),
    )


def _add_verdict(case: Case, status: str, reason: str, confidence: float) -> None:
    named = status == "diagnosed"
    case.insert(
        "verdict",
        pl.DataFrame(
            [
                {
                    "status": status, "cause": "kv_pool_too_small" if named else None,
                    "class": "config" if named else None, "confidence": confidence,
                    "reason": reason, "judge": "rules",
                }
            ]
        ),
    )


def _add_fixes(case: Case, name: str) -> None:
    case.insert(
        "fix",
        pl.DataFrame(
            [
                {
                    "id": 1, "kind": "rollback", "phase": "mitigate", "target": name,
                    "change_id": "c41",
                    "action": "Roll back the change of gpu_memory_utilization.",
                    "file": "01-rollback.sh", "undo": "01-undo.sh",
                    "risk": "A restart empties the prefix cache.", "reversible": True,
                    "time_to_effect": "minutes", "gate": "passed: change matched, 0.93 ≥ 0.87", "gate_passed": True,
                    "content": "#!/bin/sh\n", "undo_content": "#!/bin/sh\n",
                },
                {
                    "id": 2, "kind": "config", "phase": "repair", "target": "vllm",
                    "change_id": None, "action": "Set --gpu-memory-utilization=0.92.",
                    "file": "02-config.patch", "undo": None,
                    "risk": "Less memory for activations.", "reversible": True,
                    "time_to_effect": "minutes", "gate": "open", "content": "--- a\n+++ b\n",
                    "undo_content": None,
                },
            ]
        ),
    )


def _add_trial(case: Case) -> None:
    case.insert(
        "trial",
        pl.DataFrame(
            [
                {
                    "status": "validated", "cause": "kv_pool_too_small", "device": "cpu",
                    "fault": "kv_blocks 120 -> 48", "fix": "kv_blocks 48 -> 160", "pairs": 6,
                    "spent_ns": 14_000_000_000,
                    "reason": "The small pool reproduces preemptions and queue; a larger one removes them.",
                    "details": json.dumps({"seed": 7, "fidelity": {"prompt_tokens": 1.02}}),
                }
            ]
        ),
    )
    levels = {"healthy": 20.0, "control": 20.4, "fault": 96.0, "fix": 20.8, "placebo": 95.0}
    case.insert(
        "trial_arm",
        pl.DataFrame(
            [
                {"arm": arm, "pair": pair, "engine": "torch", "figure": figure, "value": value}
                for arm, level in levels.items()
                for pair in range(6)
                for figure, value in (
                    ("ttft_p50_ms", level + pair / 10), ("preemptions", float(level > 50) * 9),
                )
            ]
        ),
    )


def without_style(text: str) -> str:
    """The text without the codes for bold and colour that Rich writes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
