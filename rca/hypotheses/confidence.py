"""How sure a hypothesis is: scores turned into calibrated confidence, and the guard for rollbacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rca.hypotheses.scoring import Observed, Scored, asks_for_a_cause, spoken_of
from rca.weights import settings


def calibrate(scored: Sequence[Scored], observed: Mapping[str, Observed]) -> None:
    """Set every confidence: softmax over scores with a temperature, `unknown` taking part.

    Causes that are at work together are no rivals. What fits badly, rests on circumstances only, leaves a
    strong move over or has one against it stays a guess: a cause nobody has modelled looks like that.
    """
    numbers = settings()
    temperature = numbers["temperature"]
    for one in scored:
        rivals = [
            s.score
            for s in scored
            if s is not one and not (s.contributing and one.contributing)
        ]
        shift = max([one.score, numbers["unknown_score"], *rivals])
        powers = [
            math.exp((x - shift) / temperature)
            for x in (one.score, numbers["unknown_score"], *rivals)
        ]
        one.confidence = powers[0] / sum(powers)
        if one.circumstantial or not _holds(_with(one, scored), observed):
            one.confidence = min(one.confidence, numbers["circumstantial"])


def guarded(scored: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    """Whether the best hypothesis may carry a rollback: it fits well, explains the strongest moves, and none denies it."""
    return _holds(_with(scored[0], scored), observed)


def _with(one: Scored, scored: Sequence[Scored]) -> Sequence[Scored]:
    """A hypothesis, the better first of both where two causes are at work together."""
    return [s for s in scored if s.contributing] if one.contributing else [one]


def _holds(together: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    return (
        together[0].score >= settings()["guard_score"]
        and explains_strongest(together, observed)
        and not denied(together, observed)
    )


def explains_strongest(together: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    """Whether the causes speak of the two strongest moves that are no mere consequence.

    Weak moves are passed over, and so is demand that fell.
    """
    moved = sorted(_to_explain(observed), key=lambda o: -abs(o.strength))
    spoken = spoken_of(together)
    return all(o.role in spoken for o in moved[:2])


def denied(together: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    """Whether a strong move goes against what one of the causes says, and none accounts for it.

    A near relative of the true cause shares its symptoms, and is told apart by such a move.
    """
    return any(_against(o, together) for o in _to_explain(observed))


def _against(seen: Observed, together: Sequence[Scored]) -> bool:
    if any(seen.role in s.cause.neutral | s.brought for s in together):
        return False
    along = [
        s.cause.expected[seen.role][0] * seen.strength
        for s in together
        if seen.role in s.cause.expected
    ]
    return bool(along) and max(along) <= 0


def _to_explain(observed: Mapping[str, Observed]) -> list[Observed]:
    """Moves too strong to be passed over; demand that fell slows nothing."""
    numbers = settings()
    return [
        o
        for role, o in observed.items()
        if abs(o.strength) >= numbers["guard_move"]
        and asks_for_a_cause(role, o)
        and not (role in numbers["demand"] and o.strength < 0)
    ]
