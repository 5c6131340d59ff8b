"""What proposals rest on: the rules' verdict, its change, the experiment, the manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from rca import catalogue
from rca.case import Case
from rca.catalogue import Cause

ROLLBACK_CLASSES = ("code-regression", "config")
"""Classes whose causes are gone once the change that brought them is."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WORKLOAD = re.compile(rf"(deployment|statefulset|daemonset)/({_NAME.pattern})", re.IGNORECASE)
REVISION = "deployment.kubernetes.io/revision"
_REVISION_KEYS = ("revision", "rev", "rollout_revision", "to_revision", REVISION)
_PREVIOUS_KEYS = ("previous_revision", "from_revision", "revision_before", "before_revision")
_REVISION_TOLD = re.compile(r"(?<![\w-])rev(?:ision)?[ :=#]{1,3}(\d{1,9})\b", re.IGNORECASE)


class Change(NamedTuple):
    """The change that the leading hypothesis matches, its time on the common clock."""

    id: str
    kind: str
    subject: str
    before: str | None
    after: str | None
    ts_ns: int
    details: dict[str, Any]


class Workload(NamedTuple):
    """Something that kubectl can name; every part is of plain characters."""

    kind: str
    name: str
    namespace: str | None

    @property
    def path(self) -> str:
        """'deployment/NAME'."""
        return f"{self.kind}/{self.name}"

    @property
    def kubectl(self) -> str:
        """The command with its namespace, where one is known."""
        return f"kubectl -n {self.namespace}" if self.namespace else "kubectl"


class Revisions(NamedTuple):
    """Revision that the change made and the one before it; None where nothing tells."""

    changed: int | None
    before: int | None
    told_by: str


@dataclass(frozen=True)
class Facts:
    """What the proposals for a diagnosed cause rest on.

    Attributes:
        guarded: Whether the cause explains the strongest moves.
        lag_ns: From the change to the start of the window; None without a change.
        blame: Probability that the matched change brought the incident about: the confidence of
            all causes of a class that a rollback can undo and that match this very change.
        slow: Services that became slow to call.
    """

    cause: Cause
    confidence: float
    score: float
    guarded: bool
    explained_share: float | None
    change: Change | None
    lag_ns: int | None
    blame: float
    trial: str
    slow: tuple[str, ...]

    @property
    def subject(self) -> str:
        """What a proposal that names nothing else is about: the slow service, else the cause."""
        is_theirs = self.cause.cls == "dependency" and self.slow
        return self.slow[0] if is_theirs else self.cause.id


def gather(case: Case, contributing: str | None = None) -> Facts | None:
    """The facts of a diagnosed case, or of a cause at work beside its own; None when no cause was named.

    They are those of the offline rules: no language model can bring a proposal about or take it
    away.
    """
    rows = case.rows(
        "SELECT cause, confidence FROM verdict WHERE status = 'diagnosed' AND judge = 'rules'"
    )
    if not rows:
        return None
    cause = contributing or rows[-1][0]
    change_id, score, share, sure = case.rows(
        "SELECT change_id, score, explained_share, confidence FROM hypothesis WHERE cause = ?",
        (cause,),
    )[0]
    sure = sure if contributing else rows[-1][1]
    change = _change(case, change_id)
    blame = case.scalar(
        "SELECT sum(confidence) FROM hypothesis WHERE change_id = ? AND class IN (SELECT unnest(?))",
        (change_id, list(ROLLBACK_CLASSES)),
    )
    start = case.scalar("SELECT start_ns FROM incident_window ORDER BY id LIMIT 1")
    guarded = case.scalar(
        "SELECT count(*) FROM provenance WHERE key = 'guard' AND value = 'passed'"
    )
    slow = case.rows(
        "SELECT service FROM evidence WHERE strength >= 0.25 AND service IS NOT NULL "
        "AND NOT calls_engine(service) AND role IN ('dependency_time', 'downstream_latency', 'downstream_errors') GROUP BY service "
        "ORDER BY max(strength) DESC, service"
    )
    return Facts(
        catalogue.of(case)[cause], sure, score, bool(guarded), share, change,
        start - change.ts_ns if change and start is not None else None, min(blame or 0.0, 1.0),
        case.scalar("SELECT status FROM trial") or "not_run", tuple(s for (s,) in slow),
    )  # fmt: skip


