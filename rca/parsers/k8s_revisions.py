"""Revisions of Kubernetes workloads, as `kubectl get replicasets,controllerrevisions -o json` lists them.

A Deployment keeps a ReplicaSet for each of its last revisions, a StatefulSet or DaemonSet a
ControllerRevision. Each is a change of its workload, at the time at which it was created: what
differs from the revision before it is what was changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.config_rows import ConfigRows
from rca.parsers.config_yaml import add_documents
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import mapping, read_whole, sketch
from rca.parsers.times import iso_ns

_NUMBER = "deployment.kubernetes.io/revision"
_NAMES = ("id", "ts_ns", "kind", "subject", "before", "after", "origin", "details")
_DIGITS = re.compile(r"[0-9]{1,18}")
_MOST = 2000
"""Characters of a state that are kept."""


@dataclass(frozen=True)
class _Revision:
    """`settings` are those of the pod's containers, by container and name."""

    name: str
    workload: tuple[str, str, str]
    number: int
    ts_ns: int
    settings: dict[tuple[str, str], str]


def _revision(item: dict[str, Any], path: Path) -> _Revision | None:
    """The revision in a ReplicaSet or ControllerRevision; None for anything else."""
    meta = mapping(item.get("metadata"))
    owners = meta.get("ownerReferences")
    owner = mapping(owners[0]) if isinstance(owners, list) and owners else {}
    told = mapping(meta.get("annotations")).get(_NUMBER) or item.get("revision")
    ts_ns = iso_ns(str(meta.get("creationTimestamp")))
    body = mapping(item.get("data") if item.get("kind") == "ControllerRevision" else item)
    template = mapping(mapping(body.get("spec")).get("template"))
    if ts_ns is None or not _DIGITS.fullmatch(str(told)) or not owner.get("name"):
        return None
    kind, name = str(owner.get("kind")), str(owner["name"])
    rows = ConfigRows()
    document = {"kind": kind, "apiVersion": "v1", "metadata": {"name": name}, "spec": {"template": template}}  # fmt: skip
    add_documents([document], path, rows)
    settings = {(s, k): v for s, k, v, _ in rows.rows if v is not None}
    return _Revision(
        str(meta.get("name")), (kind.lower(), str(meta.get("namespace", "")), name), int(str(told)), ts_ns, settings
    )  # fmt: skip


def _changes(revisions: Iterable[_Revision], sink: Sink) -> Iterator[tuple[Any, ...]]:
    """Each revision against the one that it replaced, workload by workload."""
    ordered = sorted(revisions, key=lambda r: (r.workload, r.ts_ns, r.number))
    for workload, group in groupby(ordered, key=lambda r: r.workload):
        before: _Revision | None = None
        for one in group:
            if before is not None and one.number < before.number:
                sink.note(
                    "warning", "rolled_back",
                    "a revision brought an older template back; when it was rolled out again is not recorded",
                    example=f"{'/'.join(workload)} revision {before.number}",
                )  # fmt: skip
            yield _row(one, before)
            before = one


def _row(one: _Revision, before: _Revision | None) -> tuple[Any, ...]:
    kind, namespace, name = one.workload
    old = before.settings if before else {}
    keys = [k for k in {**old, **one.settings} if old.get(k) != one.settings.get(k)]
    if before is None:
        keys = [k for k in keys if k[1] == "image"]
    images = any(k[1] == "image" for k in keys)
    what = "deploy" if images else "config" if keys else "restart"
    details = {"revision": one.number, "namespace": namespace}
    if before is not None and before.number < one.number:
        details["previous_revision"] = before.number
    return (
        one.name, one.ts_ns, what, f"{kind}/{name}", _told(old, keys), _told(one.settings, keys),
        "record", json.dumps(details),
    )  # fmt: skip


def _told(settings: dict[tuple[str, str], str], keys: Iterable[tuple[str, str]]) -> str | None:
    """The settings as `name: value`, one after another."""
    parts = [f"{k[1]}: {settings[k]}" for k in keys if k in settings]
    return ", ".join(parts)[:_MOST] or None


def _read(path: Path, sink: Sink) -> None:
    document, whole = read_whole(path, 2, msgspec.json.decode)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    listed = mapping(document).get("items") or [document]
    found = [r for item in listed if (r := _revision(mapping(item), path))]
    sink.count_elements(len(listed))
    if not found:
        raise ParseError(
            "holds no revision of a workload: none has an owner, a number and a time",
            path=str(path),
        )
    if len(found) < len(listed):
        sink.note(
            "warning", "not_a_revision", "objects without an owner, a revision or a time",
            count=len(listed) - len(found), lost=True,
        )  # fmt: skip
    rows = list(_changes(found, sink))
    columns = zip(_NAMES, zip(*rows, strict=True), strict=True)
    kinds = {"ts_ns": pa.int64()}
    sink.insert(
        "change", pa.table({n: pa.array(c, kinds.get(n, pa.string())) for n, c in columns})
    )


def _recognise(head: Head) -> bool:
    document = mapping(sketch(head).value)
    items = document.get("items")
    one = mapping(items[0]) if isinstance(items, list) and items else document
    kind = str(document.get("kind")).removesuffix("List")
    return "ReplicaSet" in {one.get("kind"), kind} or "ControllerRevision" in {one.get("kind"), kind}  # fmt: skip


FORMAT = Format("k8s_revisions", "change", _recognise, _read)
