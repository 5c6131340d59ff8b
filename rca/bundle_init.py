"""A commented bundle.toml for a folder of recordings, and what the folder has and lacks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rca import roles
from rca.case import Case
from rca.catalogue import Cause, load
from rca.errors import BundleError
from rca.ingest import Progress
from rca.plain import moment, printable

NAME = "bundle.toml"
_OF_METRICS = frozenset(
    {
        "replica_skew", "restart", "answering_scrapes", "itl_stalls", "tokens_per_slot", "waiting_with_room",
        "kv_without_work", "kv_per_request", "kv_tokens_per_request", "running_spread", "recomputed", "host_memory_growth", "gpu_memory_growth", "lora_waiting",
    }
)  # fmt: skip
_OF_PROFILES = frozenset(
    {
        "gemm_time", "gemm_rows", "host_gap", "live_memory_growth", "kernel_time", "gpu_idle",
        "gpu_comm", "gpu_copies", "new_ops", "detokenise_time",
    }
)  # fmt: skip
_OF_LOGS = frozenset({"log_rate", "new_log_template", "compile_lines"})
_OF_REQUESTS = frozenset(
    {
        "e2e_latency", "ttft", "itl", "queue_time", "prefill_time", "decode_time", "prompt_tokens",
        "output_tokens", "response_bytes", "tokenise_time",
    }
)  # fmt: skip


class Recording(NamedTuple):
    """A kind of recording.

    Attributes:
        kinds: Kinds of sources that hold it.
        metrics: Beginnings of the metric names that tell that it is there; empty for any source.
        roles: Roles that it carries.
    """

    name: str
    kinds: frozenset[str]
    metrics: tuple[str, ...]
    roles: frozenset[str]
    serves: str
    record: str


# 'serve_' is what Ray's metrics are called without their 'ray_'.
_ENGINE = (
    "vllm_", "sglang_", "tgi_", "nv_inference", "trtllm_", "llm_d_", "ray_serve_", "serve_deployment_",
    "serve_replica_", "inference_pool_", "gen_ai_server_",
)  # fmt: skip
_HOST = ("container_", "kube_", "node_")
_GPU = ("DCGM_", "nv_gpu", "nvidia_", "cuda_")


def recordings() -> list[Recording]:
    """All kinds of recordings that carry roles, those that decide most first."""
    of_toml = {name: _roles_in(f"{name}.toml") for name in ("signals", "op_families")}
    traces = of_toml["signals"] - _OF_METRICS - _OF_PROFILES - _OF_LOGS
    return [
        Recording(
            "metrics of the engine",
            frozenset({"metrics"}),
            _ENGINE,
            _by_metric(_ENGINE) | _OF_METRICS,
            "queue, KV cache, batch, latency over time",
            "rca collect --prometheus, or poll the engine's /metrics",
        ),
        Recording(
            "request traces",
            frozenset({"trace"}),
            (),
            traces | _OF_REQUESTS,
            "which requests were slow, and where their time went",
            "start the engine with --otlp-traces-endpoint; rca collect --jaeger",
        ),
        Recording(
            "metrics of containers and hosts",
            frozenset({"metrics"}),
            _HOST,
            _by_metric(_HOST) | {"restart"},
            "CPU limits, memory, neighbours, disk, network",
            "scrape cAdvisor, kube-state-metrics and node_exporter; rca collect --prometheus",
        ),
        Recording(
            "metrics of GPUs",
            frozenset({"metrics"}),
            _GPU,
            _by_metric(_GPU),
            "clocks, heat, memory and use of the devices",
            "scrape dcgm-exporter; rca collect --prometheus",
        ),
        Recording(
            "profile",
            frozenset({"torch_profiler", "nsys"}),
            (),
            of_toml["op_families"] | _OF_PROFILES,
            "what a step does: operators, kernels, gaps, copies",
            "curl -X POST http://ENGINE:8000/start_profile, some steps later /stop_profile; or nsys",
        ),
        Recording(
            "logs",
            frozenset({"log"}),
            (),
            _OF_LOGS,
            "warnings, settings at the start, new messages",
            "rca collect",
        ),
    ]  # fmt: skip


def _roles_in(name: str) -> frozenset[str]:
    return frozenset(tomllib.loads(files("rca").joinpath(name).read_text(encoding="utf-8")))


def _by_metric(prefixes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        role
        for role, names in roles.metric_names().items()
        if any(name.startswith(prefixes) for name in names)
    )


def look(folder: Path, progress: Progress | None = None) -> dict[str, Any]:
    """What a folder holds, what it lacks and what that would decide.

    Returns:
        path, service, recorded (part, kind, files, first_ns, last_ns, salvaged), missing (name,
        serves, record, causes: those that nothing else in the folder could show).

    Raises:
        RcaError: No such folder, or nothing in it can be read.
    """
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "no such folder"
        raise BundleError(
            what, path=str(folder), hint="make one, and put the recordings into it"
        )
    if not any(p.is_file() and p.name != NAME for p in folder.rglob("*")):
        return _found(folder, "", [], _Present(frozenset(), frozenset(), frozenset()))
    from rca import pipeline

    with pipeline.read([folder], progress=progress) as case:
        return _found(folder, _service(case), _recorded(case), _present(case))


class _Present(NamedTuple):
    """What a folder holds: roles and metric names of the incident, parts and kinds of sources."""

    roles: frozenset[str]
    metrics: frozenset[str]
    sources: frozenset[tuple[str, str]]

    def has(self, one: Recording) -> bool:
        if one.metrics:
            return any(name.startswith(one.metrics) for name in self.metrics)
        return any(("incident", kind) in self.sources for kind in one.kinds)


def _present(case: Case) -> _Present:
    told = "SELECT DISTINCT role FROM signal_value WHERE part = 'incident'"
    named = (
        "SELECT DISTINCT e.name FROM series AS e JOIN source AS s ON s.id = e.source_id "
        "WHERE s.part = 'incident'"
    )
    return _Present(
        frozenset(role for (role,) in case.rows(told)),
        frozenset(roles.normalise(name) for (name,) in case.rows(named)),
        frozenset((p, k) for p, k in case.rows("SELECT DISTINCT part, kind FROM source")),
    )


def _found(
    folder: Path,
    service: str,
    recorded: list[dict[str, Any]],
    present: _Present,
) -> dict[str, Any]:
    return {
        "path": str(folder),
        "service": service,
        "recorded": recorded,
        "missing": list(_missing(present)),
    }


def _service(case: Case) -> str:
    """The service that most requests went to; the engine's by its metrics; '' when unknown."""
    told = case.scalar(
        "SELECT service FROM engine_span WHERE service IS NOT NULL "
        "GROUP BY service ORDER BY count(*) DESC, service LIMIT 1"
    ) or case.scalar(
        "SELECT service FROM series_role WHERE role = 'running' AND service <> '' "
        "GROUP BY service ORDER BY count(*) DESC, service LIMIT 1"
    )
    return str(told or "")


