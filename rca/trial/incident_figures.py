"""The incident's own figures beside its healthy ones, under the names that the model's runs have."""

from __future__ import annotations

from typing import NamedTuple

from rca.case import Case, sql_text
from rca.models.figures import POOL_FULL, log_ratios
from rca.trial import workload_facts

_ROLES = {
    "prefix_hit_rate": "prefix_hit_rate",
    "kv_usage": "kv_usage",
    "running": "running",
    "waiting": "waiting",
    "prompt_tokens": "prompt_tokens",
    "arrival_rate": "arrival_rate",
    "dependency_time": "dependency_p50",
    "calls_per_request": "dependency_calls_per_request",
    "waiting_with_room": "queue_with_free_blocks",
    "step_tokens": "tokens_per_step",
}
_SECONDS = {
    "queue_mean": "queue_time",
    "tokenise_time": "tokenise_time",
    "engine_gap": "engine_gap",
}
_RATIOS = {
    "preemptions_per_request": ("preemptions", "finish_rate", 1.0),
    "full_collections_per_step": ("gc_full", "steps", 1.0),
    "memory_growth": ("host_memory_growth", "host_memory", 60.0),
}
_NS = 1e9
_ANY_TIME = (-(2**63), 2**63 - 1)
_ALL_SKEWED = 0.97


def observed(case: Case) -> dict[str, float]:
    """The incident's own figures as natural logarithms of window / reference, as far as recorded.

    The keys are those of rca.models.figures, which also says how zeros are compared.
    """
    before, after = _levels(case)
    _prefer_live_memory(case, before, after)
    _only_mixed_versions(before, after)
    sides = [_renamed(side) for side in (before, after)]
    for side, latencies in zip(sides, _latencies(case), strict=True):
        side.update(latencies)
    for figure, (low, high) in _profiled(case).items():
        sides[0][figure], sides[1][figure] = low, high
    told = {
        "queue_with_free_seats": _free_seats(case),
        "grown_tenants": _grown_tenants(case),
        "kv_blocks": workload_facts.pool_sizes(case),
    }
    for figure, values in told.items():
        for side, value in zip(sides, values, strict=True):
            if value is not None:
                side[figure] = float(value)
    return log_ratios(sides[1], sides[0])


def _renamed(levels: dict[str, float]) -> dict[str, float]:
    """Levels of roles under the figures' names, and what is made of two of them."""
    side = {_ROLES.get(role, role): value for role, value in levels.items()}
    for figure, (top, bottom, scale) in _RATIOS.items():
        if top in levels and levels.get(bottom, 0.0) > 0 and figure not in levels:
            side[figure] = scale * levels[top] / levels[bottom]
    for figure, role in _SECONDS.items():
        if role in levels:
            side[figure] = levels[role] * _NS
    return side


def _only_mixed_versions(before: dict[str, float], after: dict[str, float]) -> None:
    """A race lets some requests meet two versions; where all of them do, nobody raced."""
    if after.get("version_skew", 0.0) >= _ALL_SKEWED:
        before["version_skew"] = after["version_skew"]


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


def _prefer_live_memory(case: Case, before: dict[str, float], after: dict[str, float]) -> None:
    """Growth of memory from profiles where both sides have one: a process also grows by warming up."""
    live = dict(case.rows(sql_text("trial", "live_memory")))
    if len(live) == 2 and before.get("host_memory", 0.0) > 0:
        for side, part in ((before, "baseline"), (after, "incident")):
            side["memory_growth"] = 60.0 * max(float(live[part]), 0.0) / before["host_memory"]


class _Side(NamedTuple):
    """Requests of a part that arrived from one time to another, ns since the Unix epoch."""

    part: str
    first_ns: int
    last_ns: int


def _sides(case: Case) -> tuple[_Side, _Side] | None:
    """The healthy side and the window; None without an incident."""
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )
    if not rows:
        return None
    start, end, margin = rows[0]
    healthy = _Side("baseline", *_ANY_TIME)
    if not case.scalar("SELECT count(*) FROM request WHERE part = 'baseline'"):
        healthy = _Side("incident", _ANY_TIME[0], start - margin - 1)
    return healthy, _Side("incident", start, end)


def _latencies(case: Case) -> list[dict[str, float]]:
    """Latencies of requests before and after, and how much slower long answers come than short ones."""
    sides = _sides(case)
    if sides is None:
        return [{}, {}]
    rows = [case.sql(sql_text("trial", "latency"), side).row(0, named=True) for side in sides]
    return [{figure: float(value) for figure, value in row.items() if value} for row in rows]


def _free_seats(case: Case) -> tuple[float | None, float | None]:
    """Share of scrapes in which requests wait while seats and blocks are free.

    None on a side whose number of seats no configuration tells.
    """
    start, end = case.rows("SELECT start_ns, end_ns FROM incident_window ORDER BY id LIMIT 1")[
        0
    ]
    before, after = (
        case.scalar(sql_text("trial", "free_seats"), (part, POOL_FULL, start, end))
        for part in ("baseline", "incident")
    )
    return before, after


def _grown_tenants(case: Case) -> tuple[float | None, float | None]:
    """Share of the prompt tokens of tenants that send at least twice what they sent, before and after."""
    sides = _sides(case)
    if sides is None:
        return None, None
    healthy, window = sides
    rows = case.rows(
        sql_text("trial", "grown_tenants"), (*healthy, window.first_ns, window.last_ns)
    )
    return rows[0] if rows else (None, None)


def _profiled(case: Case) -> dict[str, tuple[float, float]]:
    """Operators and allocations of a step, where both sides were profiled."""
    rows = {part: values for part, *values in case.rows(sql_text("trial", "profiled"))}
    if rows.keys() != {"baseline", "incident"}:
        return {}
    names = ("ops_per_step", "allocations_per_step")
    pairs = zip(names, rows["baseline"], rows["incident"], strict=True)
    return {name: (float(low), float(high)) for name, low, high in pairs if low and high}
