"""Traces whose spans lie in several sources, made whole; spans that were exported twice, counted once.

A gateway and an engine often export to files of their own, and a collector that was restarted
sends again what it had sent.
"""

from __future__ import annotations

import polars as pl

from rca.case import Case, sql_files

_SURE_ID = 16
"""Digits from which on a trace id is drawn at random and means the same trace everywhere."""


def join(case: Case) -> None:
    """Remove copies of spans, with a note, and write trace_home for traces of several sources.

    A copy has the ids, the operation and the times of another span of its part; the one that says
    most is kept. Ids that somebody counted up are taken for one trace only where a span of one
    source names a span of the other as its parent.
    """
    case.execute("DELETE FROM ingest_note WHERE code = 'span_copies'")
    for source_id, copies in _copies(case):
        _note(case, source_id, copies)
    case.execute("DELETE FROM trace_home")
    traced = "SELECT part FROM source WHERE kind = 'trace' GROUP BY part HAVING count(*) > 1"
    if case.rows(traced):
        case.execute(_query("20_home"), (_SURE_ID,))


def _copies(case: Case) -> list[tuple[int, int]]:
    """Delete copies; source and how many it had."""
    suspected = case.scalar(
        "SELECT count(*) FROM (SELECT 1 FROM span JOIN source AS s ON s.id = source_id "
        "GROUP BY hash(s.part, trace_id, span_id) HAVING count(*) > 1)"
    )
    if not suspected:
        return []
    case.execute(_query("10_copies"))
    found = case.rows("SELECT source_id, count(*) FROM span_copy GROUP BY 1 ORDER BY 1")
    case.execute("DELETE FROM span WHERE rowid IN (SELECT row FROM span_copy)")
    case.execute("DROP TABLE span_copy")
    if found:
        for name in ("11_span_event", "12_span_link"):
            case.execute(_query(name))
    return [(int(source_id), int(n)) for source_id, n in found]


def _query(name: str) -> str:
    return dict(sql_files("traces"))[f"{name}.sql"]


def _note(case: Case, source_id: int, copies: int) -> None:
    row = {
        "source_id": source_id, "level": "info", "code": "span_copies", "count": copies,
        "message": f"{copies} spans that were exported more than once are counted once",
    }  # fmt: skip
    case.insert("ingest_note", pl.DataFrame([row]))
