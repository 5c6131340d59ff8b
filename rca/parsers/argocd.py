"""Applications of Argo CD as JSON: one, a list of them, or the bare history of one.

`argocd app get NAME -o json`, `kubectl get applications -o json` and `kubectl get application NAME
-o jsonpath='{.status.history}'` write them. Each entry of a history is a deployment at its time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from rca.errors import ParseError
from rca.parsers.config_rows import ConfigRows
from rca.parsers.config_yaml import add_documents, unfold
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import first, mapping, read_whole, sketch
from rca.parsers.stream import HEAD_BYTES
from rca.parsers.times import iso_ns

_NAMES = ("id", "ts_ns", "kind", "subject", "before", "after", "origin", "details")
_MOST = 2000
"""Characters of a state that are kept."""


class _Application(NamedTuple):
    """`told` is the whole object, empty for a bare history."""

    name: str
    history: list[Any]
    told: dict[str, Any]


def _is_entry(value: Any) -> bool:
    """Whether it is an entry of a history."""
    entry = mapping(value)
    return "deployedAt" in entry and bool({"revision", "revisions", "source"} & set(entry))


def _applications(document: Any) -> tuple[list[_Application], bool]:
    """The applications of a document, and whether it is a bare history, whose name is guessed."""
    if isinstance(document, list) and any(map(_is_entry, document)):
        return [_Application(_likely_name(document), document, {})], True
    items = document if isinstance(document, list) else mapping(document).get("items")
    found = []
    for one in map(mapping, items if isinstance(items, list) else [document]):
        history = mapping(one.get("status")).get("history")
        name = str(mapping(one.get("metadata")).get("name") or "application")
        found.append(_Application(name, history if isinstance(history, list) else [], one))
    return found, False


def _likely_name(history: list[Any]) -> str:
    """What is deployed, by the chart, else the folder, else the repository of the last entry."""
    entry = mapping(history[-1])
    source = mapping(entry.get("source") or first(entry.get("sources")))
    told = source.get("chart") or source.get("path") or source.get("repoURL") or "application"
    return str(told).rstrip("/.").removesuffix(".git").rsplit("/", 1)[-1] or "application"


def _revision(entry: dict[str, Any]) -> str | None:
    """The revision that an entry deployed; those of several sources are joined."""
    several = entry.get("revisions")
    one = entry.get("revision")
    if isinstance(several, list) and several and not one:
        return " ".join(map(str, several))
    return str(one) if one else None


def _settings(entry: dict[str, Any]) -> dict[str, str]:
    """What an entry deployed: its revision, and what its sources set. Secrets are hidden."""
    rows, listed = ConfigRows(), entry.get("sources")
    rows.add("", "revision", _revision(entry))
    sources = listed if isinstance(listed, list) and listed else [entry.get("source")]
    for number, source in enumerate(map(mapping, sources)):
        prefix = f"sources.{number}." if len(sources) > 1 else ""
        parts = {k: v for k, v in source.items() if not isinstance(v, dict)}
        for name in source.keys() - parts.keys():
            parts |= {f"{name}.{k}": v for k, v in source[name].items()}
        rows.add_all("", ((prefix + key, value) for key, value in unfold(parts)))
    return {key: value for _, key, value, _ in rows.rows if value is not None}


def _initiator(application: _Application, entry: dict[str, Any]) -> str | None:
    """Who began it; 'automated' where Argo CD did; the last operation tells it of the last entry."""
    by = mapping(entry.get("initiatedBy"))
    operation = mapping(mapping(application.told.get("status")).get("operationState"))
    result = mapping(operation.get("syncResult"))
    if not by and entry is application.history[-1] and _revision(result) == _revision(entry):
        by = mapping(mapping(operation.get("operation")).get("initiatedBy"))
    if by.get("username"):
        return str(by["username"])
    return "automated" if by.get("automated") else None


def _entries(application: _Application) -> list[tuple[int, dict[str, Any]]]:
    """The entries of a history with their times, in the order of time."""
    found = [
        (ts_ns, entry)
        for entry in map(mapping, application.history)
        if _is_entry(entry) and (ts_ns := iso_ns(str(entry["deployedAt"]))) is not None
    ]
    return sorted(found, key=lambda pair: pair[0])


def _changes(application: _Application) -> Iterator[tuple[Any, ...]]:
    """Each deployment against the one before it."""
    before: dict[str, str] = {}
    for ts_ns, entry in _entries(application):
        after = _settings(entry)
        changed = sorted(k for k in before | after if before.get(k) != after.get(k))
        keys = list(dict.fromkeys(["revision", *changed])) if before else ["revision"]
        yield (
            _id(application, entry, ts_ns), ts_ns, "deploy",
            f"application/{application.name}", _told(before, keys), _told(after, keys), "record",
            _details(application, entry),
        )  # fmt: skip
        before = after


def _id(application: _Application, entry: dict[str, Any], ts_ns: int) -> str:
    """Argo's own number, which counts within an application of a namespace."""
    namespace = mapping(application.told.get("metadata")).get("namespace")
    where = [namespace] if namespace not in (None, "argocd") else []
    number = ts_ns if entry.get("id") is None else entry["id"]
    return "-".join(str(name) for name in ("argocd", *where, application.name, number))


