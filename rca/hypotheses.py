"""Causes scored on the evidence, with a calibrated confidence, and `unknown` when nothing fits.

Each cause expects roles to rise, fall or stay. The score is the weighted agreement of the evidence
with that, less strong moves that the cause does not speak of, plus a change that fits in kind,
words, target and time. Roles that no source could show count a little against a cause, and are
listed with what they could still change. Confidence is a softmax over all scores in which
`unknown` takes part.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from rca.case import Case
from rca.catalogue import Cause, load
from rca.signals import meanings

FLAT = 0.25
_ENGINE_ROLES = "('running', 'waiting', 'kv_usage', 'itl', 'preemptions')"
_ENGINE_WORDS = re.compile(
    r"engine|vllm|sglang|triton|tgi|llm|inference-server|model-server", re.IGNORECASE
)
_BUILD_WORDS = re.compile(r"image|version|digest|build|sha256|v?[0-9]+\.[0-9]+", re.IGNORECASE)
_TRAFFIC_WORDS = re.compile(
    r"tenant|flag|quota|rate|traffic|campaign|frontend|gateway", re.IGNORECASE
)


@cache
def settings() -> dict[str, Any]:
    """The numbers of scoring.toml."""
    return tomllib.loads(files("rca").joinpath("scoring.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Observed:
    """The strongest evidence of one role."""

    id: str
    role: str
    strength: float
    source: str


@dataclass(frozen=True)
class Change:
    """A change and its evidence id; `age_s` is the time from it to the onset."""

    id: str
    evidence: str
    kind: str
    subject: str
    text: str
    age_s: float


@dataclass
class Scored:
    """One cause with what speaks for and against it."""

    cause: Cause
    score: float
    supporting: list[str] = field(default_factory=list)
    contradicting: list[str] = field(default_factory=list)
    missing: list[tuple[str, float]] = field(default_factory=list)
    change: Change | None = None
    confidence: float = 0.0


def rank(case: Case, extra_causes: Path | None = None) -> None:
    """Write hypothesis: all causes with a positive score, at least three, best first."""
    case.clear(["hypothesis"])
    if not case.scalar("SELECT count(*) FROM incident_window WHERE status = 'incident'"):
        return
    causes = load(extra_causes)
    observed = observe(case)
    changes = _changes(case)
    half_life = _half_life(case)
    slow = _slow_dependencies(case)
    scored = [score(c, observed, changes, half_life, slow) for c in causes.values()]
    scored.sort(key=lambda s: (-s.score, s.cause.id))
    calibrate(scored)
    kept = [s for s in scored if s.score > 0.05][:12]
    shares = case.rows(
        "SELECT part, share FROM attribution WHERE part <> 'residual' AND share IS NOT NULL"
    )
    rows = [_row(i + 1, s, scored, observed, shares) for i, s in enumerate(kept or scored[:3])]
    case.insert("hypothesis", pl.DataFrame(rows, infer_schema_length=None))
    _record_guard(case, scored[0], observed)


def _record_guard(case: Case, best: Scored, observed: dict[str, Observed]) -> None:
    """Whether the best cause may carry a rollback: fit well, and the strongest moves explained."""
    passed = best.score >= settings()["guard_score"] and explains_strongest(best, observed)
    case.rows("DELETE FROM provenance WHERE key = 'guard'")
    row = {"key": "guard", "value": "passed" if passed else "not passed"}
    case.insert("provenance", pl.DataFrame([row]))


def observe(case: Case) -> dict[str, Observed]:
    """The strongest evidence of each role, engine-only roles from the engine's services only."""
    engines = {
        s
        for (s,) in case.rows(
            f"SELECT DISTINCT service FROM series_role WHERE role IN {_ENGINE_ROLES}"
        )
    }
    engine_only = set(settings()["engine_only"])
    found: dict[str, Observed] = {}
    for key, role, strength, source, service in case.rows(
        "SELECT id, role, strength, source, service FROM evidence "
        "WHERE role IS NOT NULL AND source <> 'change' ORDER BY abs(strength) DESC, id"
    ):
        if role in engine_only and engines and service not in engines:
            continue
        if role in (
            "downstream_latency",
            "downstream_rate",
            "calls_per_request",
            "downstream_errors",
        ) and (service in engines or _ENGINE_WORDS.search(service or "")):
            continue
        if role == "gateway_latency" and found.get(role):
            continue
        found.setdefault(role, Observed(key, role, strength, source))
    return found


