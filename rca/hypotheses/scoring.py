"""How well the evidence agrees with one cause.

Each cause expects roles to rise, fall or stay. The score is the weighted agreement of the evidence
with that, less strong moves that the cause does not speak of, plus a change that fits. Roles that
no source could show count a little against a cause, and are listed with what they could change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rca.catalogue import Cause
from rca.hypotheses.change_fit import Change, best_change
from rca.signals import meanings
from rca.weights import FLAT, settings


@dataclass(frozen=True)
class Observed:
    """The strongest evidence of one role."""

    id: str
    role: str
    strength: float
    source: str

    @property
    def moved(self) -> bool:
        """Whether it left its healthy range."""
        return abs(self.strength) >= FLAT


@dataclass
class Scored:
    """One cause with what speaks for and against it.

    Attributes:
        decided: Whether one of the roles that the cause requires moved as it says; None when no
            recording shows any of them.
        circumstantial: Whether nothing that is its own was seen: its mark was not recorded, or it has
            none and no change of its own either.
        marked: Whether what decided is more than a consequence of slowness.
        own_change: Whether a change is known that speaks of this cause.
        brought: Roles that this change moves by itself: they speak neither for nor against the cause.
        contributing: Whether it is one of two causes that are at work at once.
    """

    cause: Cause
    score: float
    supporting: list[str] = field(default_factory=list)
    contradicting: list[str] = field(default_factory=list)
    missing: list[tuple[str, float]] = field(default_factory=list)
    change: Change | None = None
    confidence: float = 0.0
    decided: bool | None = None
    circumstantial: bool = False
    marked: bool = False
    own_change: bool = False
    brought: frozenset[str] = frozenset()
    contributing: bool = False


def score(
    cause: Cause,
    observed: Mapping[str, Observed],
    changes: Sequence[Change],
    half_life_s: float,
    slow: frozenset[str] = frozenset(),
    beside: Cause | None = None,
) -> Scored:
    """Agreement of the evidence with one cause; 1 is perfect, 0 says nothing.

    Args:
        beside: A cause that is at work as well: moves that it accounts for are not held against
            this one, nor counted for it.
    """
    numbers = settings()
    result = Scored(cause, 0.0, decided=required(cause, observed))
    result.change, fit, result.own_change = best_change(cause, changes, half_life_s, slow)
    if result.change and cause.id in result.change.unsafe:
        result.brought = cause.change.moves
    accounted = result.brought | (explained_by(beside, observed) if beside else frozenset())
    total, weights = _weigh(result, observed, accounted)
    for role, seen in observed.items():
        if role not in accounted and _unexplained(role, seen, cause, numbers):
            total -= numbers["unexplained"] * abs(seen.strength)
            result.contradicting.append(seen.id)
    if result.decided and not result.own_change and not cause.generic:
        fit /= numbers[
            "fit_of_any_build"
        ]  # of all that the build may hold, the mark tells which
    result.marked = required(cause, marks(observed)) is True
    result.circumstantial = result.decided is None or not (result.marked or result.own_change)
    result.score = total / weights + numbers["change"] * fit
    if changes and fit == 0:
        kind = "required" if cause.change.required else cause.cls
        result.score -= numbers["no_change"].get(kind, 0.0)
    if result.decided is None:
        result.score *= numbers["undecided"]
        if not result.own_change:
            result.score = min(
                result.score, numbers["unknown_score"] * numbers["mark_unrecorded"]
            )
    elif not result.decided:
        rule_out(result)
    return result


def rule_out(one: Scored) -> None:
    """Let a cause stand below `unknown`: what must have moved for it did not."""
    numbers = settings()
    one.decided = False
    one.score = min(one.score, numbers["unknown_score"] * numbers["mark_unmoved"])


def _weigh(
    result: Scored, observed: Mapping[str, Observed], accounted: frozenset[str]
) -> tuple[float, float]:
    """The weighted agreement of what a cause expects, and the weights that it is a share of."""
    numbers, cause = settings(), result.cause
    spared = _spared(cause, observed)
    total, weights = 0.0, 1.0
    for role, (sign, told) in cause.expected.items():
        weight = told * numbers["generic_weight"] if role in numbers["generic"] else told
        seen = observed.get(role)
        if seen is None:
            if sign:
                result.missing.append((role, weight))
                weights += numbers["missing"] * weight
            continue
        if not sign and role in numbers["demand"] and seen.strength < 0:
            continue
        others_doing = role in accounted and sign * seen.strength <= 0
        if others_doing or (role in spared and not seen.moved):
            continue
        total += weight * agreement(sign, seen.strength, numbers)
        weights += weight if sign else numbers["flat_bonus"] * weight
        _file_evidence(result, sign, seen)
    return total, weights


def _spared(cause: Cause, observed: Mapping[str, Observed]) -> frozenset[str]:
    """Ways of showing that need not have moved, because another one did."""
    shown = any(
        cause.expected[r][0] * observed[r].strength >= FLAT
        for r in cause.either
        if r in observed
    )
    return cause.either if shown else frozenset()


def agreement(sign: int, strength: float, numbers: Mapping[str, Any]) -> float:
    """Agreement of one role's move with what is expected of it."""
    if sign == 0:
        calm = abs(strength) < FLAT
        return float(numbers["flat_bonus"] if calm else -numbers["against"] * abs(strength))
    along = sign * strength
    if along >= FLAT:
        return along
    return -float(numbers["miss"]) if along > -FLAT else along


