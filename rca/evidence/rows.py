"""A move as a row of evidence, with the query that gives its figures again."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from rca.evidence.devices import OneDevice
from rca.evidence.moves import MIN_POINTS, Move, Span, interval
from rca.plain import printable
from rca.signals import CAPTURES, Signal, groups, meanings


def row(move: Move, span: Span, more: str = "") -> dict[str, Any]:
    """A move as a row of the table evidence, its id left out; `more` ends the sentence.

    A group of groups.toml has no role; its subject names it, see `rca.signals.group_of`.
    """
    signal = move.signal
    known, group = meanings().get(signal.role), groups().get(signal.role)
    told = known or group
    before, after = move.reference.pooled(), move.observed.pooled()
    ends = ends_of(move)
    return {
        "source": signal.source, "role": signal.role if known else None,
        "service": signal.service or None, "subject": _subject(signal),
        "device": signal.subject if isinstance(move, OneDevice) else None,
        "statement": _statement(move) + more, "unit": told.unit if told else "as exported",
        "direction": move.direction, "reference": before, "observed": after, "effect": move.effect,
        "effect_low": ends[0] if ends else None, "effect_high": ends[1] if ends else None,
        "strength": move.strength, "n_reference": len(move.reference.ts_ns),
        "n_observed": len(move.observed.ts_ns), "onset_ns": _onset(move, span),
        "sql": _sql(move, span), "seed": _seed(signal) if ends else None,
    }  # fmt: skip


def ends_of(move: Move) -> tuple[float, float] | None:
    """Ends of the 95 % interval of the effect, the same each time; None for too few points."""
    return interval(move.reference, move.observed, _seed(move.signal))


def _seed(signal: Signal) -> int:
    names = [signal.source, signal.role, signal.service]
    names += [signal.subject] if signal.role in groups() else []
    return zlib.crc32("/".join(names).encode()) % 2**31


def _subject(signal: Signal) -> str:
    if signal.role not in groups():
        return signal.role.removeprefix("metric:")
    return signal.subject if signal.source == "log" else f"{signal.role}:{signal.subject}"


def _statement(move: Move) -> str:
    """What moved, where, and against what; the figures stand in columns of their own."""
    signal = move.signal
    known, group = meanings().get(signal.role), groups().get(signal.role)
    if group:
        what = group.words.format(printable(signal.subject, 120))
    else:
        what = known.meaning if known else printable(signal.role.removeprefix("metric:"), 80)
    where = f" of {printable(signal.service, 60)}" if signal.service else ""
    where += move.words if isinstance(move, OneDevice) else ""
    how = {
        "up": "rose against the", "down": "fell against the", "flat": "stayed within the spread of the",
        "new": "appeared, against none in the", "gone": "stopped, against the",
    }[move.direction]  # fmt: skip
    return f"{what}{where} {how} {move.side}"


def _onset(move: Move, span: Span) -> int | None:
    """Start of the first two neighbouring points outside of the reference's range; of something new the first."""
    if move.direction == "flat" or len(move.reference.ts_ns) < MIN_POINTS:
        return None
    low, high = np.percentile(move.reference.values, (1, 99))
    since = move.signal.incident
    since = since.pick(since.ts_ns >= span.start_ns - 2 * span.margin_ns)
    out = since.values > high if move.strength > 0 else since.values < low
    found = np.flatnonzero(out if move.direction == "new" else out[:-1] & out[1:])
    return int(since.ts_ns[found[0]]) if len(found) else None


def _sql(move: Move, span: Span) -> str:
    """The query that gives (reference, observed, n_reference, n_observed) again."""
    signal = move.signal
    grouped, by_device = signal.role in groups(), isinstance(move, OneDevice)
    inside = f"part = 'incident' AND ts_ns BETWEEN {span.start_ns} AND {span.end_ns}"
    if signal.source in CAPTURES:
        inside = "part = 'incident'"
    outside = "part = 'baseline'"
    if move.side != "baseline":
        last = int(move.reference.ts_ns[-1])
        outside = f"part = 'incident' AND ts_ns <= {last}" + "".join(
            f" AND ts_ns NOT BETWEEN {start} AND {end}"
            for start, end in span.others
            if start <= last
        )
    view = "group_value" if grouped else "device_signal" if by_device else "signal_value"
    where = " AND ".join(
        f"{column} = {quoted(value)}"
        for column, value in (
            ("source", signal.source),
            ("role", signal.role),
            ("service", signal.service),
            ("subject", signal.subject if grouped or by_device else None),
        )
        if value is not None
    )
    return (
        f"SELECT sum(num) FILTER ({outside}) / sum(den) FILTER ({outside}) AS reference,\n"
        f"    sum(num) FILTER ({inside}) / sum(den) FILTER ({inside}) AS observed,\n"
        f"    count(*) FILTER ({outside}) AS n_reference,\n"
        f"    count(*) FILTER ({inside}) AS n_observed\n"
        f"FROM {view}\n"
        f"WHERE {where} AND num IS NOT NULL AND den > 0 AND den < 1e150 AND abs(num) < 1e150"
    )


def quoted(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
