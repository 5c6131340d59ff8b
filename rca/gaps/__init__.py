"""What the recordings lack, what it would have decided, and how to record it next time."""

from __future__ import annotations

import json

import polars as pl

from rca.case import Case
from rca.findings import spots
from rca.gaps import blind_spots

_RECORD = {
    "torch_profiler": (
        "no profile of the engine",
        "curl -X POST http://ENGINE:8000/start_profile; sleep 5; curl -X POST http://ENGINE:8000/stop_profile",
    ),
    "trace": (
        "no request traces",
        "start the engine with --otlp-traces-endpoint, export with Jaeger's /api/traces",
    ),
    "metrics": (
        "no metrics",
        "curl 'http://PROMETHEUS/api/v1/query_range?query={job=\"ENGINE\"}&start=..&end=..&step=15'",
    ),
    "change": (
        "no record of changes",
        "write changes.jsonl from kubectl rollout history and the deployment log",
    ),
}
_DECIDES = {
    "change": "whether somebody had changed something at the onset, and what to take back",
    "log": "whether errors, restarts, evictions and settings were written down at the onset",
    "config": "whether a setting is at fault, and which value to write into which file",
}
_RECORD_TOO = {
    "log": (
        "no logs",
        "kubectl logs deployment/ENGINE --timestamps --since=2h > engine.log; kubectl get events -o json > events.json",
    ),
    "config": (
        "no configuration",
        "kubectl get deployment,configmap -o yaml > config/cluster.yaml, or the engine's command line in config/args.txt",
    ),
}
_STRONG_GAP = 0.05


def look(case: Case) -> None:
    """Write gap: absent recordings, blind spots of those that are there, unread files.

    What would have decided something comes first, what is peculiar to the case before what most lack.
    """
    case.clear(["gap"])
    seen = [*blind_spots.find(case), *spots.find(case)]
    found: list[dict[str, str | None]] = [spot._asdict() for spot in seen]
    absent = _absent_kinds(case, _RECORD) + _no_reference(case)
    usual = _absent_kinds(case, _RECORD_TOO)
    usual += [spot._asdict() for spot in blind_spots.find_usual(case)]
    rows = absent + found + usual + _unread(case)
    rows.sort(key=lambda row: row["would_decide"] is None)
    if rows:
        schema = dict.fromkeys(("code", "statement", "would_decide", "record"), pl.String)
        case.insert("gap", pl.DataFrame(rows, schema=schema))


def _absent_kinds(
    case: Case, wanted: dict[str, tuple[str, str]]
) -> list[dict[str, str | None]]:
    have = {k for (k,) in case.rows("SELECT DISTINCT kind FROM source WHERE part = 'incident'")}
    if "nsys" in have:
        have.add("torch_profiler")
    return [
        {"code": f"no_{kind}", "statement": f"{words} in the incident's recordings",
         "would_decide": _DECIDES.get(kind) or _largest_change(case, kind), "record": how}
        for kind, (words, how) in wanted.items()
        if kind not in have
    ]  # fmt: skip


def _largest_change(case: Case, kind: str) -> str | None:
    """How far the first hypothesis could still move by roles that such a recording shows."""
    rows = case.rows("SELECT cause, missing FROM hypothesis ORDER BY rank LIMIT 1")
    if not rows:
        return None
    prefix = ("op_", "gemm_", "live_", "host_gap", "kernel_time", "gpu_idle", "gpu_c")
    roles = [
        m
        for m in json.loads(rows[0][1])
        if (kind == "torch_profiler") == str(m["role"]).startswith(prefix)
    ]
    largest = sum(m["largest_change"] for m in roles)
    return (
        f"could move the score of {rows[0][0]} by at most {largest:.2f}"
        if largest >= _STRONG_GAP
        else None
    )


def _no_reference(case: Case) -> list[dict[str, str | None]]:
    if case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'"):
        return []
    found = case.scalar("SELECT count(*) FROM incident_window WHERE start_ns IS NOT NULL")
    instead = "; the healthy part of the incident's own serves instead" if found else ""
    return [
        {
            "code": "no_baseline",
            "statement": f"no recordings of a healthy time{instead}",
            "would_decide": "whether levels before the incident were usual",
            "record": "export the same hour of the day before, and give it with --baseline",
        }
    ]


def _unread(case: Case) -> list[dict[str, str | None]]:
    count = case.scalar(
        "SELECT count(*) FROM ingest_note WHERE code IN ('unreadable', 'refused')"
    )
    if not count:
        return []
    return [
        {
            "code": "unread_files",
            "statement": f"{count} files of the bundle could not be read; ingest_note has the reasons",
            "would_decide": None,
            "record": None,
        }
    ]
