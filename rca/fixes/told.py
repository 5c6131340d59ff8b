"""What every proposal says beside its action: share explained, the trial, who approves, when to revert."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any

from rca.case import Case
from rca.catalogue import Fix
from rca.fixes.proposal import Proposal
from rca.plain import number, printable, quantity, role_words

_LATENCIES = (
    "regexp_matches(figure, '^(ttft|itl|e2e|request|dependency|queue)_(p[0-9]+|mean)$')"
)
_SYMPTOMS = ("e2e_latency", "gateway_latency", "ttft", "itl", "slow_requests", "error_share", "error_rate")  # fmt: skip


def complete(case: Case, proposal: Proposal, fix: Fix | None, share: float | None) -> Proposal:
    """The proposal with everything that a person who approves it asks for."""
    usual = _kinds()[proposal.kind]
    quiet = proposal.kind == "investigate"
    return Proposal(**{
        **vars(proposal),
        "explained_share": share,
        "trial": None if quiet else _trial(case),
        "approver": (fix.approver if fix else None) or usual["approver"],
        "revert_when": None if quiet else _revert(case, proposal, fix, usual["revert"]),
    })  # fmt: skip


@cache
def _kinds() -> dict[str, Any]:
    return tomllib.loads(
        files("rca").joinpath("fixes", "kinds.toml").read_text(encoding="utf-8")
    )


def _revert(case: Case, proposal: Proposal, fix: Fix | None, usual: str) -> str:
    waits = _kinds()["wait"]
    wait = next((w for k, w in waits.items() if proposal.time_to_effect.startswith(k)), "a day")
    extra = (fix.revert if fix else None) or usual
    rows = case.rows(
        "SELECT id, role, unit, reference, observed FROM evidence "
        "WHERE role IN (SELECT unnest(?)) AND direction IN ('up', 'new') AND observed IS NOT NULL "
        "ORDER BY abs(strength) DESC, id LIMIT 1",
        (list(_SYMPTOMS),),
    )
    if not rows:
        return f"When users still feel it after {wait}, {extra}.".replace(" ,", ",")
    key, role, unit, reference, observed = rows[0]
    # The evidence names the service; a name from a recording stays out of instructions.
    name = role_words(role)
    healthy = f" towards {quantity(reference, unit)}" if reference is not None else ""
    return f"When {name} has not come down from {quantity(observed, unit)}{healthy} ({key}) within {wait}, {extra}."


def _trial(case: Case) -> str | None:
    """What the experiment saw: mechanism, direction, side effects; never more than its model."""
    rows = case.rows("SELECT status, device, fix, pairs, details FROM trial")
    if not rows:
        return None
    status, device, fix, pairs, details = rows[0]
    if status == "not_run":
        return None
    said = str(status).replace("_", " ")
    if not device:
        return f"{said}: nothing ran"
    arms = _medians(case)
    told = [f"{said}, in a model on the {device}, not in production"]
    told += _direction(arms)
    if fix:
        told.append(f"its fix there was: {printable(fix, 120)}")
    if costs := json.loads(details).get("side_effects"):
        told.append(f"side effects of the fix: {printable(', '.join(costs), 240)}")
    return "; ".join(told) + f" ({pairs} pairs)"


def _medians(case: Case) -> dict[str, dict[str, float]]:
    values: dict[tuple[str, str], list[float]] = {}
    for arm, figure, value in case.rows(
        f"SELECT arm, figure, value FROM trial_arm WHERE {_LATENCIES} AND value > 0 ORDER BY ALL"
    ):
        values.setdefault((arm, figure), []).append(value)
    found: dict[str, dict[str, float]] = {}
    for (arm, figure), many in values.items():
        found.setdefault(figure, {})[arm] = median(many)
    return found


def _direction(arms: dict[str, dict[str, float]]) -> list[str]:
    """The latency that the fault moved most, and where the fix brought it."""
    moved = [
        (a["fault"] / a["healthy"], f, a)
        for f, a in arms.items()
        if "fault" in a and "healthy" in a
    ]
    if not moved:
        return []
    factor, figure, side = max(moved)
    told = f"the fault moves {figure} by ×{number(factor)}"
    if "fix" in side:
        told += f", the fix brings it to ×{number(side['fix'] / side['healthy'])} of healthy"
    return [told]
