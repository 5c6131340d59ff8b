"""Proposals for people: files that can be applied and undone, and the gates before a rollback."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from rca.case import Case
from rca.catalogue import Cause, Fix, load
from rca.patch import Setting, diff, replaced, safe_path, settings_in
from rca.plain import confidence, printable

ROLLBACK_CONFIDENCE = 0.87
"""The seed's threshold, read as calibrated confidence."""
ROLLBACK_CLASSES = ("code-regression", "config")
_BLOCKING_TRIALS = ("refuted", "ambiguous")
_WORKLOAD = re.compile(r"(deployment|statefulset|daemonset)/([a-z0-9]([a-z0-9.-]*[a-z0-9])?)")
_REPLICAS = re.compile(r"replicas:\s*(\d+)")


@dataclass(frozen=True)
class Proposal:
    """One fix. `file` and `undo` are names below DIR/fixes, set when there is content."""

    kind: str
    phase: str
    target: str
    action: str
    risk: str
    reversible: bool
    time_to_effect: str
    gate: str
    change_id: str | None = None
    file: str | None = None
    undo: str | None = None
    content: str | None = None
    undo_content: str | None = None


@dataclass(frozen=True)
class _Facts:
    """What the proposals rest on."""

    cause: Cause
    confidence: float
    score: float
    guarded: bool
    change: tuple[str, str, str, str | None, str | None] | None
    """(id, kind, subject, before, after)"""
    trial: str


def propose(case: Case, extra_causes: Path | None = None) -> None:
    """Write fix: for a diagnosed cause what undoes or mends it, else what to measure next."""
    case.clear(["fix"])
    facts = _facts(case, extra_causes)
    proposals = list(_for_cause(case, facts)) if facts else list(_for_unknown(case))
    rows: list[dict[str, Any]] = []
    for number, proposal in enumerate(proposals, start=1):
        rows.append({"id": number, **asdict(_named(proposal, number))})
    if rows:
        case.insert("fix", pl.DataFrame(rows, infer_schema_length=None))


def write_files(case: Case, out: Path) -> list[Path]:
    """Write the proposals' files below OUT/fixes, replacing those of an earlier run."""
    folder = out / "fixes"
    if folder.is_dir():
        for old in folder.glob("[0-9][0-9]-*"):
            old.unlink()
    written = []
    for row in case.rows("SELECT file, content, undo, undo_content FROM fix ORDER BY id"):
        for name, content in (row[:2], row[2:]):
            if name and content is not None:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / name
                path.write_text(content, encoding="utf-8")
                if path.suffix == ".sh":
                    path.chmod(0o755)
                written.append(path)
    return written


def _facts(case: Case, extra_causes: Path | None) -> _Facts | None:
    # Proposals rest on the offline rules: no language model can bring one about or take it away.
    rows = case.rows(
        "SELECT cause, confidence FROM verdict WHERE status = 'diagnosed' AND judge = 'rules'"
    )
    if not rows:
        return None
    cause, sure = rows[-1]
    change_id, score = case.rows(
        "SELECT change_id, score FROM hypothesis WHERE cause = ?", (cause,)
    )[0]
    change = case.rows(
        "SELECT id, kind, subject, before, after FROM change WHERE id = ?", (change_id,)
    )
    trial = case.scalar("SELECT status FROM trial") or "not_run"
    guarded = bool(
        case.scalar("SELECT value FROM provenance WHERE key = 'guard' AND value = 'passed'")
    )
    known = load(extra_causes)[cause]
    return _Facts(known, sure, score, guarded, change[0] if change else None, trial)


def _for_cause(case: Case, facts: _Facts) -> Iterator[Proposal]:
    rolled = False
    main = next(
        (f for f in facts.cause.fixes if f.kind == "config" and f.phase == "repair"), None
    )
    if facts.change:
        proposal = _rollback(facts)
        rolled = proposal.kind == "rollback"
        yield proposal
    order = ("mitigate", "repair", "prevent")
    for fix in sorted(facts.cause.fixes, key=lambda f: order.index(f.phase)):
        if fix.kind == "rollback":
            if facts.change is None:
                yield _look_for_change(fix, facts)
            continue
        yield _from_catalogue(case, fix, facts, after_rollback=rolled, restores=fix is main)


