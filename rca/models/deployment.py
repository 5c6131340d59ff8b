"""The deployment's YAML and the record of changes, as operators would find them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import yaml

from rca.models.fault import Fault
from rca.models.settings import MS, SECOND, EngineArgs, Plan

ENGINE = "deployment/llm-engine"
_IMAGE = "llm-engine"
# Flags that vLLM spells otherwise than our field.
SPELLING = {
    "num_gpu_blocks": "num-gpu-blocks-override",
    "max_queue_delay_ns": "max-queue-delay-ms",
    "dependency_timeout_ns": "retrieval-timeout-ms",
}
_ALWAYS = frozenset(
    {
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "block_size",
        "max_queue_delay_ns",
        "max_logprobs",
        "log_lines_per_token",
        "omp_num_threads",
    }
)
_NOT_FLAGS = ("replicas",)
_ENVIRONMENT = "OMP_NUM_THREADS"
_DECOYS = (
    ("deploy", "deployment/docs-site", "image: docs-site:3.1", "image: docs-site:3.2"),
    ("flag", "flag/dark-theme", "off", "on"),
    ("scale", "deployment/invoice-worker", "replicas: 2", "replicas: 3"),
    ("config", "configmap/newsletter", "send_at: 06:00", "send_at: 07:00"),
    ("deploy", "deployment/account-web", "image: account-web:9.0", "image: account-web:9.1"),
    ("config", "cronjob/nightly-export", "suspend: false", "suspend: true"),
)


class Change(NamedTuple):
    """One record of changes.jsonl."""

    at_ns: int
    kind: str
    subject: str
    before: str
    after: str


def flags(args: EngineArgs) -> dict[str, str]:
    """The command line and the environment of the engine, flag → argument."""
    found: dict[str, str] = {}
    default = EngineArgs()
    for field in fields(args):
        value = getattr(args, field.name)
        shown = field.name in _ALWAYS or value != getattr(default, field.name)
        if shown and field.name not in _NOT_FLAGS:
            if field.name == _ENVIRONMENT.lower():
                found[_ENVIRONMENT] = f"{_ENVIRONMENT}={value}"
                continue
            flag = SPELLING.get(field.name, field.name.replace("_", "-"))
            found[f"--{flag}"] = f"--{flag}={_argument(flag, value)}"
    return found


def _command_line(args: EngineArgs) -> list[str]:
    return [text for flag, text in flags(args).items() if flag.startswith("--")]


def _argument(flag: str, value: object) -> str:
    if flag.endswith("-ms") and isinstance(value, int):
        return str(value // MS)
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_yaml(plan: Plan, path: Path) -> None:
    """Write the engine's Deployment."""
    write_deployment(
        path,
        image=f"{_IMAGE}:{plan.build.version}",
        arguments=["--model=tiny-decoder", *_command_line(plan.args)],
        environment={_ENVIRONMENT: str(plan.args.omp_num_threads)},
        replicas=plan.args.replicas,
        cpu_limit=_cores(plan) if plan.host.cpu_limit else None,
    )


def write_deployment(
    path: Path,
    *,
    image: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    replicas: int = 1,
    cpu_limit: str | None = None,
) -> None:
    """Write a Deployment of the engine with these arguments and variables."""
    container: dict[str, object] = {
        "name": "llm-engine",
        "image": image,
        "args": list(arguments),
        "ports": [{"containerPort": 8000}],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    if cpu_limit is not None:
        container["resources"] = {"limits": {"cpu": cpu_limit}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm-engine", "namespace": "llm"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "llm-engine"}},
            "template": {
                "metadata": {"labels": {"app": "llm-engine"}},
                "spec": {"containers": [container]},
            },
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))


def true_change(fault: Fault, before: Plan, after: Plan, at_ns: int) -> Change | None:
    """The change that brought the fault; None when nobody changed anything."""
    if fault.change:
        return Change(at_ns, *fault.change)
    if before.build.version != after.build.version:
        images = (f"image: {_IMAGE}:{plan.build.version}" for plan in (before, after))
        return Change(at_ns, "deploy", ENGINE, *images)
    if before.host.cpu_limit != after.host.cpu_limit:
        limits = (f"resources.limits.cpu: {_cores(plan)}" for plan in (before, after))
        return Change(at_ns, "config", ENGINE, *limits)
    return arguments_change(flags(before.args), flags(after.args), at_ns)


def _cores(plan: Plan) -> str:
    """The CPU limit as Kubernetes writes it."""
    return f"{round(1000 * plan.host.cpu_limit)}m"


def arguments_change(
    old: Mapping[str, str], new: Mapping[str, str], at_ns: int
) -> Change | None:
    """The change from some arguments of the engine to others, each as one writes it; by name."""
    moved = [flag for flag in {**old, **new} if old.get(flag) != new.get(flag)]
    if not moved:
        return None
    sides = (" ".join(side.get(flag, "") for flag in moved).strip() for side in (old, new))
    return Change(at_ns, "config", ENGINE, *sides)


def decoys(seed: int, begin_ns: int, fault_ns: int, end_ns: int) -> list[Change]:
    """Changes that have nothing to do with it: before, close before, and after."""
    rng = random.Random(f"decoys:{seed}")
    picked = rng.sample(_DECOYS, 3)
    at = [
        rng.randrange(begin_ns, fault_ns - 10 * SECOND),
        rng.randrange(fault_ns - 9 * SECOND, fault_ns - SECOND),
        rng.randrange(fault_ns + 5 * SECOND, end_ns),
    ]
    return [Change(at_ns, *record) for at_ns, record in zip(at, picked, strict=True)]


def revisions(changes: Sequence[Change], seed: int) -> dict[Change, int]:
    """Revision that each rollout of a deployment made; scaling and other subjects make none."""
    rng = random.Random(f"revisions:{seed}")
    numbers: dict[str, int] = {}
    found: dict[Change, int] = {}
    for change in sorted(changes):
        if change.subject.startswith("deployment/") and change.kind in ("deploy", "config"):
            last = numbers.setdefault(change.subject, rng.randrange(2, 90))
            found[change] = numbers[change.subject] = last + 1
    return found


def write_changes(changes: Sequence[Change], seed: int, path: Path) -> dict[Change, str]:
    """Write changes.jsonl in order of time; returns the id that each got."""
    rng = random.Random(f"change ids:{seed}")
    number = rng.randrange(200, 900)
    ids: dict[Change, str] = {}
    numbers = revisions(changes, seed)
    lines: list[str] = []
    for change in sorted(changes):
        number += rng.randrange(1, 5)
        ids[change] = f"chg-{number}"
        record: dict[str, object] = {
            "id": ids[change],
            "time": _utc(change.at_ns),
            **change._asdict(),
        }
        del record["at_ns"]
        if change in numbers:
            record["revision"] = numbers[change]
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")
    return ids


def _utc(at_ns: int) -> str:
    seconds, rest = divmod(at_ns, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // MS:03d}Z"
