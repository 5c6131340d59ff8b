"""Views of a case that are computed once for many questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rca.case import Case

ASKED_OFTEN = ("span_self", "request", "role_point")
"""Views under nearly every stage and chart; once clocks are aligned, what they read stays as it is."""
ASKED_BY_STAGES = (*ASKED_OFTEN, "traced_share", "engine_service")
"""Those, and what more than one stage asks and no chart."""


@contextmanager
def computed_once(case: Case, views: Sequence[str] = ASKED_OFTEN) -> Iterator[None]:
    """Compute views once for all that ask on this connection, other views among them.

    Inside, a temporary table of the same name stands before each; what the views read must not
    change there. The file is left as it is. Within another such block its tables are used.
    """
    found = case.rows("SELECT table_name FROM duckdb_tables() WHERE temporary")
    there = {name for (name,) in found}
    made: list[str] = []
    try:
        for view in (v for v in views if v not in there):
            case.rows(f"CREATE TEMP TABLE {view} AS FROM {view}")
            made.append(view)
        yield
    finally:
        for view in made:
            case.rows(f"DROP TABLE temp.{view}")
