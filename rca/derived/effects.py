"""When changes took effect: the starts of processes that they brought."""

from __future__ import annotations

from rca.case import Case
from rca.derived.naming import name_of, related, workload

ROLLOUT_NS = 1800 * 10**9
"""So long after a change of a workload its restarts still come of it: images are pulled, models loaded."""
_BEGAN = """
SELECT count(*) FROM source AS s
WHERE s.id = ?2 AND ?1 > s.first_ns
"""


def date(case: Case) -> None:
    """Write change.effective_ns: the last start of a process of its workload that it brought."""
    case.execute("UPDATE change SET effective_ns = NULL")
    starts = [
        (ts_ns, name_of(workload(labels)))
        for source_id, labels, ts_ns, before, after in case.rows(
            "SELECT source_id, labels, ts_ns, before, after FROM state_step "
            "WHERE part = 'incident' AND name = 'process_start_time_seconds' ORDER BY ts_ns"
        )
        if before is not None or began(case, after, source_id)
    ]
    changes = case.rows(
        "SELECT c.id, c.source_id, c.ts_ns, c.subject FROM change AS c "
        "JOIN source AS s ON s.id = c.source_id WHERE s.part = 'incident' ORDER BY c.ts_ns, c.id"
    )
    for change_id, source_id, ts_ns, subject in changes:
        name = name_of(subject)
        later = [t for _, _, t, s in changes if t > ts_ns and related(name_of(s), name)]
        until = min([ts_ns + ROLLOUT_NS, *later])
        brought = [t for t, pod in starts if ts_ns <= t < until and related(pod, name)]
        if brought:
            case.execute(
                "UPDATE change SET effective_ns = ? WHERE id = ? AND source_id = ?",
                (max(brought), change_id, source_id),
            )


def began(case: Case, start_s: float, source_id: int) -> bool:
    """Whether a process that is seen late started while it was recorded."""
    return bool(case.scalar(_BEGAN, (round(start_s * 1000) * 1_000_000, source_id)))