def _gate(facts: _Facts) -> tuple[bool, str]:
    """Whether a rollback may be proposed, and the reasons in words."""
    sure = facts.confidence >= ROLLBACK_CONFIDENCE
    blocked = facts.trial in _BLOCKING_TRIALS
    undone = facts.cause.cls in ROLLBACK_CLASSES
    checks = [
        (undone, f"class {facts.cause.cls} {'can' if undone else 'cannot'} be undone"),
        (sure, f"confidence {confidence(facts.confidence)} {'reaches' if sure else 'is below'} {ROLLBACK_CONFIDENCE}"),
        (facts.guarded, f"the two strongest moves are {'' if facts.guarded else 'not both '}explained"),
        (not blocked, f"{'' if blocked else 'nothing in '}the experiment ({facts.trial}) speaks against it"),
    ]  # fmt: skip
    met = ", ".join(told for ok, told in checks if ok)
    failed = ", ".join(told for ok, told in checks if not ok)
    if failed:
        return False, f"held back, since {failed}; met: {met or 'nothing'}"
    return True, f"passed: {met}"


def _rollback(facts: _Facts) -> Proposal:
    assert facts.change is not None  # noqa: S101 - the caller checked
    change_id, kind, subject, before, after = facts.change
    passed, gate = _gate(facts)
    told = " → ".join(printable(x, 120) for x in (before, after) if x)
    if not passed:
        return Proposal(
            "investigate", "mitigate", printable(subject, 200),
            f"Check whether {printable(change_id, 60)} ({told}) is to blame before undoing it"
            + (
                ": run one replica as it was before, and compare it with the others."
                if _WORKLOAD.fullmatch(subject)
                else "."
            ),
            "none", True, "minutes", gate,
        )  # fmt: skip
    script, undo = _scripts(kind, subject, before, after)
    return Proposal(
        "rollback", "mitigate", subject, f"Undo {printable(change_id, 60)}: {told}.",
        "loses what the change was made for", True, "minutes", gate, change_id,
        content=script, undo_content=undo,
    )  # fmt: skip


def _scripts(kind: str, subject: str, before: str | None, after: str | None) -> tuple[str, str]:
    """Shell scripts that undo a change and take that back; comments only where nothing can be run."""
    workload = _WORKLOAD.fullmatch(subject)
    replicas = [_REPLICAS.search(x or "") for x in (before, after)]
    if workload and kind == "scale" and all(replicas):
        pair = [
            f"kubectl scale {shlex.quote(subject)} --replicas={r.group(1)}"
            for r in replicas
            if r
        ]
        return _script(subject, before, after, pair[0]), _script(
            subject, after, before, pair[1]
        )
    if workload:
        look = f"kubectl rollout history {shlex.quote(subject)}"
        undo = f"kubectl rollout undo {shlex.quote(subject)}"
        body = f"{look}\n# The newest revision must be the change named above; else add --to-revision=N.\n{undo}"
        return _script(subject, before, after, body), _script(subject, after, before, body)
    body = "echo 'No command is known for this kind of change: set the value named above by hand.' >&2\nexit 1"
    return _script(subject, before, after, body), _script(subject, after, before, body)


def _script(subject: str, wanted: str | None, now: str | None, body: str) -> str:
    head = [
        "#!/bin/sh",
        "# Proposed by rca; read it before you run it.",
        f"# {_comment(subject)}",
        f"#   is    {_comment(now)}",
        f"#   back  {_comment(wanted)}",
        "set -eu",
    ]
    return "\n".join(head) + f"\n{body}\n"


def _comment(text: str | None) -> str:
    """Foreign text on one comment line."""
    return printable(text or "unknown", 200).replace("\n", " ")


def _look_for_change(fix: Fix, facts: _Facts) -> Proposal:
    return Proposal(
        "investigate", fix.phase, facts.cause.id,
        "Find the change that began it: the bundle records none that fits in kind and time.",
        "none", True, "minutes", "no matching change is recorded",
    )  # fmt: skip


