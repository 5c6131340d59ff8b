"""What a proposal is, and the names of its files."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rca.plain import printable

_SUFFIXES = {"patch": ".patch", "script": ".sh", "manifest": ".yaml", "text": ".txt"}


@dataclass(frozen=True)
class Proposal:
    """One fix for a person to weigh; the columns of `fix`.

    Attributes:
        form: 'patch', 'script', 'manifest' or 'text': what `content` is.
        undo_form: The same of `undo_content`.
        explained_share: Share of this incident's added latency that the cause accounts for.
        gate: Why it is proposed or held back, in words.
        gate_passed: None where there is no gate.
        trial: What the experiment saw, said of the device that it ran on.
        strict: What the narrower rule for rollbacks says; only for those.
        confidence: What its gate was held against; None where there is no gate.
        file: Name below DIR/fixes; set with `undo` when there is content.
    """

    kind: str
    phase: str
    target: str
    action: str
    risk: str
    reversible: bool
    time_to_effect: str
    gate: str
    gate_passed: bool | None = None
    change_id: str | None = None
    file: str | None = None
    undo: str | None = None
    content: str | None = None
    undo_content: str | None = None
    explained_share: float | None = None
    trial: str | None = None
    approver: str | None = None
    revert_when: str | None = None
    strict: str | None = None
    confidence: float | None = None
    form: str = "text"
    undo_form: str | None = None


def named(proposal: Proposal, number: int) -> Proposal:
    """The proposal with names for its files."""
    if proposal.content is None:
        return proposal
    file = f"{number:02d}-{proposal.kind}{_SUFFIXES[proposal.form]}"
    back = _SUFFIXES[proposal.undo_form or proposal.form]
    undo = f"{number:02d}-undo{back}" if proposal.undo_content is not None else None
    return replace(proposal, file=file, undo=undo)


def investigate(target: str, action: str, gate: str, phase: str = "mitigate") -> Proposal:
    """A proposal to look, which changes nothing."""
    return Proposal(
        "investigate", phase, printable(target, 200), action, "none", True, "minutes", gate
    )


def script(head: list[str], body: str) -> str:
    """A shell script: comments (foreign text, made harmless), then commands."""
    notes = [f"# {printable(line, 200)}" for line in head]
    return "\n".join(["#!/bin/sh", "# Proposed by rca; read it before you run it.", *notes, "set -eu", body, ""])  # fmt: skip
