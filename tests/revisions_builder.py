"""Revisions of workloads as kubectl lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Rollout = tuple[int, str, str, Sequence[str]]
"""Revision, creation time, image, arguments."""


def replica_sets(
    name: str, rollouts: Sequence[Rollout], *, namespace: str = "llm"
) -> dict[str, Any]:
    """`kubectl get replicasets -o json` of one Deployment."""
    items = [
        {
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": f"{name}-{number:04x}", "namespace": namespace, "creationTimestamp": created,
                "annotations": {"deployment.kubernetes.io/revision": str(number)},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            },
            "spec": {"template": _template(image, args)},
        }
        for number, created, image, args in rollouts
    ]  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": items}


def controller_revisions(
    name: str, rollouts: Sequence[Rollout], *, namespace: str = "llm"
) -> dict[str, Any]:
    """`kubectl get controllerrevisions -o json` of one StatefulSet."""
    items = [
        {
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
            "metadata": {
                "name": f"{name}-{number:04x}", "namespace": namespace, "creationTimestamp": created,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}],
            },
            "data": {"spec": {"template": {**_template(image, args), "$patch": "replace"}}},
        }
        for number, created, image, args in rollouts
    ]  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _template(image: str, args: Sequence[str]) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "vllm"}},
        "spec": {"containers": [{"name": "vllm", "image": image, "args": list(args)}]},
    }