def _told(settings: dict[str, str], keys: list[str]) -> str | None:
    """The settings as `name: value`, one after another."""
    return ", ".join(f"{k}: {settings[k]}" for k in keys if k in settings)[:_MOST] or None


def _details(application: _Application, entry: dict[str, Any]) -> str:
    destination = mapping(mapping(application.told.get("spec")).get("destination"))
    told = {
        "argocd_id": entry.get("id"),
        "started_at": entry.get("deployStartedAt"),
        "initiated_by": _initiator(application, entry),
        "namespace": destination.get("namespace"),
    }
    return json.dumps({k: v for k, v in told.items() if v is not None})


def _read(path: Path, sink: Sink) -> None:
    document, whole = read_whole(path, 5, msgspec.json.decode)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    found, is_bare = _applications(document)
    rows = [row for application in found for row in _changes(application)]
    n_settings = _write_settings(found, path, sink)
    if not rows and not n_settings:
        raise ParseError("holds no deployment with a time", path=str(path))
    n_entries = sum(len(application.history) for application in found)
    sink.count_elements(n_entries)
    _note(found, is_bare, n_entries - len(rows), sink)
    if rows:
        columns = zip(_NAMES, zip(*rows, strict=True), strict=True)
        kinds = {"ts_ns": pa.int64()}
        sink.insert(
            "change", pa.table({n: pa.array(c, kinds.get(n, pa.string())) for n, c in columns})
        )


def _note(found: list[_Application], is_bare: bool, n_lost: int, sink: Sink) -> None:
    if n_lost:
        sink.note(
            "warning", "not_a_deployment", "entries of a history without a time or a revision",
            count=n_lost, lost=True,
        )  # fmt: skip
    if is_bare:
        sink.note(
            "info", "assumed_subject",
            "a bare history names no application; its name is taken from what it deploys",
            example=found[0].name,
        )  # fmt: skip


def _write_settings(found: list[_Application], path: Path, sink: Sink) -> int:
    """What the applications ask for, as configuration; how many settings there are."""
    named = {"kind": "Application", "apiVersion": "argoproj.io/v1alpha1"}
    asked = [
        {**named, "metadata": mapping(a.told.get("metadata")), "spec": a.told["spec"]}
        for a in found
        if "spec" in a.told
    ]
    rows = ConfigRows()
    add_documents(asked, path, rows)
    rows.write(sink)
    return len(rows.rows)


def _recognise(head: Head) -> bool:
    found = sketch(head).value
    if isinstance(found, list) and _is_entry(first(found)):
        return True
    one = first(found if isinstance(found, list) else mapping(found).get("items")) or found
    return _is_application(mapping(one)) and (
        b'"deployedAt"' in head.data or len(head.data) >= HEAD_BYTES
    )


def _is_application(one: dict[str, Any]) -> bool:
    """Whether it is one of Argo CD's; its own client leaves out what kind it is."""
    if "kind" in one or "apiVersion" in one:
        group = str(one.get("apiVersion")).startswith("argoproj.io/")
        return group and one.get("kind") == "Application"
    return bool({"source", "sources"} & set(mapping(one.get("spec"))))


FORMAT = Format("argocd", "change", _recognise, _read)
