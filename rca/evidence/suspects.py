"""Services and metrics by how far they left their own range, whatever the cause.

The score is log(1 + z) times the weight of the kind of signal: what a service does (CPU, memory, its
own time, the gap before it answers) is nearer to a cause than the latencies that its callers see.
z is the shift of the median on the reference's spread, with a floor of a share of the level that
this metric usually has over all services: a latency that is nearly zero everywhere but in the
window has not moved by a factor of a million.

Which service it is and which of its metrics are different questions: floors keep flat series of
innocent services down, and hide within the culprit how far its steadiest metric left its range.
So the places are given to services by that score, and a service's places to its metrics by the
plain shift of their mean on their own spread (N-sigma).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl

from rca.case import Case
from rca.evidence.moves import (
    MIN_POINTS,
    Move,
    incident_span,
    measure,
    median,
    robust_spread,
    whole_span,
)
from rca.signals import Signal, load, meanings

_KEPT = 200
_FEWEST_SPANS = 5
_ENOUGH = 8
"""Points from which on a median says what is usual."""
_OWN_FLOOR = 1e-4
"""Spread that a metric has at least beside others of its service, as a share of its mean."""
_SPAN_TIMES = ("call_gap", "span_self")
_SPAN_ROLES = (*_SPAN_TIMES, "span_errors")


@cache
def _settings() -> tuple[float, float, tuple[tuple[re.Pattern[str], float], ...], float]:
    text = files("rca").joinpath("scoring.toml").read_text(encoding="utf-8")
    row = tomllib.loads(text)["suspects"]
    weights = tuple((re.compile(pattern), float(weight)) for pattern, weight in row["weights"])
    return float(row["floor"]), float(row["largest"]), weights, float(row["other"])


def rank(case: Case, spans: Sequence[Signal] | None = None) -> None:
    """Write suspect, best first: over the window, or over all recordings where there is none.

    Args:
        spans: Groups of spans where they are read already.
    """
    case.clear(["suspect"])
    span = incident_span(case) or whole_span(case)
    if span is None:
        return
    signals = [*load(case), *(load(case, spans=True) if spans is None else spans)]
    moves = [m for s in signals if s.role != "span_time" and (m := measure(s, span))]
    scored = score(moves)
    rows = [_row(i + 1, value, move) for i, (value, move) in enumerate(scored[:_KEPT])]
    if rows:
        case.insert("suspect", pl.DataFrame(rows, infer_schema_length=None))


def _row(place: int, value: float, move: Move) -> dict[str, Any]:
    role = move.signal.role
    known = meanings().get(role)
    unit = "s" if role in _SPAN_TIMES else "share" if role == "span_errors" else "as exported"
    return {
        "rank": place, "service": move.signal.service or None, "metric": _name(move), "score": value,
        "role": role if known or role in _SPAN_ROLES else None,
        "reference": move.reference.pooled(), "observed": move.observed.pooled(),
        "unit": known.unit if known else unit, "spreads": _spreads(move),
    }  # fmt: skip


def score(moves: Sequence[Move]) -> list[tuple[float, Move]]:
    """Scores, best first, each with the move of its service that takes this place."""
    counted = [m for m in moves if len(m.reference.ts_ns) >= MIN_POINTS and not _too_few(m)]
    levels: dict[str, list[float]] = {}
    for move in counted:
        levels.setdefault(move.signal.role, []).append(_level(move))
    usual = {role: float(np.median(values)) for role, values in levels.items()}
    found = [(_one(m, usual[m.signal.role]), m.signal.service, _name(m)) for m in counted]
    found.sort(key=lambda row: (-row[0], row[1], row[2]))
    named = _by_own_spread(counted)
    return [(value, next(named[service])) for value, service, _ in found]


def _by_own_spread(moves: Sequence[Move]) -> dict[str, Iterator[Move]]:
    """Service → its moves, those first that left their own spread furthest."""
    ordered = sorted(moves, key=lambda m: (-_own(m), _name(m)))
    services = {m.signal.service for m in moves}
    return {s: iter([m for m in ordered if m.signal.service == s]) for s in services}


def _own(move: Move) -> float:
    return float(np.log1p(_spreads(move))) * weight(move.signal.role)


def _spreads(move: Move) -> float:
    """How many of its own standard deviations the mean moved by."""
    before, after = move.reference.values, move.observed.values
    mean = float(np.mean(before))
    spread = max(float(np.std(before)), _OWN_FLOOR * abs(mean), 1e-9)
    return abs(float(np.mean(after)) - mean) / spread


def _name(move: Move) -> str:
    return move.signal.subject or move.signal.role.removeprefix("metric:")


def _too_few(move: Move) -> bool:
    if move.signal.role not in _SPAN_ROLES:
        return False
    return float(min(move.reference.den.sum(), move.observed.den.sum())) < _FEWEST_SPANS


def _level(move: Move) -> float:
    return abs(median(move.reference.values))


def _one(move: Move, usual: float) -> float:
    floor, largest, _, _ = _settings()
    before, after = move.reference.values, move.observed.values
    if move.signal.role in _SPAN_ROLES and len(before) >= _ENOUGH:
        # Single slow calls of a healthy time say little of what is usual.
        level, spread = abs(median(before)), robust_spread(before)
    else:
        level, spread = abs(float(np.mean(before))), float(np.std(before))
    if move.signal.source == "metrics":
        level = max(level, usual)
    spread = max(spread, floor * level, 1e-9)
    shift = abs(median(after) - median(before))
    return float(np.log1p(min(shift / spread, largest))) * weight(move.signal.role)


def weight(role: str) -> float:
    """Weight of a kind of signal, by the first pattern that its role matches."""
    _, _, weights, other = _settings()
    return next((w for pattern, w in weights if pattern.search(role)), other)
