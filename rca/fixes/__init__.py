"""Proposals for people: files that can be applied and undone, and the gates before a rollback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from rca.case import Case
from rca.catalogue import PHASES, Fix
from rca.durable import write_whole
from rca.fixes import cluster, code, heat, rollback, setting
from rca.fixes.facts import ROLLBACK_CLASSES, Facts, gather
from rca.fixes.gates import CIRCUIT_BREAK_CONFIDENCE, ROLLBACK_CONFIDENCE
from rca.fixes.proposal import Proposal, investigate, named
from rca.fixes.told import complete

__all__ = [
    "CIRCUIT_BREAK_CONFIDENCE",
    "ROLLBACK_CLASSES",
    "ROLLBACK_CONFIDENCE",
    "Proposal",
    "propose",
    "write_files",
]

_NOT_COLUMNS = ("form", "undo_form")


def propose(case: Case) -> None:
    """Write fix: for a diagnosed cause what undoes or mends it, else what to measure next."""
    case.clear(["fix"])
    facts = gather(case)
    proposals = list(_for_cause(case, facts)) if facts else list(_for_unknown(case))
    # What may be done at once first; then what the cause beside the leading one asks for.
    proposals.sort(key=lambda p: not p.gate_passed)
    proposals[1:1] = _for_contributing(case, facts) if facts else []
    rows: list[dict[str, Any]] = []
    for number, proposal in enumerate(proposals, start=1):
        row = asdict(named(proposal, number))
        rows.append({"id": number, **{k: v for k, v in row.items() if k not in _NOT_COLUMNS}})
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
                write_whole(path, content)  # line ends stay: a patch must fit its file
                if path.suffix == ".sh":
                    path.chmod(0o755)
                written.append(path)
    return written


def _for_cause(case: Case, facts: Facts) -> Iterator[Proposal]:
    share = facts.explained_share
    rolled = False
    if facts.change:
        first = rollback.propose(case, facts, facts.change)
        rolled = first.kind == "rollback"
        yield complete(case, first, None, share)
    main = next(
        (f for f in facts.cause.fixes if f.kind == "config" and f.phase == "repair"), None
    )
    for fix in sorted(facts.cause.fixes, key=lambda f: PHASES.index(f.phase)):
        if fix.kind == "rollback":
            if facts.change is None:
                yield complete(case, _look_for_change(fix, facts), fix, share)
            continue
        proposal = _from_catalogue(case, fix, facts, restores=fix is main)
        if rolled and fix.phase == "mitigate":
            proposal = replace(
                proposal, gate=f"{proposal.gate}; an alternative to the rollback"
            )
        yield complete(case, proposal, fix, share)


def _for_contributing(case: Case, facts: Facts) -> Iterator[Proposal]:
    """For each cause at work beside the leading one its change, and its setting as it was before."""
    for (name,) in case.rows(
        "SELECT cause FROM hypothesis WHERE contributing AND cause <> ? "
        "AND ? IN (SELECT cause FROM hypothesis WHERE contributing) ORDER BY rank",
        (facts.cause.id, facts.cause.id),
    ):
        other = gather(case, name)
        if other is None:
            continue
        if other.change and other.change != facts.change:
            why = f"no gate: {name} is at work beside {facts.cause.id}, and a person decides which to mend first"
            first = rollback.look_first(case, other, other.change, why)
            yield complete(case, first, None, other.explained_share)
        for fix in other.cause.fixes:
            if fix.kind == "config" and fix.phase == "repair":
                proposal = _from_catalogue(case, fix, other, restores=True)
                yield complete(case, proposal, fix, other.explained_share)


def _look_for_change(fix: Fix, facts: Facts) -> Proposal:
    return investigate(
        facts.subject,
        "Find the change that began it: the bundle records none that fits in kind and time.",
        "no matching change is recorded",
        fix.phase,
    )


def _from_catalogue(case: Case, fix: Fix, facts: Facts, *, restores: bool) -> Proposal:
    gate = (
        "no gate: a setting for a person to weigh"
        if fix.kind == "config"
        else "no gate: a person decides"
    )
    plain = Proposal(
        fix.kind, fix.phase, fix.setting or facts.subject, fix.action, fix.risk, fix.reversible,
        fix.time_to_effect, gate,
    )  # fmt: skip
    if fix.command == "restart":
        return cluster.restart(case, plain, facts)
    if fix.command == "cache_ttl":
        return heat.propose(case, plain)
    if fix.kind == "config":
        return setting.propose(case, plain, fix, facts, restores=restores)
    if fix.kind == "code":
        return code.propose(case, plain)
    at_cluster = {
        "scale": cluster.scale,
        "drain": cluster.drain,
        "circuit_break": cluster.circuit_break,
    }
    return at_cluster[fix.kind](case, plain, facts) if fix.kind in at_cluster else plain


def _for_unknown(case: Case) -> Iterator[Proposal]:
    """What to record next; nothing for a healthy case."""
    told = case.scalar(
        "SELECT status FROM verdict WHERE judge = 'rules' ORDER BY rowid DESC LIMIT 1"
    )
    if told != "unknown":
        return
    for code_, statement, record in case.rows(
        "SELECT code, statement, record FROM gap WHERE record IS NOT NULL"
    ):
        found = investigate(code_, f"{statement}: {record}", "the cause is unknown")
        yield complete(case, replace(found, target=code_), None, None)