def _change(case: Case, change_id: str | None) -> Change | None:
    rows = case.rows(
        "SELECT c.id, c.kind, c.subject, c.before, c.after, c.ts_ns + s.shift_ns, c.details "
        "FROM change AS c JOIN source AS s ON s.id = c.source_id WHERE c.id = ? LIMIT 1",
        (change_id,),
    )
    if not rows:
        return None
    details = json.loads(rows[0][6] or "{}")
    key, kind, subject, before, after, ts_ns, _ = rows[0]
    known = details if isinstance(details, dict) else {}
    return Change(key, kind, subject, before, after, ts_ns, known)


def workload(case: Case, subject: str) -> Workload | None:
    """The workload that a subject names, in the namespace of its manifest; None for anything else."""
    found = _WORKLOAD.fullmatch(subject)
    if not found:
        return None
    kind, name = found[1].lower(), found[2].lower()
    for document in manifests(case, "incident"):
        meta = document["metadata"]
        if str(document["kind"]).lower() == kind and meta.get("name") == name:
            namespace = str(meta.get("namespace", ""))
            return Workload(kind, name, namespace if _NAME.fullmatch(namespace) else None)
    return Workload(kind, name, None)


def safe_name(text: str) -> bool:
    """Whether a name is one that Kubernetes gives: it means nothing to a shell or to YAML."""
    return bool(_NAME.fullmatch(text))


def manifests(case: Case, part: str) -> Iterator[dict[str, Any]]:
    """Kubernetes objects with a kind and metadata among the configuration files of one side."""
    for (text,) in case.rows(
        "SELECT f.text FROM config_file AS f JOIN source AS s ON s.id = f.source_id "
        "WHERE s.part = ? AND s.format = 'config_yaml' ORDER BY f.path",
        (part,),
    ):
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError:
            continue
        for one in documents:
            items = one.get("items") if isinstance(one, dict) else None
            for document in items if isinstance(items, list) else [one]:
                if isinstance(document, dict) and isinstance(document.get("metadata"), dict):
                    yield {"kind": "", **document}


def revisions(case: Case, change: Change, of: Workload) -> Revisions:
    """Revision numbers from the change's record, its text, or the manifests of both sides.

    Every rollout of a workload gets the next number, also one that brings an old template back,
    so the revision before N is N − 1.
    """
    told = {**change.details, **_inner(change.details)}
    changed = _first(told, _REVISION_KEYS) or _in_text(change.after)
    before = _first(told, _PREVIOUS_KEYS) or _in_text(change.before)
    if changed or before:
        return Revisions(changed, before or (changed or 1) - 1 or None, "the change's record")
    later = case.scalar(
        "SELECT count(*) FROM change WHERE subject = ? AND ts_ns > (SELECT ts_ns FROM change WHERE id = ? LIMIT 1)",
        (change.subject, change.id),
    )
    now, then = (_annotated(case, part, of) for part in ("incident", "baseline"))
    if now and not later:
        return Revisions(now, then if then and then < now else now - 1 or None, "the manifest")
    return Revisions(None, then, "the healthy manifest" if then else "")


def _inner(details: dict[str, Any]) -> dict[str, Any]:
    inner = details.get("details")
    return inner if isinstance(inner, dict) else {}


def _first(told: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        text = str(told.get(key, "")).strip()
        if re.fullmatch(r"[1-9]\d{0,8}", text):
            return int(text)
    return None


def _in_text(text: str | None) -> int | None:
    found = _REVISION_TOLD.search(text or "")
    return int(found[1]) if found else None


def _annotated(case: Case, part: str, of: Workload) -> int | None:
    for document in manifests(case, part):
        meta = document["metadata"]
        if str(document["kind"]).lower() == of.kind and meta.get("name") == of.name:
            notes = meta.get("annotations")
            return _first(notes if isinstance(notes, dict) else {}, (REVISION,))
    return None