def _recorded(case: Case) -> list[dict[str, Any]]:
    return case.sql(
        "SELECT part, kind, count(*) AS files, min(first_ns) AS first_ns, max(last_ns) AS last_ns, "
        "count(*) FILTER (status = 'salvaged') AS salvaged "
        "FROM source GROUP BY part, kind ORDER BY part DESC, kind"
    ).to_dicts()


def _missing(present: _Present) -> Iterator[dict[str, Any]]:
    causes = load()
    for one in recordings():
        if not present.has(one):
            told = [c.id for c in causes.values() if _only_by(c, one.roles, present.roles)]
            yield _lack(one.name, one.serves, one.record, told)
    if not any(kind == "change" for _, kind in present.sources):
        told = [c.id for c in causes.values() if c.change.kinds]
        yield _lack(
            "changes", "what to roll back; most causes begin with one",
            'changes.jsonl: {"time", "kind", "subject", "before", "after"} a line; rca collect', told,
        )  # fmt: skip
    if not any(kind == "config" for _, kind in present.sources):
        yield _lack(
            "configuration", "settings out of their range; fixes as patches",
            "kubectl get deployment NAME -o yaml into incident/config/ and baseline/config/", [],
        )  # fmt: skip
    if not any(part == "baseline" for part, _ in present.sources):
        yield _lack(
            "baseline", "whether levels before the incident were usual",
            "the same recordings of a healthy hour, in baseline/", [],
        )  # fmt: skip


