"""The verdict put to the test: the reproducer runs the hypothesis, its rivals and a fix."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import polars as pl

from rca import catalogue
from rca.case import Case
from rca.models import own_fix
from rca.models.faults import find, is_known
from rca.models.infer import FidelityRow, infer, scales
from rca.trial import fidelity, incident_figures, workload_facts

DEFAULT_BUDGET_S = 20.0
_TABLES = ("trial", "trial_arm", "trial_fidelity")
_RIVALS = 3  # that are run; the others are named
_LEAST_RIVAL_SCORE = 0.15
_NS = 1e9


def run(
    case: Case,
    budget_s: float | None = DEFAULT_BUDGET_S,
    cause: str | None = None,
    fix: Sequence[str] = (),
) -> None:
    """Write trial and trial_arm for the verdict's cause, or for `cause` when it is given.

    Args:
        case: a case with its verdict; what it held of an earlier trial goes.
        budget_s: wall time; None or 0 runs nothing.
        cause: an id of the catalogue.
        fix: settings `NAME=VALUE` to try instead of the fix that the model has for the cause.

    Raises:
        FixError: a setting that the model does not have, or cannot be run with.
    """
    settings = own_fix.parse(fix)
    cause = cause or case.scalar("SELECT cause FROM verdict WHERE status = 'diagnosed'")
    known = catalogue.of(case)
    if cause is None:
        _not_run(case, None, "not_run", "there is no diagnosed cause to test")
    elif budget_s is None or budget_s <= 0:
        _not_run(case, cause, "not_run", "switched off")
    elif cause not in known or not is_known(cause):
        _not_run(case, cause, "not_run", "this cause is not in the reproducer")
    elif known[cause].reproducible == "no":
        fault = find(cause)
        reason = (
            "its description says so" if fault.reproducible else f"this cause {fault.device}"
        )
        _not_run(case, cause, "not_reproducible_on_device", reason)
    else:
        _experiment(case, cause, budget_s, settings)


def _experiment(
    case: Case, cause: str, budget_s: float, settings: Sequence[own_fix.Setting]
) -> None:
    from rca.models import experiment

    begun = time.monotonic_ns()
    facts = workload_facts.read(case)
    workload = infer(facts)
    fix = own_fix.remedy(settings, scales(facts, workload.plan)) if settings else None
    rivals = _rivals(case, cause)
    case.clear(_TABLES)
    _insert_fidelity(case, workload.fidelity)
    result = experiment.run(
        cause,
        healthy=workload.plan,
        sizes=workload.sizes,
        began=begun / _NS,
        observed=_observed(case, cause),
        rivals=rivals[:_RIVALS],
        not_tried=rivals[_RIVALS:],
        other=_other(case, cause),
        fix=fix,
        budget_s=budget_s,
    )
    status, reason = fidelity.held_to(result.status, result.reason, workload.fidelity)
    row = {
        "status": status, "cause": cause, "device": result.device, "fault": result.fault,
        "fix": result.fix, "pairs": result.pairs, "spent_ns": time.monotonic_ns() - begun,
        "reason": reason, "details": json.dumps(result.details, sort_keys=True),
    }  # fmt: skip
    case.insert("trial", pl.DataFrame([row], infer_schema_length=None))
    arms = [
        {
            "arm": a.arm,
            "pair": a.pair,
            "engine": a.engine,
            "figure": a.figure,
            "value": float(a.value),
        }
        for a in result.arms
        if math.isfinite(a.value)
    ]
    if arms:
        case.insert("trial_arm", pl.DataFrame(arms, infer_schema_length=None))


def _insert_fidelity(case: Case, rows: Sequence[FidelityRow]) -> None:
    names = FidelityRow._fields[:6]
    case.insert(
        "trial_fidelity",
        pl.DataFrame(
            [dict(zip(names, row.shown(), strict=True)) for row in rows],
            infer_schema_length=None,
        ),
    )


def _observed(case: Case, cause: str) -> dict[str, float]:
    """The incident's figures, as far as they mean in the model what they mean in the recordings.

    Recordings call it a skew whenever two versions differ; in the model only a race makes one.
    """
    found = incident_figures.observed(case)
    if found.get("version_skew") and "version_skew" not in catalogue.of(case)[cause].expected:
        found.pop("version_skew", None)
    return found


def _rivals(case: Case, cause: str) -> list[str]:
    rows = case.rows(
        "SELECT cause FROM hypothesis WHERE cause <> ? AND score >= ? ORDER BY rank",
        (cause, _LEAST_RIVAL_SCORE),
    )
    return [c for (c,) in rows]


def _other(case: Case, cause: str) -> str | None:
    """The cause that contributes beside this one, where it is in the reproducer."""
    rows = case.rows(
        "SELECT cause FROM hypothesis WHERE contributing AND cause <> ?1 "
        "AND ?1 IN (SELECT cause FROM hypothesis WHERE contributing) ORDER BY rank LIMIT 1",
        (cause,),
    )
    return next((c for (c,) in rows if is_known(c)), None)


def torch_installed() -> bool:
    """Whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def _not_run(case: Case, cause: str | None, status: str, reason: str) -> None:
    row: dict[str, Any] = {
        "status": status, "cause": cause, "pairs": 0, "spent_ns": 0, "reason": reason, "details": "{}",
    }  # fmt: skip
    case.clear(_TABLES)
    case.insert("trial", pl.DataFrame([row]))
