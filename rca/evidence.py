"""What moved between the healthy reference and the incident window, by how much and how surely.

The reference of a signal is the baseline or the lead-in before the window, whichever differs less
from the window: what differs from one of them only, differs between days and not because of the
incident. Strength is g = tanh(z / 4) × |Cliff's delta|, with z the shift on the reference's robust
scale; it needs both a large shift and little overlap.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rca.case import Case
from rca.plain import printable
from rca.signals import Points, Signal, Values, load, meanings

FLAT = 0.25
"""Strength below which a signal counts as unmoved."""
KEPT_UNKNOWN = 20
_RESAMPLES = 300
_MIN_POINTS = 3
_MIN_EARLY = 8
_CLEARANCE = 4
"""The lead-in ends this part of the window's length before it."""
_SHARE_FLOOR = 0.05
_BLOCKS = 8


@dataclass(frozen=True)
class Span:
    """The incident window with the margin of its ends, ns since the Unix epoch."""

    start_ns: int
    end_ns: int
    margin_ns: int


@dataclass(frozen=True)
class Move:
    """One signal's move.

    Attributes:
        side: 'baseline' or 'lead-in': where the reference comes from.
        strength: From -1 to 1, see the module.
    """

    signal: Signal
    side: str
    reference: Points
    observed: Points
    strength: float

    @property
    def direction(self) -> str:
        """'up', 'down' or 'flat'."""
        if abs(self.strength) < FLAT:
            return "flat"
        return "up" if self.strength > 0 else "down"

    @property
    def effect(self) -> float | None:
        """Natural logarithm of observed / reference, None when a side is zero or negative."""
        before, after = self.reference.pooled(), self.observed.pooled()
        return float(np.log(after / before)) if before > 0 and after > 0 else None


def gather(case: Case) -> None:
    """Write evidence and suspect for the first incident window; changes are evidence too.

    Without an incident the whole of the incident's recordings is compared with the baseline:
    what moved most is worth knowing whatever the status.
    """
    case.clear(["evidence", "suspect"])
    span = _span(case) or _whole(case)
    if span is None:
        return
    moves = [m for s in load(case) if (m := measure(s, span))]
    groups = [m for s in load(case, spans=True) if (m := measure(s, span))]
    _write_suspects(case, moves, groups)
    rows = [_row(m, span) for m in _kept(moves)] + _change_rows(case)
    rows.sort(
        key=lambda r: (
            -abs(r["strength"]),
            r["source"],
            r["role"] or "",
            r["subject"],
            r["service"] or "",
        )
    )
    for number, row in enumerate(rows, start=1):
        row["id"] = f"E{number}"
    if rows:
        case.insert("evidence", pl.DataFrame(rows, infer_schema_length=None))


def _span(case: Case) -> Span | None:
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    return Span(*rows[0]) if rows else None


def _whole(case: Case) -> Span | None:
    first, last = case.rows(
        "SELECT min(first_ns), max(last_ns) FROM source WHERE part = 'incident'"
    )[0]
    has_baseline = case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'")
    return Span(first, last, 0) if has_baseline and first is not None else None


def measure(signal: Signal, span: Span) -> Move | None:
    """The move of a signal, None when a side has too few points.

    Captures are taken when somebody was alarmed, often after the window: a capture of the
    incident side stands for the incident whenever it was made.
    """
    capture = signal.source in ("torch_profiler", "gpu")
    observed = (
        signal.incident if capture else signal.incident.between(span.start_ns, span.end_ns)
    )
    fewest = 1 if capture else _MIN_POINTS
    if len(observed.ts_ns) < fewest:
        return None
    sides = [("baseline", signal.baseline)]
    if not capture:
        sides.append(("lead-in", _lead_in(signal.incident, span)))
    usable = [(name, points) for name, points in sides if len(points.ts_ns) >= fewest]
    if not usable:
        return None
    measured = [(strength(signal, p, observed), name, p) for name, p in usable]
    g, name, reference = min(measured, key=lambda m: abs(m[0]))
    if len({np.sign(m[0]) for m in measured if abs(m[0]) >= FLAT}) > 1:
        g = 0.0  # up against one reference and down against the other: it drifts
    return Move(signal, name, reference, observed, g)


