"""The requests of the window and those they are set against, and what counts as slow."""

from __future__ import annotations

import polars as pl

from rca import sampling
from rca.case import Case, sql_text
from rca.findings.records import Cohort
from rca.limits import objective_ns

FEWEST = 10
"""Requests from which on a side counts, and which a limit must leave on either side."""
_FEWEST_SHARE = 0.05


def query(name: str) -> str:
    """The text of rca/sql/findings/NN_NAME.sql."""
    return sql_text("findings", name)


def gather(case: Case) -> Cohort | None:
    """Write cohort and cohort_request; None when the incident's recordings have no time at all."""
    case.clear(["cohort", "cohort_request"])
    found = case.rows(
        "SELECT start_ns, end_ns, margin_ns, slo FROM incident_window "
        "WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    start, end, margin, slo = found[0] if found else (*_whole(case), 0, _objective(case))
    if start is None:
        return None
    reference = _reference(case, start - margin, bool(found))
    _write_requests(case, start, end, reference, start - margin)
    counts = dict(case.rows("SELECT side, count(*) FROM cohort_request GROUP BY side"))
    limits = _limits(case, slo)
    limit_ns, limit_by = limits[0] if limits else (None, None)
    case.rows("UPDATE cohort_request SET is_slow = e2e_ns > ?", (limit_ns,))
    traced = sampling.read(case)
    cohort = Cohort(
        start, end, bool(found), reference, counts.get("window", 0), counts.get("reference", 0),
        limit_ns, limit_by, *_split(case, limits), traced.share, traced.is_sampled, traced.why,
    )  # fmt: skip
    case.insert("cohort", pl.DataFrame([vars(cohort)], infer_schema_length=None))
    return cohort


def _whole(case: Case) -> tuple[int | None, int | None]:
    first, last = case.rows(
        "SELECT min(first_ns + shift_ns), max(last_ns + shift_ns) FROM source WHERE part = 'incident'"
    )[0]
    return first, last


def _objective(case: Case) -> str | None:
    slo: str | None = case.scalar("SELECT slo FROM incident_window ORDER BY id LIMIT 1")
    return slo


def _reference(case: Case, before_ns: int, is_incident: bool) -> str | None:
    if case.scalar("SELECT count(*) FROM request WHERE part = 'baseline'") >= FEWEST:
        return "baseline"
    early = "SELECT count(*) FROM request WHERE part = 'incident' AND start_ns < ?"
    return "lead-in" if is_incident and case.scalar(early, (before_ns,)) >= FEWEST else None


def _write_requests(
    case: Case, start: int, end: int, reference: str | None, before: int
) -> None:
    case.rows(
        f"INSERT INTO cohort_request BY NAME {query('cohort_request')}",
        (start, end, reference, before),
    )
    case.rows(
        "UPDATE cohort_request AS r SET batch = l.batch, rate_per_s = l.rate_per_s "
        f"FROM ({query('load')}) AS l WHERE l.source_id = r.source_id AND l.trace_id = r.trace_id"
    )


def _limits(case: Case, slo: str | None) -> list[tuple[int, str]]:
    """Limits that say what is slow, whatever the window itself looks like; the best one first."""
    usual = case.scalar(
        "SELECT CAST(quantile_cont(e2e_ns, 0.99) AS BIGINT) FROM cohort_request WHERE side = 'reference'"
    )
    known = ((objective_ns(slo), "objective"), (usual, "healthy p99"))
    return [(limit_ns, name) for limit_ns, name in known if limit_ns is not None]


def _split(case: Case, limits: list[tuple[int, str]]) -> tuple[int | None, str | None]:
    """The first limit that leaves enough requests of the window on either side."""
    own = case.scalar(
        "SELECT CAST(quantile_cont(e2e_ns, 0.95) AS BIGINT) FROM cohort_request WHERE side = 'window'"
    )
    for limit_ns, name in [*limits, (own, "p95 of the window")]:
        if limit_ns is None:
            continue
        slow, n = case.rows(
            "SELECT count(*) FILTER (e2e_ns > ?), count(*) FROM cohort_request WHERE side = 'window'",
            (limit_ns,),
        )[0]
        if slow >= max(FEWEST, _FEWEST_SHARE * n - 1) and n - slow >= max(
            FEWEST, _FEWEST_SHARE * n
        ):
            return limit_ns, name
    return None, None
