"""A recorded change, undone: by revision where it is a rollout, by value where it is a setting."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

from rca.case import Case
from rca.fixes.facts import (
    Change,
    Facts,
    Revisions,
    Workload,
    revisions,
    safe_name,
    workload,
)
from rca.fixes.gates import rollback as rollback_gate
from rca.fixes.gates import strict
from rca.fixes.proposal import Proposal, investigate, script
from rca.patch import settings_in
from rca.plain import printable

_ROLLOUT_KINDS = ("deploy", "config")
_CONFIGMAP = re.compile(r"configmap/(.+)", re.IGNORECASE)


def propose(case: Case, facts: Facts, change: Change) -> Proposal:
    """The rollback of the matched change when its gate passes, else what to look at first."""
    gate = rollback_gate(facts)
    if not gate.passed:
        return replace(look_first(case, facts, change, gate.words), gate_passed=False)
    told = _before_after(change)
    content, undo, form, how = _files(case, change)
    return Proposal(
        "rollback", "mitigate", change.subject,
        f"Undo {printable(change.id, 60)}: {told or printable(change.subject, 120)}. {how}".strip(),
        "loses what the change was made for", True, "minutes", gate.words, True, change.id,
        content=content, undo_content=undo, strict=strict(facts),
        confidence=facts.blame, form=form,
    )  # fmt: skip


def _before_after(change: Change) -> str:
    return " → ".join(printable(x, 120) for x in (change.before, change.after) if x)


def look_first(case: Case, facts: Facts, change: Change, why: str) -> Proposal:
    """To find out whether a change is to blame, where undoing it is not to be proposed."""
    of = workload(case, change.subject)
    compare = ": run one replica as it was before, and compare it with the others" if of else ""
    told = _before_after(change)
    action = (
        f"Check whether {printable(change.id, 60)}{f' ({told})' if told else ''} is to blame before undoing it"
        f"{compare}."
    )
    proposal = investigate(change.subject, action, why)
    return Proposal(**{**vars(proposal), "strict": strict(facts), "confidence": facts.blame})


def _files(case: Case, change: Change) -> tuple[str, str, str, str]:
    """Content, undo, form of both, and a sentence about the revision."""
    of = workload(case, change.subject)
    if of and change.kind in _ROLLOUT_KINDS:
        known = revisions(case, change, of)
        content, undo = _rollout(change, of, known)
        return content, undo, "script", _told(of, known)
    configmap = _CONFIGMAP.fullmatch(change.subject)
    if configmap and safe_name(configmap[1].lower()):
        pair = _configmap(configmap[1].lower(), change)
        if pair:
            return *pair, "script", ""
    back, again = (_by_hand(change, v, w) for v, w in _sides(change))
    return back, again, "text", ""


def _told(of: Workload, known: Revisions) -> str:
    if known.before:
        return f"Back to revision {known.before} of {of.path}, as {known.told_by} says."
    return f"Which revision it was is not recorded: {of.kubectl} rollout history {of.path} lists them."


def _sides(change: Change) -> tuple[tuple[str | None, str | None], ...]:
    return (change.before, change.after), (change.after, change.before)


def _head(change: Change, wanted: str | None, now: str | None) -> list[str]:
    return [
        f"{change.subject}, change {change.id}",
        f"  is    {now or 'unknown'}",
        f"  back  {wanted or 'unknown'}",
    ]


def _rollout(change: Change, of: Workload, known: Revisions) -> tuple[str, str]:
    """Scripts to the revision before and back; without numbers they ask for one."""
    both = [(known.before, known.changed), (known.changed, known.before)]
    scripts = []
    for (wanted, now), (target, current) in zip(_sides(change), both, strict=True):
        head = _head(change, wanted, now)
        # Undone once more, the revision that was live has a new number: only the first way is checked.
        body = _undo(of, target, current if target == known.before else None)
        scripts.append(script(head, body))
    return scripts[0], scripts[1]


def _undo(of: Workload, target: int | None, current: int | None) -> str:
    lines = []
    if current and of.kind == "deployment":
        lines += [
            f"now=$({of.kubectl} get {of.path} -o "
            r"jsonpath='{.metadata.annotations.deployment\.kubernetes\.io/revision}')",
            f'if [ "$now" != {current} ]; then',
            f'  echo "{of.path} is at revision $now, not at {current}: it was changed again; look first" >&2',
            "  exit 1",
            "fi",
        ]
    if target is None:
        lines += [
            "# The recordings name no revision: choose one of this list, and give it as argument.",
            f"{of.kubectl} rollout history {of.path}",
            "case ${1-} in",
            "  ''|*[!0-9]*) echo \"usage: $0 REVISION\" >&2; exit 2 ;;",
            "esac",
            "revision=$1",
        ]
    else:
        lines += [f"revision={target}"]
    lines += [
        f'{of.kubectl} rollout history {of.path} --revision="$revision"',
        f'{of.kubectl} rollout undo {of.path} --to-revision="$revision"',
        f"{of.kubectl} rollout status {of.path} --timeout=15m",
    ]
    return "\n".join(lines)


def _configmap(name: str, change: Change) -> tuple[str, str] | None:
    """Scripts that set the values of a ConfigMap; None when the record does not give them."""
    scripts = []
    for wanted, now in _sides(change):
        values = {s.written: s.value for s in settings_in(wanted)}
        if not values:
            return None
        patch = shlex.quote(json.dumps({"data": values}))
        body = f"kubectl patch configmap {name} --type=merge -p {patch}"
        scripts.append(script(_head(change, wanted, now), body))
    return scripts[0], scripts[1]


def _by_hand(change: Change, wanted: str | None, now: str | None) -> str:
    """What to set where no command is known."""
    return (
        f"Proposed by rca. Set by hand, where {printable(change.subject, 200)} is kept:\n"
        f"  is    {printable(now or 'unknown', 400)}\n"
        f"  back  {printable(wanted or 'unknown', 400)}\n"
        f"(change {printable(change.id, 100)}, kind {printable(change.kind, 40)})\n"
    )
