"""The verdict put to the test: the reproducer runs the hypothesis, its rivals and a fix."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from typing import Any

import polars as pl

from rca.case import Case
from rca.catalogue import load

DEFAULT_BUDGET_S = 20.0
_RIVALS = 3
_LEAST_RIVAL_SCORE = 0.15
_QUANTILES = """
SELECT
    quantile_cont({column}, {q}) FILTER (WHERE part = 'baseline') AS reference,
    quantile_cont({column}, {q}) FILTER (
        WHERE part = 'incident' AND start_ns BETWEEN {start} AND {end}) AS observed
FROM request
"""
_FIGURES_OF_ROLES = {
    "queue_time": "queue_mean",
    "prefix_hit_rate": "prefix_hit_rate",
    "kv_usage": "kv_usage",
    "running": "running",
    "waiting": "waiting",
    "prompt_tokens": "prompt_tokens",
    "arrival_rate": "arrival_rate",
    "preemptions": "preemptions_per_request",
}


def run(
    case: Case, budget_s: float | None = DEFAULT_BUDGET_S, cause: str | None = None
) -> None:
    """Write trial and trial_arm for the verdict's cause, or for `cause` when it is given."""
    case.clear(["trial", "trial_arm"])
    cause = cause or case.scalar("SELECT cause FROM verdict WHERE status = 'diagnosed'")
    known = load()
    if cause is None:
        _not_run(case, None, "not_run", "there is no diagnosed cause to test")
    elif budget_s is None or budget_s <= 0:
        _not_run(case, cause, "not_run", "switched off")
    elif cause not in known:
        _not_run(case, cause, "not_run", "this cause is not in the reproducer")
    elif known[cause].reproducible == "no":
        reason = "needs hardware that the reproducer cannot stand in for"
        _not_run(case, cause, "not_reproducible_on_device", reason)
    else:
        _experiment(case, cause, budget_s)


def _experiment(case: Case, cause: str, budget_s: float) -> None:
    from rca.models import experiment

    begun = time.monotonic_ns()
    result = experiment.run(
        cause,
        settings=None,
        observed=observed(case),
        rivals=_rivals(case, cause),
        budget_s=budget_s,
    )
    row = {
        "status": result.status, "cause": cause, "device": result.device, "fault": result.fault,
        "fix": result.fix, "pairs": result.pairs, "spent_ns": time.monotonic_ns() - begun,
        "reason": result.reason, "details": json.dumps(result.details, sort_keys=True),
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


def _rivals(case: Case, cause: str) -> list[str]:
    rows = case.rows(
        "SELECT cause FROM hypothesis WHERE cause <> ? AND score >= ? ORDER BY rank LIMIT ?",
        (cause, _LEAST_RIVAL_SCORE, _RIVALS),
    )
    return [c for (c,) in rows]


def observed(case: Case) -> dict[str, float]:
    """The incident's own figures as natural logarithms of window / reference, as far as recorded."""
    rows = case.rows(
        "SELECT start_ns, end_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not rows:
        return {}
    start, end = rows[0]
    found: dict[str, float] = {}
    for column in ("ttft", "itl", "e2e"):
        for q in (50, 99):
            sql = _QUANTILES.format(column=f"{column}_ns", q=q / 100, start=start, end=end)
            reference, value = case.rows(sql)[0]
            if reference and value and reference > 0 and value > 0:
                found[f"{column}_p{q}"] = math.log(value / reference)
    for role, effect in case.rows(
        "SELECT role, arg_max(effect, abs(strength)) FROM evidence "
        "WHERE role IS NOT NULL AND effect IS NOT NULL GROUP BY role ORDER BY role"
    ):
        if role in _FIGURES_OF_ROLES:
            found.setdefault(_FIGURES_OF_ROLES[role], float(effect))
    return found


def torch_installed() -> bool:
    """Whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def _not_run(case: Case, cause: str | None, status: str, reason: str) -> None:
    row: dict[str, Any] = {
        "status": status, "cause": cause, "pairs": 0, "spent_ns": 0, "reason": reason, "details": "{}",
    }  # fmt: skip
    case.insert("trial", pl.DataFrame([row]))
