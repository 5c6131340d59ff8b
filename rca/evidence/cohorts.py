"""Cohorts of requests that became slow while the others did not: one tenant, model, replica or length of prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case, sql_text
from rca.evidence.moves import FLAT, Move, Span, measure
from rca.evidence.rows import ends_of
from rca.plain import factor
from rca.signals import Points, Signal

_MARKS = ("tenant", "model", "replica", "prompt")
_FIGURES = ("cohort_latency", "cohort_ttft")
_FEWEST = 10
_MOST_VALUES = 50
_CLEAR = math.log(1.1)

Mask = npt.NDArray[np.bool_]


def apart(case: Case, span: Span, most: int) -> list[tuple[Move, str]]:
    """Cohorts whose effect is clearly larger than that of all other requests, with what these did.

    Clearly: the intervals of the two do not meet. Of one that stands apart in several figures the
    first counts; of two names for the same requests too.
    """
    requests = case.sql(sql_text("evidence", "request"))
    found = [pair for pair in _pairs(requests, span) if _stands_apart(*pair)]
    found.sort(key=lambda p: -round(abs((p[0].effect or 0.0) - (p[1].effect or 0.0)), 6))
    kept: dict[tuple[float, ...], tuple[Move, str]] = {}
    cohorts: set[str] = set()
    for move, others in found:
        same = (len(move.observed.ts_ns), move.observed.pooled(), move.reference.pooled())
        if move.signal.subject not in cohorts and same not in kept:
            cohorts.add(move.signal.subject)
            kept[same] = (
                move,
                f"; all other requests: {factor(others.effect) or 'not to be told'}",
            )
    return list(kept.values())[:most]


def _pairs(requests: pl.DataFrame, span: Span) -> Iterator[tuple[Move, Move]]:
    """What each cohort did, and what all requests without it did."""
    part = (requests["part"] == "incident").to_numpy()
    ts_ns = requests["ts_ns"].to_numpy()
    inside = part & (ts_ns >= span.start_ns) & (ts_ns <= span.end_ns)
    ones = np.ones(len(requests))
    figures = [
        (name, requests[name].is_not_null().to_numpy(), Points(ts_ns, requests[name].fill_null(0.0).to_numpy(), ones))
        for name in _FIGURES
    ]  # fmt: skip
    for mark in _MARKS:
        for value, of_it in _values(requests[mark], inside):
            for figure, measured, points in figures:
                sides = [
                    _signal(figure, f"{mark} {value}", points, mask & measured, part)
                    for mask in (of_it, ~of_it)
                ]
                moves = [measure(s, span) for s in sides]
                if moves[0] and moves[1]:
                    yield moves[0], moves[1]


def _values(names: pl.Series, inside: Mask) -> Iterator[tuple[str, Mask]]:
    """The values that enough requests have, in the window and out of it, with the requests that have them."""
    counts = pl.DataFrame({"name": names, "inside": inside}).drop_nulls().group_by("name").agg(
        n=pl.len(), n_inside=pl.col("inside").sum()
    )  # fmt: skip
    often = counts.filter(
        (pl.col("n_inside") >= _FEWEST) & (pl.col("n") - pl.col("n_inside") >= _FEWEST)
    )
    for value in often.sort(["n", "name"], descending=[True, False])["name"].head(_MOST_VALUES):
        yield value, (names == value).fill_null(False).to_numpy()


def _signal(figure: str, cohort: str, points: Points, mask: Mask, is_incident: Mask) -> Signal:
    return Signal(
        "trace", figure, "", cohort, points.pick(mask & is_incident), points.pick(mask & ~is_incident)
    )  # fmt: skip


def _stands_apart(move: Move, others: Move) -> bool:
    effect, rest = move.effect, others.effect
    if abs(move.strength) < FLAT or effect is None or rest is None:
        return False
    sign = math.copysign(1.0, move.strength)
    if sign * (effect - rest) < _CLEAR or sign * effect < _CLEAR:
        return False
    ends, rest_ends = ends_of(move), ends_of(others)
    if ends is None or rest_ends is None:
        return False
    return ends[0] > rest_ends[1] if sign > 0 else ends[1] < rest_ends[0]