def explained_by(cause: Cause, observed: Mapping[str, Observed]) -> frozenset[str]:
    """Roles whose moves a cause accounts for: those that went as it says, and what may follow."""
    roles = {
        r for r, seen in observed.items() if cause.expected.get(r, (0, 0.0))[0] * seen.strength >= FLAT
    }  # fmt: skip
    return frozenset(roles | cause.neutral)


def _file_evidence(result: Scored, sign: int, seen: Observed) -> None:
    if sign == 0:
        (result.contradicting if seen.moved else result.supporting).append(seen.id)
    elif seen.moved:
        (result.supporting if sign * seen.strength > 0 else result.contradicting).append(
            seen.id
        )


def _unexplained(role: str, seen: Observed, cause: Cause, numbers: Mapping[str, Any]) -> bool:
    return (
        abs(seen.strength) >= numbers["unexplained_from"]
        and role not in cause.expected
        and role not in cause.neutral
        and asks_for_a_cause(role, seen)
    )


_WORK = frozenset({"s", "per matrix multiplication"})
"""Units of time taken and of operators called."""


def asks_for_a_cause(role: str, seen: Observed) -> bool:
    """Whether a move needs explaining: no mere consequence, and no work that became less."""
    less = seen.strength < 0 and role in meanings() and meanings()[role].unit in _WORK
    return role not in settings()["consequences"] and not less


def required(cause: Cause, observed: Mapping[str, Observed]) -> bool | None:
    """Whether one of the required roles moved as said; None when no recording shows any of them."""
    measured = [(r, observed[r]) for r in cause.requires if r in observed]
    if not measured:
        return None
    return any(
        cause.expected[r][0] * seen.strength >= FLAT
        for r, seen in measured
        if r in cause.expected
    )


def marks(observed: Mapping[str, Observed]) -> dict[str, Observed]:
    """What was observed, without the moves that slowness itself brings about."""
    mere = set(settings()["consequences"]) - set(settings()["telling"])
    return {role: seen for role, seen in observed.items() if role not in mere}


def spoken_of(together: Collection[Scored]) -> frozenset[str]:
    """Roles whose moves at least one of these hypotheses speaks of."""
    return frozenset(
        role
        for one in together
        for role in {r for r, (sign, _) in one.cause.expected.items() if sign}
        | one.cause.neutral
        | one.brought
    )
