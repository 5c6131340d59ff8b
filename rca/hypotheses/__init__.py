"""Causes scored on the evidence of a case, with a calibrated confidence.

`unknown` takes part: where no cause fits well, none is sure. Two causes may be at work at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rca import catalogue
from rca.case import Case
from rca.catalogue import Cause
from rca.hypotheses import confidence, contributing
from rca.hypotheses.change_fit import (
    Change,
    changes,
    engines,
    half_life,
    is_engine,
    slow_dependencies,
)
from rca.hypotheses.scoring import Observed, Scored, agreement, rule_out, score
from rca.weights import settings

_KEPT = 12


@dataclass(frozen=True)
class Moved:
    """One row of evidence, as ranking needs it."""

    id: str
    role: str
    strength: float
    source: str
    service: str | None


@dataclass(frozen=True)
class Facts:
    """All that causes are ranked by.

    Attributes:
        engines: Services that are inference engines.
        called: Services that others call, engines left out.
        slow: Services whose calls have become slow.
        half_life_s: Half-life of a change's weight.
        shares: Parts of the added latency with their shares of it; empty when no trace tells.
    """

    moved: tuple[Moved, ...]
    engines: frozenset[str]
    called: frozenset[str]
    slow: frozenset[str]
    changes: tuple[Change, ...]
    half_life_s: float
    shares: tuple[tuple[str, float], ...] = ()


def rank(case: Case, without: frozenset[str] = frozenset()) -> None:
    """Write hypothesis: all causes with a positive score, at least three, best first.

    Args:
        without: Causes that are left out.
    """
    case.clear(["hypothesis"])
    if not case.scalar("SELECT count(*) FROM incident_window WHERE status = 'incident'"):
        return
    found = facts(case)
    observed = observe(found)
    causes = catalogue.of(case).values()
    scored = judge(found, [c for c in causes if c.id not in without])
    kept = [s for s in scored if s.score > 0.05][:_KEPT]
    rows = [
        _row(i + 1, s, scored, observed, found.shares) for i, s in enumerate(kept or scored[:3])
    ]
    case.insert("hypothesis", pl.DataFrame(rows, infer_schema_length=None))
    _record_guard(case, confidence.guarded(scored, observed))


def facts(case: Case) -> Facts:
    """What the case holds that causes are ranked by; it must have an incident."""
    moved = tuple(
        Moved(*row)
        for row in case.rows(
            "SELECT id, role, strength, source, service FROM evidence "
            "WHERE role IS NOT NULL AND source <> 'change' ORDER BY abs(strength) DESC, id"
        )
    )
    known = engines(case)
    called = _services(
        case,
        "SELECT service FROM evidence WHERE role IN "
        "('dependency_time', 'downstream_latency', 'downstream_rate', 'calls_per_request')",
    )
    return Facts(
        moved, known, frozenset(s for s in called - known if not is_engine(s)),
        slow_dependencies(case), tuple(changes(case)), half_life(case), _shares(case),
    )  # fmt: skip


def _shares(case: Case) -> tuple[tuple[str, float], ...]:
    rows = case.rows(
        "SELECT part, share FROM attribution WHERE part <> 'residual' AND share IS NOT NULL"
    )
    return tuple((part, share) for part, share in rows)


def _services(case: Case, query: str) -> frozenset[str]:
    return frozenset(s for (s,) in case.rows(query) if s)


def observe(found: Facts) -> dict[str, Observed]:
    """The strongest evidence of each role, read for the service that it is measured at."""
    seen: dict[str, Observed] = {}
    waiting = _waits_for_connections(found)
    for one in found.moved:
        role = _role_at(one, found)
        if role in _TIME_OF_CALLED and one.service in waiting:
            continue
        if role is not None:
            seen.setdefault(role, Observed(one.id, role, one.strength, one.source))
    return seen


_TIME_OF_CALLED = ("dependency_time", "downstream_latency", "callee_time")


def _waits_for_connections(found: Facts) -> frozenset[str | None]:
    """Called services that wait for connections of their own: their time says nothing of their work.

    What they call has a time of its own, and is the one that is slow or not.
    """
    least = settings()["guard_move"]
    return frozenset(
        one.service
        for one in found.moved
        if one.role in ("pool_waiters", "pool_wait")
        and one.strength >= least
        and one.service in found.called
    )


def _role_at(one: Moved, found: Facts) -> str | None:
    """What a role says at this service; None when it says nothing there."""
    numbers = settings()
    if (
        one.role in numbers["engine_only"]
        and found.engines
        and one.service not in found.engines
    ):
        return None
    if one.role in numbers["dependency_only"] and (
        one.service in found.engines or is_engine(one.service)
    ):
        return None
    if one.service in found.called:
        renamed: str | None = numbers["at_called_service"].get(one.role, one.role)
        return renamed or None
    return one.role


def judge(found: Facts, causes: Iterable[Cause]) -> list[Scored]:
    """All causes, best first, with confidence; two that are at work together stand first."""
    observed = observe(found)

    def one(cause: Cause, beside: Cause | None = None) -> Scored:
        told = score(cause, observed, found.changes, found.half_life_s, found.slow, beside)
        if elsewhere(cause, found.shares):
            rule_out(told)
        return told

    scored = [one(c) for c in causes]
    _let_generic_ones_yield(scored)
    scored.sort(key=lambda s: (-s.score, s.cause.id))
    together = contributing.pair(scored, observed, one)
    if together is not None:
        ids = {s.cause.id for s in together}
        for s in together:
            s.contributing = True
        scored = [*together, *(s for s in scored if s.cause.id not in ids)]
    confidence.calibrate(scored, observed)
    return scored


def elsewhere(cause: Cause, shares: Sequence[tuple[str, float]]) -> bool:
    """Whether a cause acts on calls to other services while the latency was added inside of the engine.

    A slow call cannot make the engine's queue, prefill and decode longer, nor its first token late. That it
    moved too, by hardly any of the added latency, is another trouble or none.
    """
    numbers = settings()
    table, inside = numbers["part_roles"], set(numbers["engine_parts"])
    makes = {r for r, (sign, _) in cause.expected.items() if sign}
    longer = {part for part, roles in table.items() if makes & set(roles)}
    delays_first = cause.expected.get("ttft", (0, 0.0))[0] > 0
    if delays_first or "calls" not in longer or longer & inside:
        return False
    share = explained_share(cause, shares)
    within = sum(s for part, s in shares if part in inside)
    return (
        share is not None
        and share < numbers["least_share"]
        and within >= numbers["mostly_inside"]
    )


def _let_generic_ones_yield(scored: Sequence[Scored]) -> None:
    """A generic cause is what remains where none fits that shows a mark of its own."""
    numbers = settings()
    fitting = [s for s in scored if s.score >= numbers["guard_score"]]
    if any(s.marked and not s.cause.generic for s in fitting):
        for one in scored:
            if one.cause.generic:
                one.score = min(one.score, numbers["unknown_score"])


def _record_guard(case: Case, passed: bool) -> None:
    case.rows("DELETE FROM provenance WHERE key = 'guard'")
    row = {"key": "guard", "value": "passed" if passed else "not passed"}
    case.insert("provenance", pl.DataFrame([row]))


def explained_share(cause: Cause, shares: Sequence[tuple[str, float]]) -> float | None:
    """Share of the added latency in the parts that the cause makes longer, None without parts."""
    if not shares:
        return None
    makes = {r for r, (sign, _) in cause.expected.items() if sign}
    table = settings()["part_roles"]
    total = sum(
        share
        for part, share in shares
        if share > 0 and makes & set(table["calls" if part.startswith("calls of ") else part])
    )
    return min(total, 1.0)


def _row(
    number: int,
    one: Scored,
    scored: Sequence[Scored],
    observed: Mapping[str, Observed],
    shares: Sequence[tuple[str, float]],
) -> dict[str, Any]:
    rivals = [s for s in scored if s is not one][:3]
    gap = sum(w for _, w in one.missing)
    have = sum(w for r, (sign, w) in one.cause.expected.items() if sign and r in observed)
    missing = [
        {"role": role, "largest_change": round(weight / (1.0 + have + gap), 3)}
        for role, weight in sorted(one.missing, key=lambda m: (-m[1], m[0]))
    ]
    ids = _by_weight(one, observed) + ([one.change.evidence] if one.change else [])
    return {
        "rank": number, "cause": one.cause.id, "class": one.cause.cls, "score": one.score,
        "confidence": one.confidence, "explained_share": explained_share(one.cause, shares), "evidence": json.dumps(ids),
        "contradicting": json.dumps(one.contradicting),
        "competitors": json.dumps([_rivalry(one, r, observed) for r in rivals]),
        "missing": json.dumps(missing), "contributing": one.contributing, "change_id": one.change.id if one.change else None,
    }  # fmt: skip


def _by_weight(one: Scored, observed: Mapping[str, Observed]) -> list[str]:
    """Supporting evidence, what weighs most first."""
    weight = {
        o.id: abs(o.strength) * one.cause.expected[r][1] if one.cause.expected[r][0] else 0.0
        for r, o in observed.items()
        if r in one.cause.expected
    }
    return sorted(one.supporting, key=lambda e: -weight.get(e, 0.0))


def _rivalry(one: Scored, rival: Scored, observed: Mapping[str, Observed]) -> dict[str, Any]:
    """The evidence on which two causes differ most."""
    difference = {
        role: abs(_pull(one.cause, role, o) - _pull(rival.cause, role, o))
        for role, o in observed.items()
    }
    decisive = max(difference, key=lambda r: (difference[r], r), default=None)
    told = next((x for x in rival.cause.lookalikes if x.cause == one.cause.id), None)
    return {
        "cause": rival.cause.id,
        "score_gap": round(one.score - rival.score, 3),
        "decided_by": observed[decisive].id if decisive and difference[decisive] > 0 else None,
        "because": told.because if told else None,
    }


def _pull(cause: Cause, role: str, seen: Observed) -> float:
    sign, weight = cause.expected.get(role, (0, 0.0))
    return weight * agreement(sign, seen.strength, settings()) if weight else 0.0