def _slow_dependencies(case: Case) -> frozenset[str]:
    """Services whose calls have become slow, as their callers or their spans say."""
    return frozenset(
        service
        for (service,) in case.rows(
            "SELECT DISTINCT service FROM evidence WHERE strength >= ? AND service IS NOT NULL "
            "AND role IN ('dependency_time', 'downstream_latency', 'downstream_errors', 'network_gap')",
            (FLAT,),
        )
    )


def score(
    cause: Cause,
    observed: dict[str, Observed],
    changes: Sequence[Change],
    half_life_s: float,
    slow: frozenset[str] = frozenset(),
) -> Scored:
    """Agreement of the evidence with one cause; 1 is perfect, 0 says nothing."""
    numbers = settings()
    result = Scored(cause, 0.0)
    total, weights = 0.0, 1.0
    for role, (sign, told) in cause.expected.items():
        weight = told * numbers["generic_weight"] if role in numbers["generic"] else told
        seen = observed.get(role)
        if seen is None:
            if sign:
                result.missing.append((role, weight))
                weights += numbers["missing"] * weight
            continue
        total += weight * _agreement(sign, seen.strength, numbers)
        weights += weight if sign else numbers["flat_bonus"] * weight
        _file_evidence(result, sign, seen)
    for role, seen in observed.items():
        if _unexplained(role, seen, cause, numbers):
            total -= numbers["unexplained"] * abs(seen.strength)
            result.contradicting.append(seen.id)
    result.change, fit = _best_change(cause, changes, half_life_s, slow)
    result.score = total / weights + numbers["change"] * fit
    if changes and fit == 0:
        kind = "required" if cause.change.required else cause.cls
        result.score -= numbers["no_change"].get(kind, 0.0)
    required = _required(cause, observed)
    if required is None:
        result.score *= numbers["undecided"]
    elif not required:
        result.score = min(result.score, numbers["unknown_score"] * 0.8)
    return result


def _agreement(sign: int, strength: float, numbers: dict[str, Any]) -> float:
    if sign == 0:
        calm = abs(strength) < FLAT
        return float(numbers["flat_bonus"] if calm else -numbers["against"] * abs(strength))
    along = sign * strength
    if along >= FLAT:
        return along
    return -float(numbers["miss"]) if along > -FLAT else along


def _file_evidence(result: Scored, sign: int, seen: Observed) -> None:
    moved = abs(seen.strength) >= FLAT
    if sign == 0:
        (result.contradicting if moved else result.supporting).append(seen.id)
    elif moved:
        (result.supporting if sign * seen.strength > 0 else result.contradicting).append(
            seen.id
        )


def _unexplained(role: str, seen: Observed, cause: Cause, numbers: dict[str, Any]) -> bool:
    return (
        abs(seen.strength) >= numbers["unexplained_from"]
        and role not in cause.expected
        and role not in cause.neutral
        and _asks_for_a_cause(role, seen)
    )


def _asks_for_a_cause(role: str, seen: Observed) -> bool:
    """Whether a move needs explaining: no mere consequence, and no time that became shorter."""
    shorter = (
        seen.strength < 0 and meanings()[role].unit == "s" if role in meanings() else False
    )
    return role not in settings()["consequences"] and not shorter


def _required(cause: Cause, observed: dict[str, Observed]) -> bool | None:
    """Whether one of the required roles moved as said; None when no recording shows any of them."""
    measured = [(r, observed[r]) for r in cause.requires if r in observed]
    if not measured:
        return None
    return any(
        cause.expected[r][0] * seen.strength >= FLAT
        for r, seen in measured
        if r in cause.expected
    )