def _from_catalogue(
    case: Case, fix: Fix, facts: _Facts, *, after_rollback: bool, restores: bool
) -> Proposal:
    gate = (
        "no gate: a setting for a person to weigh"
        if fix.kind == "config"
        else "no gate: a person decides"
    )
    if after_rollback and fix.phase == "mitigate":
        gate += "; an alternative to the rollback"
    plain = Proposal(
        fix.kind, fix.phase, fix.setting or facts.cause.id, fix.action, fix.risk, fix.reversible,
        fix.time_to_effect, gate,
    )  # fmt: skip
    if fix.kind == "config" and fix.setting:
        return _with_value(case, plain, fix, facts, restores=restores)
    return plain


def _with_value(
    case: Case, plain: Proposal, fix: Fix, facts: _Facts, *, restores: bool
) -> Proposal:
    """The same with the value to set, as a patch where the bundle has the file."""
    wanted = _value_before(case, fix, facts, restores=restores)
    if wanted is None:
        return replace(plain, action=f"{fix.action} Setting: {fix.setting} ({fix.direction}).")
    setting, now = wanted
    action = f"{fix.action} Set {setting.written} to {printable(setting.value, 60)}."
    for path, text in case.rows(
        "SELECT f.path, f.text FROM config_file AS f JOIN source AS s ON s.id = f.source_id "
        "WHERE s.part = 'incident' ORDER BY f.path"
    ):
        changed = replaced(text, setting.key, now, setting.value)
        if changed and changed != text and safe_path(path):
            return replace(
                plain, target=path, action=action, content=diff(path, text, changed),
                undo_content=diff(path, changed, text),
            )  # fmt: skip
    return replace(plain, target=setting.key, action=action)


def _value_before(
    case: Case, fix: Fix, facts: _Facts, *, restores: bool
) -> tuple[Setting, str | None] | None:
    """The setting with its healthy value, and the value it has now.

    From the change that was matched, else from the baseline's configuration: the fix's own
    setting, or any that the cause speaks of when this is the fix that `restores` what was.
    """
    if facts.change:
        before = {s.key: s for s in settings_in(facts.change[3])}
        after = {s.key: s.value for s in settings_in(facts.change[4])}
        for key, setting in before.items():
            if (
                _speaks(fix, facts, key, restores)
                and key in after
                and after[key] != setting.value
            ):
                return setting, after[key]
    rows = case.rows(
        "SELECT b.key, b.value, i.value FROM config AS b JOIN source AS sb ON sb.id = b.source_id "
        "JOIN config AS i ON i.subject = b.subject AND i.key = b.key JOIN source AS si ON si.id = i.source_id "
        "WHERE sb.part = 'baseline' AND si.part = 'incident' AND b.value <> i.value ORDER BY b.key"
    )
    for key, value, now in rows:
        if _speaks(fix, facts, key, restores):
            return Setting(key, "--" + key.replace("_", "-"), value), now
    return None


def _speaks(fix: Fix, facts: _Facts, key: str, restores: bool) -> bool:
    return key == fix.setting or (restores and bool(facts.cause.change.words.search(key)))


def _for_unknown(case: Case) -> Iterator[Proposal]:
    """What to record next; nothing for a healthy case."""
    told = case.scalar(
        "SELECT status FROM verdict WHERE judge = 'rules' ORDER BY rowid DESC LIMIT 1"
    )
    if told != "unknown":
        return
    for code, statement, record in case.rows(
        "SELECT code, statement, record FROM gap WHERE record IS NOT NULL"
    ):
        yield Proposal(
            "investigate", "mitigate", code, f"{statement}: {record}", "none", True, "minutes",
            "the cause is unknown",
        )  # fmt: skip


_SUFFIX = {"rollback": ".sh", "config": ".patch"}


def _named(proposal: Proposal, number: int) -> Proposal:
    """The proposal with names for its files."""
    if proposal.content is None:
        return proposal
    suffix = _SUFFIX.get(proposal.kind, ".txt")
    name = f"{number:02d}-{proposal.kind}"
    undo = f"{number:02d}-undo{suffix}" if proposal.undo_content is not None else None
    return replace(proposal, file=f"{name}{suffix}", undo=undo)
