"""Requests taken apart along their critical path, so that the parts add up to each one's time.

The path is walked from the end of a span backwards: the child that ended last was waited for, before
it the child that ended last of those that ended before that one began. Time on the path that no
child covers is the span's own. Children that run beside the path add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import polars as pl

from rca.case import Case
from rca.findings.cohort import query

_MOST_REQUESTS = 2000
_MOST_SPANS = 20_000
_FEWEST_REQUESTS = 200


class PathSpan(NamedTuple):
    """One span as rca/sql/findings/40_path_span.sql gives it; times in ns."""

    source_id: int
    trace_id: str
    span_id: str
    parent_id: str | None
    service: str
    start_ns: int
    end_ns: int
    callee: str
    is_call: bool
    step: str | None
    is_engine: bool
    queue_ns: int | None
    prefill_ns: int | None
    decode_ns: int | None


Piece = tuple[str, str, int]
"""Part, service and ns."""


def take_apart(case: Case) -> None:
    """Write request_part and cohort_part."""
    case.clear(["request_part", "cohort_part"])
    spans = [PathSpan(*row) for row in case.rows(query("path_span"), (_how_many(case),))]
    if not spans:
        return
    rows = [
        (*key, part, service, ns)
        for key, trace in groupby(spans, key=lambda s: (s.source_id, s.trace_id))
        for (part, service), ns in _summed(path(list(trace))).items()
    ]
    names = ("source_id", "trace_id", "part", "service", "ns")
    case.insert("request_part", pl.DataFrame(rows, schema=names, orient="row"))
    case.rows(f"INSERT INTO cohort_part BY NAME {query('cohort_part')}")


def _how_many(case: Case) -> int:
    """Requests a side: fewer where traces are large."""
    requests, spans = case.rows(
        "SELECT count(DISTINCT (r.source_id, r.trace_id)), count(*) FROM cohort_request AS r "
        "JOIN trace_span AS s ON s.source_id = r.source_id AND s.trace_id = r.trace_id"
    )[0]
    size = spans / requests if requests else 1.0
    return min(_MOST_REQUESTS, max(_FEWEST_REQUESTS, round(_MOST_SPANS / size / 2)))


def _summed(pieces: Iterator[Piece]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for part, service, ns in pieces:
        if ns:
            found[part, service] = found.get((part, service), 0) + ns
    return found


def path(trace: list[PathSpan]) -> Iterator[Piece]:
    """The pieces of one request's time; they add up to the duration of its first root.

    Args:
        trace: Its spans by start. A parent that is missing makes a root.
    """
    known = {s.span_id for s in trace}
    children: dict[str, list[PathSpan]] = {}
    roots = []
    for span in trace:
        if span.parent_id in known:
            children.setdefault(str(span.parent_id), []).append(span)
        else:
            roots.append(span)
    if not roots:
        return
    stack = [(roots[0], roots[0].start_ns, roots[0].end_ns)]
    seen = set()
    while stack:
        span, start, cursor = stack.pop()
        seen.add(span.span_id)
        own, callee = 0, None
        for child in sorted(children.get(span.span_id, ()), key=lambda c: -c.end_ns):
            begin, end = max(child.start_ns, start), min(child.end_ns, cursor)
            if end <= begin or child.span_id in seen:
                continue
            own += cursor - end
            stack.append((child, begin, end))
            cursor = begin
            callee = child.service if child.service != span.service else callee
        yield from _named(span, own + cursor - start, callee)


def _named(span: PathSpan, own_ns: int, callee: str | None) -> Iterator[Piece]:
    """What the time that a span spent itself is to be called."""
    measured = (span.queue_ns, span.prefill_ns, span.decode_ns)
    if span.is_engine and any(m is not None for m in measured):
        left = own_ns
        for part, ns in zip(("queue", "prefill", "decode"), measured, strict=True):
            yield part, span.service, ns or 0
            left -= ns or 0
        yield ("engine, rest" if left >= 0 else "residual"), span.service, left
    elif span.step:
        yield span.step, span.service, own_ns
    elif callee is not None and span.is_call:
        yield "network", callee, own_ns
    elif span.is_call:
        yield "call", span.callee, own_ns
    else:
        yield "own time", span.service, own_ns
