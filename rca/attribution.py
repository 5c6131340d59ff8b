"""Where the added latency went, in parts that add up, the rest shown as residual."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import polars as pl

from rca.case import Case

_REQUESTS = """
SELECT sum(ns) FILTER ({before}) / (SELECT count(*) FROM request WHERE {before_request}) AS reference,
    sum(ns) FILTER ({inside}) / (SELECT count(*) FROM request WHERE {inside_request}) AS observed,
    (SELECT count(*) FROM request WHERE {before_request}) AS n_reference,
    (SELECT count(*) FROM request WHERE {inside_request}) AS n_observed
FROM latency_part
WHERE piece = '{piece}'"""
_FEWEST_REQUESTS = 10


class _Part(NamedTuple):
    piece: str
    reference: float
    observed: float
    n_reference: int
    n_observed: int
    sql: str


@dataclass(frozen=True)
class _Sides:
    before: str
    inside: str
    name: str
    n_before: int = 0
    n_inside: int = 0

    def of_requests(self) -> tuple[str, str]:
        return self.before.replace("ts_ns", "start_ns"), self.inside.replace(
            "ts_ns", "start_ns"
        )


def attribute(case: Case) -> None:
    """Write attribution, and an evidence row for each part.

    Means decompose exactly, quantiles do not: all figures are means over requests. Requests whose
    trace has no engine span are one part of their own, since nothing is known of where they waited.
    """
    case.clear(["attribution"])
    sides = _sides(case)
    if sides is None:
        return
    first = int(case.scalar("SELECT count(*) FROM evidence")) + 1
    found = [
        _Part(
            piece,
            (before or 0.0) / sides.n_before,
            (inside or 0.0) / sides.n_inside,
            sides.n_before,
            sides.n_inside,
            _sql(sides, piece),
        )
        for piece, before, inside in case.rows(
            f"SELECT piece, sum(ns) FILTER ({sides.before}), sum(ns) FILTER ({sides.inside}) "
            "FROM latency_part GROUP BY piece ORDER BY piece"
        )
    ]
    total = next(f for f in found if f.piece == "end to end")
    parts = [f for f in found if f.piece != "end to end"]
    parts.sort(key=lambda f: (-abs(f.observed - f.reference), f.piece))
    added = total.observed - total.reference
    rows, evidence = [], []
    for number, part in enumerate([*parts, total]):
        key = f"E{first + number}"
        evidence.append(_evidence(key, part, sides))
        if part is not total:
            rows.append(_row(part.piece, part.reference, part.observed, added, key))
    before = total.reference - sum(p.reference for p in parts)
    after = total.observed - sum(p.observed for p in parts)
    rows.append(_row("residual", before, after, added, evidence[-1]["id"]))
    case.insert("attribution", pl.DataFrame(rows, infer_schema_length=None))
    case.insert("evidence", pl.DataFrame(evidence, infer_schema_length=None))


def _sides(case: Case) -> _Sides | None:
    """Conditions for reference and window; None when a side has too few requests."""
    rows = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not rows:
        return None
    start, end, margin = rows[0]
    inside = f"part = 'incident' AND ts_ns BETWEEN {start} AND {end}"
    for name, before in (
        ("baseline", "part = 'baseline'"),
        ("lead-in", f"part = 'incident' AND ts_ns < {start - margin}"),
    ):
        sides = _Sides(before, inside, name)
        counts = [
            case.scalar(f"SELECT count(*) FROM request WHERE {w}") for w in sides.of_requests()
        ]
        if min(counts) >= _FEWEST_REQUESTS:
            return replace(sides, n_before=counts[0], n_inside=counts[1])
    return None


def _sql(sides: _Sides, piece: str) -> str:
    before, inside = sides.of_requests()
    return _REQUESTS.format(
        before=sides.before, inside=sides.inside, before_request=before, inside_request=inside,
        piece=piece.replace("'", "''"),
    ).strip()  # fmt: skip


def _row(
    part: str, reference: float, observed: float, added: float, key: str
) -> dict[str, Any]:
    delta = observed - reference
    return {
        "part": part, "reference_ns": reference, "observed_ns": observed, "delta_ns": delta,
        "share": delta / added if added > 0 else None, "evidence": key,
    }  # fmt: skip


def _evidence(key: str, part: _Part, sides: _Sides) -> dict[str, Any]:
    piece, reference, observed, n_reference, n_observed, sql = part
    both = reference > 0 and observed > 0
    return {
        "id": key, "source": "trace", "role": None, "service": None, "subject": f"latency:{piece}",
        "statement": f"mean time of a request in {piece}, against the {sides.name}",
        "unit": "ns", "direction": "up" if observed > reference else "down", "reference": reference,
        "observed": observed, "effect": math.log(observed / reference) if both else None,
        "effect_low": None, "effect_high": None, "strength": 0.0, "n_reference": n_reference,
        "n_observed": n_observed, "onset_ns": None, "sql": sql, "seed": None,
    }  # fmt: skip
