"""What moved between the healthy reference and the incident window, as rows with their own query."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from rca.case import Case
from rca.evidence.devices import OneDevice, worst
from rca.evidence.moves import (
    FLAT,
    MIN_POINTS,
    Move,
    Span,
    incident_span,
    interval,
    measure,
    whole_span,
)  # fmt: skip
from rca.plain import printable
from rca.signals import load, meanings

KEPT_UNKNOWN = 20


def gather(case: Case) -> None:
    """Write evidence for the first incident window; changes are evidence too.

    Without an incident the whole of the incident's recordings is compared with the baseline:
    what moved most is worth knowing whatever the status.
    """
    case.clear(["evidence"])
    span = incident_span(case) or whole_span(case)
    if span is None:
        return
    moves = worst(case, span, (m for s in load(case) if (m := measure(s, span))))
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
        "device": signal.subject if isinstance(move, OneDevice) else None,
        "statement": _statement(move), "unit": known.unit if known else "as exported",
        "direction": move.direction, "reference": before, "observed": after, "effect": move.effect,
        "effect_low": ends[0] if ends else None, "effect_high": ends[1] if ends else None,
        "strength": move.strength, "n_reference": len(move.reference.ts_ns),
        "n_observed": len(move.observed.ts_ns), "onset_ns": _onset(move, span),
        "sql": _sql(move, span), "seed": seed if ends else None,
    }  # fmt: skip


def _statement(move: Move) -> str:
    """What moved, where, and against what; the figures stand in columns of their own."""
    signal = move.signal
    known = meanings().get(signal.role)
    what = known.meaning if known else printable(signal.role.removeprefix("metric:"), 80)
    where = f" of {printable(signal.service, 60)}" if signal.service else ""
    where += move.words if isinstance(move, OneDevice) else ""
    how = {
        "up": "rose against the", "down": "fell against the", "flat": "stayed within the spread of the",
    }[move.direction]  # fmt: skip
    return f"{what}{where} {how} {move.side}"


def _onset(move: Move, span: Span) -> int | None:
    """Start of the first two neighbouring points outside of the reference's range."""
    if move.direction == "flat" or len(move.reference.ts_ns) < MIN_POINTS:
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
            *((("subject", signal.subject),) if isinstance(move, OneDevice) else ()),
        )
    )
    return (
        f"SELECT sum(num) FILTER ({outside}) / sum(den) FILTER ({outside}) AS reference,\n"
        f"    sum(num) FILTER ({inside}) / sum(den) FILTER ({inside}) AS observed,\n"
        f"    count(*) FILTER ({outside}) AS n_reference,\n"
        f"    count(*) FILTER ({inside}) AS n_observed\n"
        f"FROM {'device_signal' if isinstance(move, OneDevice) else 'signal_value'}\n"
        f"WHERE {where} AND num IS NOT NULL AND den > 0 AND den < 1e150 AND abs(num) < 1e150"
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
                "device": None,
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
