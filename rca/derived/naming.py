"""What names and values of changes have in common, whoever wrote them."""

from __future__ import annotations

import re

_WORKLOADS = ("deployment", "statefulset", "daemonset", "replicaset", "job_name")
_POD_SUFFIX = re.compile(r"(-[a-z0-9]{8,10})?-[a-z0-9]{5}$|-\d+$")


def words(text: str) -> set[str]:
    """The words of a text, versions without their v."""
    found = [w.strip("_") for w in re.findall(r"[\w.]+", text.replace("-", "_").lower())]
    return {w.removeprefix("v") if re.match(r"v\d", w) else w for w in found} or {text}


def related(name: str, other: str) -> bool:
    """Whether two names speak of the same workload."""
    return bool(name) and bool(other) and (name == other or name in other or other in name)


def workload(labels: dict[str, str]) -> str:
    """'deployment/NAME' where the labels say, else 'service/NAME' of the pod or target."""
    for kind in _WORKLOADS:
        if labels.get(kind):
            return f"{kind.removesuffix('_name')}/{labels[kind]}"
    pod = labels.get("pod") or labels.get("exported_pod")
    if pod:
        return f"service/{_POD_SUFFIX.sub('', pod)}"
    keys = ("service", "app", "job", "container", "instance")
    return "service/" + next((labels[k] for k in keys if labels.get(k)), "unknown")


def name_of(subject: str) -> str:
    """The workload or service without its kind."""
    return subject.rsplit("/", 1)[-1].lower()


def plain_value(value: str | None) -> str:
    """A value without the spellings that mean the same."""
    text = (value or "").strip().strip("'\"").removeprefix("torch.")
    return {"True": "true", "False": "false", "None": "null"}.get(text, text)
