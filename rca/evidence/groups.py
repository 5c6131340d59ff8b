"""What moved without a role: operations, kinds of log lines, families of kernels, cohorts of requests.

No cause speaks of them, so they change no score; they tell people where to look. Their rows stand
behind all other evidence, and each kind has room for its strongest only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from rca import sampling
from rca.case import Case, sql_text
from rca.evidence import cohorts
from rca.evidence.moves import FLAT, Move, Span, incident_span, measure, whole_span
from rca.evidence.rows import row
from rca.signals import Points, Signal, Times, Values, gathered
from rca.views import computed_once

CALLS, LINES, KERNELS, COHORTS = 12, 8, 8, 6
"""Rows that each kind has room for."""
_FEWEST_CALLS = 5
_MOST_KINDS = 200
_LEAST_SHARE = 0.005
"""Families of kernels that take less of the time than this on both sides are left out."""
_OF_SPANS = {"span_time": "call_time", "span_errors": "call_errors"}
_SAMPLED = " (traces hold a sample)"

Rows = list[dict[str, Any]]


def gather(case: Case, spans: Iterable[Signal]) -> None:
    """Append evidence of groups; the numbers of what is there already stay.

    Args:
        spans: Groups of spans, see `rca.signals.load`.
    """
    span = incident_span(case) or whole_span(case)
    if span is None:
        return
    sampled = sampling.read(case).is_sampled
    rows = [
        *_calls(case, span, spans, sampled),
        *_lines(case, span),
        *_kernels(case, span),
        *(row(m, span, more + (_SAMPLED if sampled else ""))
          for m, more in cohorts.apart(case, span, COHORTS)),
    ]  # fmt: skip
    first = int(case.scalar("SELECT count(*) FROM evidence")) + 1
    for number, one in enumerate(rows, start=first):
        one["id"] = f"E{number}"
    if rows:
        case.insert("evidence", pl.DataFrame(rows, infer_schema_length=None))


def _strongest(moves: Iterable[Move], most: int) -> list[Move]:
    """Those that moved, the strongest first; of equally strong ones the larger effect."""
    moved = [m for m in moves if abs(m.strength) >= FLAT]
    moved.sort(key=_order)
    return moved[:most]


def _order(move: Move) -> tuple[float, float, str, str, str]:
    signal = move.signal
    effect = abs(move.effect or 0.0)
    return -round(abs(move.strength), 2), -effect, signal.service, signal.subject, signal.role


def _calls(case: Case, span: Span, spans: Iterable[Signal], sampled: bool) -> Rows:
    """Operations: time and errors of a call, calls a second. A sample tells of times only."""
    known = [s for s in spans if s.role in _OF_SPANS]
    signals = [replace(s, role=_OF_SPANS[s.role]) for s in known]
    if sampled:
        signals = [s for s in signals if s.role == "call_time"]
    found = [m for s in signals if (m := measure(s, span)) and _enough(m)]
    if not sampled:
        seconds = _times(case.rows("SELECT part, ts_ns, 1.0 FROM traced_second ORDER BY ts_ns"))
        timed = (s for s in known if s.role == "span_time")
        rates = (_rate(s, "call_rate", seconds, of_calls=True) for s in timed)
        found += [m for s in rates if (m := measure(s, span))]
    return [row(m, span, _SAMPLED if sampled else "") for m in _strongest(found, CALLS)]


def _enough(move: Move) -> bool:
    return float(min(move.reference.den.sum(), move.observed.den.sum())) >= _FEWEST_CALLS


Covered = dict[str, tuple[Times, Values]]
"""Part → the times that recordings of it cover, and what a number is divided by at each."""


def _times(rows: Sequence[tuple[str, int, float]]) -> Covered:
    return {
        part: (
            np.array([ts for p, ts, _ in rows if p == part], np.int64),
            np.array([den for p, _, den in rows if p == part], np.float64),
        )
        for part in ("incident", "baseline")
    }


def _rate(signal: Signal, role: str, covered: Covered, *, of_calls: bool = False) -> Signal:
    """The same with a point for each time that is covered, 0 where nothing happened."""

    def filled(points: Points, part: str) -> Points:
        ts_ns, den = covered[part]
        num = np.zeros(len(ts_ns))
        num[np.searchsorted(ts_ns, points.ts_ns)] = points.den if of_calls else points.num
        return Points(ts_ns, num, den)

    return replace(
        signal, role=role,
        incident=filled(signal.incident, "incident"), baseline=filled(signal.baseline, "baseline"),
    )  # fmt: skip


def _lines(case: Case, span: Span) -> Rows:
    """Kinds of log lines, those with warnings and errors first."""
    if not case.rows("SELECT 1 FROM log LIMIT 1"):
        return []
    found = case.sql(
        sql_text("evidence", "log_kind"), (span.start_ns, span.end_ns, _MOST_KINDS)
    )
    if found.is_empty():
        return []
    bins = _times(case.rows("SELECT part, ts_ns, 10.0 * n_logs FROM logged_bin ORDER BY ts_ns"))
    signals = gathered([found.select(
        pl.lit("log").alias("source"), pl.lit("line_rate").alias("role"), pl.lit("").alias("service"),
        pl.col("template").alias("subject"), "part", "ts_ns", pl.col("lines").alias("num"), pl.lit(1.0).alias("den"),
    )])  # fmt: skip
    moves = [m for s in signals if (m := measure(_rate(s, "line_rate", bins), span))]
    told = {t: (bad, service) for t, bad, service, *_ in found.iter_rows()}
    moved = _strongest(moves, len(moves))
    moved.sort(key=lambda m: not told[m.signal.subject][0])
    return [row(m, span) | {"service": told[m.signal.subject][1]} for m in moved[:LINES]]


def _kernels(case: Case, span: Span) -> Rows:
    """Families of kernels that moved, those first that take most of the time; both sides need captures of them."""
    sides = case.scalar(
        "SELECT count(DISTINCT part) FROM source WHERE id IN "
        "(SELECT source_id FROM gpu_op WHERE kind = 'kernel' AND flaw IS NULL)"
    )
    if sides < 2:
        return []
    with computed_once(case, ("kernel_run",)):
        signals = _families(case, "role <> 'family_calls'")
        share = {
            s.subject: float(np.nanmax([s.incident.pooled(), s.baseline.pooled()]))
            for s in signals
            if s.role == "family_share"
        }
        large = [family for family, most in share.items() if most >= _LEAST_SHARE]
        signals += _families(case, "role = 'family_calls' AND list_contains(?, subject)", large)
    moves = [m for s in signals if s.subject in large and (m := measure(s, span))]
    # What is new or gone is told by its share alone.
    moved = [
        m
        for m in _strongest(moves, len(moves))
        if m.signal.role == "family_share" or m.direction in ("up", "down")
    ]
    moved.sort(key=lambda m: -share[m.signal.subject])
    return [row(m, span) for m in moved[:KERNELS]]


def _families(case: Case, where: str, *parameters: object) -> list[Signal]:
    query = (
        "SELECT source, role, '' AS service, subject, part, ts_ns, num, den "
        f"FROM kernel_family_value WHERE den > 0 AND {where}"
    )
    return gathered(case.batches(query, parameters))