def _changes(case: Case) -> list[Change]:
    """Changes before the onset, or so soon after it that the onset's own doubt covers them."""
    start, end, margin = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )[0]
    doubt = max(4 * margin, int(settings()["onset_doubt"] * (end - start)))
    rows = case.rows(
        "SELECT c.id, e.id, c.kind, c.subject, coalesce(c.before, ''), coalesce(c.after, ''), c.ts_ns "
        "FROM change AS c JOIN evidence AS e "
        "ON e.source = 'change' AND e.subject = c.id AND e.onset_ns = c.ts_ns "
        "WHERE c.ts_ns <= ? ORDER BY c.ts_ns DESC",
        (start + doubt,),
    )
    return [
        Change(i, e, kind, subject, f"{subject} {before} {after}", abs(start - ts) / 1e9)
        for i, e, kind, subject, before, after, ts in rows
    ]


def _half_life(case: Case) -> float:
    """Half-life of a change's weight: short recordings have their changes close to the onset."""
    numbers = settings()
    span = case.scalar(
        "SELECT max(last_ns) - min(first_ns) FROM source WHERE part = 'incident' AND kind IN ('metrics', 'trace')"
    )
    share = numbers["change_half_life_share"] * (span or 0) / 1e9
    return float(min(numbers["change_half_life_s"], share) or numbers["change_half_life_s"])


def _best_change(
    cause: Cause, changes: Iterable[Change], half_life_s: float, slow: frozenset[str]
) -> tuple[Change | None, float]:
    """The change that fits best and how well, 0 to 1."""
    best, most = None, 0.0
    for change in changes:
        fit = _fit(cause, change, slow) * math.pow(0.5, change.age_s / half_life_s)
        if fit > most + 1e-9:
            best, most = change, fit
    return best, most


def _fit(cause: Cause, change: Change, slow: frozenset[str]) -> float:
    mark = cause.change
    if mark.kinds and change.kind not in mark.kinds:
        return 0.0
    concerned = _concerns(mark.concerns, change, slow)
    if not concerned:
        return 0.0
    if mark.words.search(change.text):
        return 1.0
    # A new build of the engine may hold any regression, and says nothing of which.
    new_build = change.kind == "deploy" and _BUILD_WORDS.search(change.text)
    return (
        0.5
        if new_build and cause.cls == "code-regression" and mark.concerns == "engine"
        else 0.0
    )


def _concerns(whom: str, change: Change, slow: frozenset[str]) -> bool:
    engine = bool(_ENGINE_WORDS.search(change.subject))
    if whom == "engine":
        return engine
    if whom == "traffic":
        return bool(_TRAFFIC_WORDS.search(change.subject)) and not engine
    if whom == "dependency":
        return any(name in change.subject for name in slow)
    if whom == "other":
        return not engine
    return True


def calibrate(scored: Sequence[Scored]) -> None:
    """Set every confidence: softmax over scores with temperature, `unknown` taking part."""
    numbers = settings()
    scores = [s.score for s in scored] + [numbers["unknown_score"]]
    top = max(scores)
    powers = [math.exp((x - top) / numbers["temperature"]) for x in scores]
    total = sum(powers)
    for one, power in zip(scored, powers, strict=False):
        one.confidence = power / total


def explains_strongest(one: Scored, observed: dict[str, Observed]) -> bool:
    """Whether the cause speaks of the two strongest moves that are no mere consequence."""
    moved = [
        o for r, o in observed.items() if abs(o.strength) >= FLAT and _asks_for_a_cause(r, o)
    ]
    moved.sort(key=lambda o: -abs(o.strength))
    spoken = {r for r, (sign, _) in one.cause.expected.items() if sign} | one.cause.neutral
    return all(o.role in spoken for o in moved[:2])


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
    observed: dict[str, Observed],
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
        "missing": json.dumps(missing), "change_id": one.change.id if one.change else None,
    }  # fmt: skip


def _by_weight(one: Scored, observed: dict[str, Observed]) -> list[str]:
    """Supporting evidence, what weighs most first."""
    weight = {
        o.id: abs(o.strength) * one.cause.expected[r][1] if one.cause.expected[r][0] else 0.0
        for r, o in observed.items()
        if r in one.cause.expected
    }
    return sorted(one.supporting, key=lambda e: -weight.get(e, 0.0))


def _rivalry(one: Scored, rival: Scored, observed: dict[str, Observed]) -> dict[str, Any]:
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
    return weight * _agreement(sign, seen.strength, settings()) if weight else 0.0
