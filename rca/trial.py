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
    quantile_cont({column}, {q}) FILTER ({reference}),
    quantile_cont({column}, {q}) FILTER (part = 'incident' AND start_ns BETWEEN {start} AND {end})
FROM request
"""
_COLUMNS = {"ttft": "ttft_ns", "itl": "itl_ns", "e2e": "engine_ns", "request": "e2e_ns"}
_ROLES = {
    "prefix_hit_rate": "prefix_hit_rate",
    "kv_usage": "kv_usage",
    "running": "running",
    "waiting": "waiting",
    "prompt_tokens": "prompt_tokens",
    "arrival_rate": "arrival_rate",
    "dependency_time": "dependency_p50",
    "calls_per_request": "dependency_calls_per_request",
    "waiting_with_room": "queue_with_free_seats",
    "step_tokens": "tokens_per_step",
}
_RATIOS = {
    "preemptions_per_request": ("preemptions", "finish_rate", 1.0),
    "full_collections_per_step": ("gc_full", "steps", 1.0),
    "memory_growth": ("host_memory_growth", "host_memory", 60.0),
}
_NS = 1e9


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
    """The incident's own figures as natural logarithms of window / reference, as far as recorded.

    The keys are those of rca.models.figures, which also says how zeros are compared.
    """
    from rca.models.figures import log_ratios

    before, after = _levels(case)
    for figure, (top, bottom, scale) in _RATIOS.items():
        for side in (before, after):
            if top in side and side.get(bottom, 0.0) > 0:
                side[figure] = scale * side[top] / side[bottom]
    _prefer_live_memory(case, before, after)
    sides = [
        {_ROLES.get(role, role): value for role, value in side.items()}
        for side in (before, after)
    ]
    for side, quantiles in zip(sides, _quantiles(case), strict=True):
        side.update(quantiles)
        if "queue_time" in side:
            side["queue_mean"] = side["queue_time"] * _NS
    return log_ratios(sides[1], sides[0])


def _levels(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Reference and window of each role: metrics before traces, the strongest service of them."""
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    for role, reference, value in case.rows(
        "SELECT role, reference, observed FROM evidence WHERE role IS NOT NULL "
        "AND reference IS NOT NULL AND observed IS NOT NULL "
        "ORDER BY source <> 'metrics', abs(strength) DESC, id"
    ):
        before.setdefault(role, float(reference))
        after.setdefault(role, float(value))
    return before, after


_LIVE = """
SELECT part, sum(grown) / sum(seconds)
FROM (
    SELECT any_value(s.part) AS part,
        max_by(m.allocated_bytes, m.ts_ns) - min_by(m.allocated_bytes, m.ts_ns) AS grown,
        (max(m.ts_ns) - min(m.ts_ns)) / 1e9 AS seconds
    FROM memory_event AS m JOIN source AS s ON s.id = m.source_id
    WHERE m.allocated_bytes IS NOT NULL
    GROUP BY m.source_id
    HAVING seconds > 0
)
GROUP BY part
"""


def _prefer_live_memory(case: Case, before: dict[str, float], after: dict[str, float]) -> None:
    """Growth of memory from profiles where both sides have one: a process also grows by warming up."""
    live = dict(case.rows(_LIVE))
    if len(live) == 2 and before.get("host_memory", 0.0) > 0:
        for side, part in ((before, "baseline"), (after, "incident")):
            side["memory_growth"] = 60.0 * max(float(live[part]), 0.0) / before["host_memory"]


def _quantiles(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    if not rows:
        return before, after
    start, end, margin = rows[0]
    reference = "part = 'baseline'"
    if not case.scalar(f"SELECT count(*) FROM request WHERE {reference}"):
        reference = f"part = 'incident' AND start_ns < {start - margin}"
    for figure, column in _COLUMNS.items():
        for q in (50, 99):
            sql = _QUANTILES.format(
                column=column, q=q / 100, reference=reference, start=start, end=end
            )
            low, high = case.rows(sql)[0]
            if low and high:
                before[f"{figure}_p{q}"], after[f"{figure}_p{q}"] = float(low), float(high)
    return before, after


def torch_installed() -> bool:
    """Whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def _not_run(case: Case, cause: str | None, status: str, reason: str) -> None:
    row: dict[str, Any] = {
        "status": status, "cause": cause, "pairs": 0, "spent_ns": 0, "reason": reason, "details": "{}",
    }  # fmt: skip
    case.insert("trial", pl.DataFrame([row]))
