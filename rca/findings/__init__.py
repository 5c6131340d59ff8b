"""Tables that an expert asks for: who was slow and what they share, under which load, and why.

Each module writes tables of its own, by the queries of rca/sql/findings. Nothing here judges:
scores and confidence rest on the evidence.
"""

from __future__ import annotations

from rca.case import Case
from rca.findings import causal, drivers, indicators, memory, parts, queueing, slow
from rca.findings.cohort import gather as gather_cohort
from rca.findings.cohort import query

__all__ = ["conclude", "gather"]

_TABLES = (
    "blast_radius", "latency_by_context", "slo_heat_map", "invalidation_storm", "version_window",
    "call_depth",
)  # fmt: skip


def gather(case: Case) -> None:
    """Write the tables of schema/62_cohort.sql; those whose recordings are missing stay empty."""
    cohort = gather_cohort(case)
    if cohort is None:
        return
    slow.compare(case, cohort)
    for table in _TABLES:
        _fill(case, table)
    parts.take_apart(case)
    replayed = queueing.put_down(case, cohort)
    drivers.trace_back(case, replayed)
    memory.fit(case)
    indicators.measure(case, cohort, replayed)


def conclude(case: Case) -> None:
    """Write what rests on the hypotheses: causal_edge."""
    causal.draw(case)


def _fill(case: Case, table: str) -> None:
    case.clear([table])
    case.rows(f"INSERT INTO {table} BY NAME {query(table)}")
