"""How sure a hypothesis is: scores turned into calibrated confidence, and the guard for rollbacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rca.hypotheses.scoring import Observed, Scored, asks_for_a_cause, spoken_of
from rca.weights import settings


def calibrate(scored: Sequence[Scored], observed: Mapping[str, Observed]) -> None:
    """Set every confidence: softmax over scores with a temperature, `unknown` taking part.

    Causes that are at work together are no rivals. Where the guard does not pass, confidence stays
    below what a rollback needs: a cause nobody has modelled looks like that. What rests on
    circumstances only stays a guess.
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
    safe = bool(scored) and guarded(scored, observed)
    for one in scored:
        most = (
            numbers["circumstantial"]
            if one.circumstantial
            else 1.0
            if safe
            else numbers["unguarded"]
        )
        one.confidence = min(one.confidence, most)


def guarded(scored: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    """Whether the best hypothesis may carry a rollback: it fits well, and explains the strongest moves."""
    best = scored[0]
    together = [s for s in scored if s.contributing] or [best]
    return best.score >= settings()["guard_score"] and explains_strongest(together, observed)


def explains_strongest(together: Sequence[Scored], observed: Mapping[str, Observed]) -> bool:
    """Whether the causes speak of the two strongest moves that are no mere consequence.

    Weak moves are passed over, and so is demand that fell.
    """
    numbers = settings()
    moved = [
        o
        for role, o in observed.items()
        if abs(o.strength) >= numbers["guard_move"]
        and asks_for_a_cause(role, o)
        and not (role in numbers["demand"] and o.strength < 0)
    ]
    moved.sort(key=lambda o: -abs(o.strength))
    spoken = spoken_of([s.cause for s in together])
    return all(o.role in spoken for o in moved[:2])
