"""The incident's own figures beside its healthy ones, under the names that the model's runs have."""

from __future__ import annotations

from rca.case import Case
from rca.models.figures import POOL_FULL, log_ratios
from rca.op_families import ARITHMETIC
from rca.trial import workload_facts

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
    "waiting_with_room": "queue_with_free_blocks",
    "step_tokens": "tokens_per_step",
}
_SECONDS = {"queue_mean": "queue_time", "tokenise_time": "tokenise_time"}
_RATIOS = {
    "preemptions_per_request": ("preemptions", "finish_rate", 1.0),
    "full_collections_per_step": ("gc_full", "steps", 1.0),
    "memory_growth": ("host_memory_growth", "host_memory", 60.0),
}
_PROFILED = """
WITH step AS (
    SELECT source_id, count(*) AS n
    FROM cpu_op
    WHERE kind = 'annotation' AND (name LIKE 'execute_%' OR name LIKE 'ProfilerStep%')
    GROUP BY source_id
),
counted AS (
    SELECT s.part,
        step.n,
        (SELECT count(*) FROM cpu_op AS o WHERE o.source_id = s.id AND o.kind = 'op') AS ops,
        (
            SELECT count(*)
            FROM cpu_op AS o
            WHERE o.source_id = s.id AND o.kind = 'op' AND list_contains(?, o.name)
        ) AS arithmetic,
        (SELECT count(*) FROM memory_event AS m WHERE m.source_id = s.id AND m.delta_bytes > 0) AS allocations
    FROM source AS s JOIN step ON step.source_id = s.id
)
SELECT part, sum(ops) / sum(n), nullif(sum(allocations) / sum(n), 0), nullif(sum(arithmetic) / sum(n), 0)
FROM counted
GROUP BY part
HAVING sum(n) >= 5 AND sum(ops) > 0
"""
_BY_LENGTH = """
WITH measured AS (
    SELECT itl_ns, output_tokens > median(output_tokens) OVER () AS is_long
    FROM request
    WHERE itl_ns > 0 AND {side}
)
SELECT median(itl_ns) FILTER (is_long) / nullif(median(itl_ns) FILTER (NOT is_long), 0)
FROM measured
HAVING count(*) >= 20
"""
_FREE_SEATS = """
WITH cap AS (
    SELECT s.part, max(TRY_CAST(c.value AS DOUBLE)) AS seats
    FROM config AS c JOIN source AS s ON s.id = c.source_id
    WHERE lower(replace(c.key, '-', '_')) IN ('max_num_seqs', 'max_running_requests')
    GROUP BY s.part
),
state AS (
    SELECT part, service, replica, ts_ns,
        max(num / nullif(den, 0)) FILTER (role = 'running') AS running,
        max(num / nullif(den, 0)) FILTER (role = 'waiting') AS waiting,
        max(num / nullif(den, 0)) FILTER (role = 'kv_usage') AS kv_usage
    FROM role_point
    WHERE role IN ('running', 'waiting', 'kv_usage')
    GROUP BY part, service, replica, ts_ns
)
SELECT avg(CAST(waiting >= 1 AND running < seats AND kv_usage < ?2 AS INTEGER))
FROM state JOIN cap USING (part)
WHERE part = ?1 AND (part = 'baseline' OR ts_ns BETWEEN ?3 AND ?4)
HAVING count(running) > 0 AND count(waiting) > 0
"""
_GROWN_TENANTS = """
WITH spent AS (
    SELECT tenant,
        coalesce(sum(input_tokens) FILTER ({before}), 0) AS before,
        coalesce(sum(input_tokens) FILTER ({after}), 0) AS after
    FROM request
    WHERE tenant IS NOT NULL AND input_tokens > 0
    GROUP BY tenant
),
share AS (
    SELECT before / nullif(sum(before) OVER (), 0) AS before, after / nullif(sum(after) OVER (), 0) AS after
    FROM spent
)
SELECT coalesce(sum(before) FILTER (grown), 0), coalesce(sum(after) FILTER (grown), 0)
FROM (SELECT *, after >= 2 * before AND after > 0 AS grown FROM share WHERE before IS NOT NULL AND after IS NOT NULL)
HAVING count(*) > 0
"""
_NS = 1e9
_ALL_SKEWED = 0.97


def observed(case: Case) -> dict[str, float]:
    """The incident's own figures as natural logarithms of window / reference, as far as recorded.

    The keys are those of rca.models.figures, which also says how zeros are compared.
    """
    before, after = _levels(case)
    _prefer_live_memory(case, before, after)
    _only_mixed_versions(before, after)
    sides = [_renamed(side) for side in (before, after)]
    for side, quantiles in zip(sides, _quantiles(case), strict=True):
        side.update(quantiles)
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


def _sides(case: Case) -> tuple[str, str] | None:
    """Conditions on requests of the healthy side and of the window; None without an incident."""
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )
    if not rows:
        return None
    start, end, margin = rows[0]
    reference = "part = 'baseline'"
    if not case.scalar(f"SELECT count(*) FROM request WHERE {reference}"):
        reference = f"part = 'incident' AND start_ns < {start - margin}"
    return reference, f"part = 'incident' AND start_ns BETWEEN {start} AND {end}"


def _quantiles(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Latencies of requests, how much slower long answers come than short ones."""
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    conditions = _sides(case)
    if conditions is None:
        return before, after
    for side, condition in zip((before, after), conditions, strict=True):
        for figure, column in _COLUMNS.items():
            for q in (50, 99):
                value = case.scalar(
                    f"SELECT quantile_cont({column}, {q / 100}) FROM request WHERE {condition}"
                )
                if value:
                    side[f"{figure}_p{q}"] = float(value)
        value = case.scalar(_BY_LENGTH.format(side=condition))
        if value:
            side["itl_by_length"] = float(value)
    return before, after


def _free_seats(case: Case) -> tuple[float | None, float | None]:
    """Share of scrapes in which requests wait while seats and blocks are free.

    None on a side whose number of seats no configuration tells.
    """
    start, end = case.rows("SELECT start_ns, end_ns FROM incident_window ORDER BY id LIMIT 1")[
        0
    ]
    before, after = (
        case.scalar(_FREE_SEATS, (part, POOL_FULL, start, end))
        for part in ("baseline", "incident")
    )
    return before, after


def _grown_tenants(case: Case) -> tuple[float | None, float | None]:
    """Share of the prompt tokens of tenants that send at least twice what they sent, before and after."""
    conditions = _sides(case)
    if conditions is None:
        return None, None
    before, after = conditions
    rows = case.rows(_GROWN_TENANTS.format(before=before, after=after))
    return rows[0] if rows else (None, None)


def _profiled(case: Case) -> dict[str, tuple[float, float]]:
    """Operators, allocations and arithmetic of a step, where both sides were profiled."""
    rows = {part: values for part, *values in case.rows(_PROFILED, [sorted(ARITHMETIC)])}
    if rows.keys() != {"baseline", "incident"}:
        return {}
    names = ("ops_per_step", "allocations_per_step", "arithmetic_per_step")
    pairs = zip(names, rows["baseline"], rows["incident"], strict=True)
    return {name: (float(low), float(high)) for name, low, high in pairs if low and high}
