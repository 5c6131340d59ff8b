"""A case's requests as a trace that load generators and `rca reproduce --requests` read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rca.case import Case, sql_text
from rca.errors import RcaError
from rca.models import mooncake
from rca.models.mooncake import BLOCK_TOKENS, Asked


def export_requests(case: Case, path: Path) -> str:
    """Write the incident's requests, or the baseline's where there are none; returns what was written, in words.

    Arrivals and lengths are as recorded. Requests share their first block where spans name a
    prefix that they share; no recording tells how long it is, so no other block is shared.

    Raises:
        RcaError: No request has both lengths.
    """
    rows: list[tuple[int, int, int, str | None]] = []
    for part in ("incident", "baseline"):
        rows = case.rows(sql_text("trial", "asked"), (part,))
        if rows:
            break
    if not rows:
        raise RcaError(
            "no request is recorded with the lengths of prompt and answer",
            hint="spans of the engine tell them; see docs/recording.md",
        )
    mooncake.write(path, _asked(rows))
    named = sum(prefix is not None for *_, prefix in rows)
    return f"{len(rows)} requests of the {part}, {named} with a prefix that spans name: {path}"


def _asked(rows: list[tuple[int, int, int, str | None]]) -> Iterator[Asked]:
    fresh = count()
    by_prefix: dict[str, int] = {}
    for at_ns, n_input, n_output, prefix in rows:
        ids = [next(fresh) for _ in range(-(-n_input // BLOCK_TOKENS))]
        if prefix is not None:
            ids[0] = by_prefix.setdefault(prefix, ids[0])
        yield Asked(at_ns, n_input, n_output, tuple(ids))