def _only_by(cause: Cause, carried: frozenset[str], present: frozenset[str]) -> bool:
    """Whether a cause needs a role that such a recording has and nothing in the folder has."""
    return not cause.requires & present and bool(cause.requires & carried)


def _lack(name: str, serves: str, record: str, causes: list[str]) -> dict[str, Any]:
    return {"name": name, "serves": serves, "record": record, "causes": causes}


def write(folder: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Write bundle.toml into a folder; returns what `look` found.

    Raises:
        RcaError: It is there already, or there is nothing to write it for.
    """
    target = folder / NAME
    if target.exists() or target.is_symlink():
        raise BundleError("is there already", path=str(target), hint="edit it, or move it away")
    found = look(folder, progress)
    with target.open("x", encoding="utf-8") as file:
        file.write(_text(found))
    return found


_TEXT = """\
# What the recordings do not say about this incident. Everything here is optional; a line that
# begins with '#' is a comment. Read by rca analyze, together with the files beside it.

# Heading of the postmortem.
title = ""

# The service that got slow, as its traces or deployment call it; without, the one that moved most.
# service = {service}

# When it was slow, if you know better than a search would. One of both is enough; without, rca looks for it.
{span}
# [incident]
# start = {start}
# end = {end}

# What was promised to users; an objective that requests broke is an incident.
# [slo]
# e2e_p99 = "< 2 s"
# ttft_p95 = "< 500 ms"
# error_share = "< 0.5 %"
"""


def _text(found: dict[str, Any]) -> str:
    spans = [r for r in found["recorded"] if r["part"] == "incident" and r["kind"] in ("metrics", "trace")]  # fmt: skip
    first = min((r["first_ns"] for r in spans if r["first_ns"] is not None), default=None)
    last = max((r["last_ns"] for r in spans if r["last_ns"] is not None), default=None)
    known = first is not None and last is not None
    times = [f"{moment(t).replace(' ', 'T')}Z" for t in (first, last)] if known else []
    return _TEXT.format(
        service=json.dumps(printable(found["service"], 200), ensure_ascii=False),
        span=f"# The incident's metrics and traces lie between {times[0]} and {times[1]}."
        if known
        else "# Times are UTC.",
        start=times[0] if known else "2026-01-31T02:17:00Z",
        end=times[1] if known else "2026-01-31T02:31:00Z",
    )


def lines(found: dict[str, Any]) -> Iterator[str]:
    """What was found, for a terminal."""
    for row in found["recorded"]:
        span = (
            f"{moment(row['first_ns'])} to {moment(row['last_ns'])}" if row["first_ns"] else ""
        )
        salvaged = f", {row['salvaged']} damaged" if row["salvaged"] else ""
        count = f"{row['files']} file{'s' if row['files'] != 1 else ''}{salvaged}"
        yield f"there    {row['part']:<9} {row['kind']:<15} {count:<20} {span}".rstrip()
    for row in found["missing"]:
        yield f"missing  {row['name']}: {row['serves']}"
        if row["causes"]:
            shown = ", ".join(row["causes"][:4])
            more = f" and {len(row['causes']) - 4} more" if len(row["causes"]) > 4 else ""
            yield f"         would decide on {shown}{more}"
        yield f"         → {row['record']}"