def _lead_in(points: Points, span: Span) -> Points:
    """The points before the window, well before it where there are enough.

    A fault that grows slowly begins before anybody feels it.
    """
    clear = span.start_ns - max(span.margin_ns, (span.end_ns - span.start_ns) // _CLEARANCE)
    early = points.pick(points.ts_ns < clear)
    if len(early.ts_ns) >= _MIN_EARLY:
        return early
    return points.pick(points.ts_ns < span.start_ns - span.margin_ns)


def strength(signal: Signal, reference: Points, observed: Points) -> float:
    """g = tanh(z / 4) × |Cliff's delta|, from -1 to 1; for rare events by their numbers alone.

    Points are pooled into some eight blocks of neighbours first: the question is whether the
    level moved, and single requests overlap whatever the level does.
    """
    known = meanings().get(signal.role)
    if known and known.events:
        return float(np.tanh(poisson_z(reference, observed) / 4.0))
    size = max(1, min(len(reference.ts_ns), len(observed.ts_ns)) // _BLOCKS)
    before, after = reference.blocks(size).values, observed.blocks(size).values
    centre = float(np.mean(before)) if len(before) < 20 else float(np.median(before))
    spread = max(
        1.4826 * float(np.median(np.abs(before - np.median(before)))),
        0.5 * float(np.std(before)),
        _floor(signal, centre),
    )
    shift = (trimmed_mean(after) - trimmed_mean(before)) / spread
    return float(np.tanh(shift / 4.0)) * abs(cliffs_delta(before, after))


def poisson_z(reference: Points, observed: Points) -> float:
    """Deviation of an event count from what the reference's rate lets expect (Anscombe's root)."""
    seconds_before, seconds_after = float(reference.den.sum()), float(observed.den.sum())
    if not seconds_before or not seconds_after:
        return 0.0
    share = seconds_after / seconds_before
    root = (
        np.sqrt(float(observed.num.sum()) + 0.375),
        np.sqrt(share * (float(reference.num.sum()) + 0.375)),
    )
    return float(2.0 * (root[0] - root[1]) / np.sqrt(1.0 + share))


def trimmed_mean(values: Values) -> float:
    """Mean without the outer tenths on both sides."""
    if len(values) < 10:
        return float(np.mean(values))
    cut = len(values) // 10
    return float(np.mean(np.sort(values)[cut : len(values) - cut]))


def _floor(signal: Signal, centre: float) -> float:
    known = meanings().get(signal.role)
    if known is None:
        return max(_SHARE_FLOOR * abs(centre), 1e-12)
    return max(known.spread * abs(centre), known.least)


def cliffs_delta(before: Values, after: Values) -> float:
    """P(after > before) - P(after < before), from -1 to 1; by sorting, so that size does not matter."""
    ordered = np.sort(before)
    above = np.searchsorted(ordered, after, side="left").sum()
    below = (len(before) - np.searchsorted(ordered, after, side="right")).sum()
    return float((above - below) / (len(before) * len(after)))


def interval(reference: Points, observed: Points, seed: int) -> tuple[float, float] | None:
    """95 % bootstrap interval of the log ratio, resampling blocks of neighbouring points."""
    if len(reference.ts_ns) < 4 or len(observed.ts_ns) < 4:
        return None
    random = np.random.default_rng(seed)
    sides = []
    for points in (reference, observed):
        n = len(points.ts_ns)
        block = max(1, round(n ** (1 / 3)))
        starts = random.integers(0, n, (_RESAMPLES, -(-n // block)))
        index = ((starts[:, :, None] + np.arange(block)) % n).reshape(_RESAMPLES, -1)[:, :n]
        total = points.den[index].sum(axis=1)
        sides.append(points.num[index].sum(axis=1) / np.where(total > 0, total, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(sides[1] / sides[0])
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) < _RESAMPLES // 2:
        return None
    low, high = np.percentile(ratio, (2.5, 97.5))
    return float(low), float(high)


def _kept(moves: Sequence[Move]) -> list[Move]:
    """All moves of roles that causes speak of, and the strongest others."""
    known = [m for m in moves if m.signal.known]
    others = sorted((m for m in moves if not m.signal.known), key=lambda m: -abs(m.strength))
    return known + [m for m in others[:KEPT_UNKNOWN] if abs(m.strength) >= FLAT]


def _row(move: Move, span: Span) -> dict[str, Any]:
    signal = move.signal
    known = meanings().get(signal.role)
    before, after = move.reference.pooled(), move.observed.pooled()
    seed = zlib.crc32(f"{signal.source}/{signal.role}/{signal.service}".encode()) % 2**31
    ends = interval(move.reference, move.observed, seed)
    return {
        "source": signal.source, "role": signal.role if known else None,
        "service": signal.service or None, "subject": signal.role.removeprefix("metric:"),
        "statement": _statement(move, before, after), "unit": known.unit if known else "as exported",
        "direction": move.direction, "reference": before, "observed": after, "effect": move.effect,
        "effect_low": ends[0] if ends else None, "effect_high": ends[1] if ends else None,
        "strength": move.strength, "n_reference": len(move.reference.ts_ns),
        "n_observed": len(move.observed.ts_ns), "onset_ns": _onset(move, span),
        "sql": _sql(move, span), "seed": seed if ends else None,
    }  # fmt: skip


def _statement(move: Move, before: float, after: float) -> str:
    signal = move.signal
    known = meanings().get(signal.role)
    what = known.meaning if known else printable(signal.role.removeprefix("metric:"), 80)
    where = f" of {printable(signal.service, 60)}" if signal.service else ""
    verb = {"up": "rose", "down": "fell", "flat": "stayed"}[move.direction]
    return f"{what}{where} {verb}: {before:.4g} → {after:.4g} against the {move.side}"


def _onset(move: Move, span: Span) -> int | None:
    """Start of the first two neighbouring points outside of the reference's range."""
    if move.direction == "flat" or len(move.reference.ts_ns) < _MIN_POINTS:
        return None
    low, high = np.percentile(move.reference.values, (1, 99))
    since = move.signal.incident
    since = since.pick(since.ts_ns >= span.start_ns - 2 * span.margin_ns)
    out = since.values > high if move.strength > 0 else since.values < low
    both = np.flatnonzero(out[:-1] & out[1:])
    return int(since.ts_ns[both[0]]) if len(both) else None


def _sql(move: Move, span: Span) -> str:
    """The query that gives (reference, observed, n_reference, n_observed) again."""
    signal = move.signal
    inside = f"part = 'incident' AND ts_ns BETWEEN {span.start_ns} AND {span.end_ns}"
    if signal.source in ("torch_profiler", "gpu"):
        inside = "part = 'incident'"
    outside = (
        "part = 'baseline'"
        if move.side == "baseline"
        else f"part = 'incident' AND ts_ns <= {int(move.reference.ts_ns[-1])}"
    )
    where = " AND ".join(
        f"{column} = {quoted(value)}"
        for column, value in (
            ("source", signal.source),
            ("role", signal.role),
            ("service", signal.service),
        )
    )
    return (
        f"SELECT sum(num) FILTER ({outside}) / sum(den) FILTER ({outside}) AS reference,\n"
        f"    sum(num) FILTER ({inside}) / sum(den) FILTER ({inside}) AS observed,\n"
        f"    count(*) FILTER ({outside}) AS n_reference,\n"
        f"    count(*) FILTER ({inside}) AS n_observed\n"
        f"FROM signal_value\n"
        f"WHERE {where} AND num IS NOT NULL AND den > 0 AND isfinite(num)"
    )


def quoted(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _change_rows(case: Case) -> list[dict[str, Any]]:
    rows = []
    for key, subject, kind, before, after, ts_ns in case.rows(
        "SELECT id, subject, kind, before, after, ts_ns FROM change ORDER BY ts_ns, id"
    ):
        what = " → ".join(printable(x, 80) for x in (before, after) if x)
        rows.append(
            {
                "source": "change",
                "role": "change",
                "service": None,
                "subject": key,
                "statement": f"{printable(kind, 20)} of {printable(subject, 80)}: {what or 'no detail'}",
                "unit": "event",
                "direction": "event",
                "reference": None,
                "observed": None,
                "effect": None,
                "effect_low": None,
                "effect_high": None,
                "strength": 0.0,
                "n_reference": 0,
                "n_observed": 1,
                "onset_ns": ts_ns,
                "seed": None,
                "sql": "SELECT NULL AS reference, NULL AS observed, 0 AS n_reference, count(*) AS n_observed\n"
                f"FROM change\nWHERE id = {quoted(key)} AND ts_ns = {ts_ns}",
            }
        )
    return rows


_SPREAD_FLOOR = 0.01


def _write_suspects(case: Case, moves: Sequence[Move], groups: Sequence[Move]) -> None:
    """Services and metrics by how far they left their own range, whatever they are."""
    scored = [
        (
            rank_score(m),
            m.signal.service,
            m.signal.subject or m.signal.role.removeprefix("metric:"),
        )
        for m in _distinct([*moves, *groups])
        if m.signal.role != "span_time"
    ]
    scored.sort(key=lambda row: (-row[0], row[1], row[2]))
    rows = [
        {"rank": i + 1, "service": service or None, "metric": metric, "score": score}
        for i, (score, service, metric) in enumerate(scored[:200])
    ]
    if rows:
        case.insert("suspect", pl.DataFrame(rows, infer_schema_length=None))


def _distinct(moves: Iterable[Move]) -> list[Move]:
    return [m for m in moves if len(m.reference.ts_ns) >= _MIN_POINTS]


def rank_score(move: Move) -> float:
    """Shift of the median on the reference's scale with a floor of 1 % of its level."""
    before, after = move.reference.values, move.observed.values
    centre = float(np.median(before))
    spread = max(float(np.std(before)), _SPREAD_FLOOR * abs(float(np.mean(before))), 1e-9)
    return abs(float(np.median(after)) - centre) / spread


__all__ = [
    "FLAT",
    "Move",
    "Span",
    "cliffs_delta",
    "gather",
    "interval",
    "measure",
    "quoted",
    "strength",
]
