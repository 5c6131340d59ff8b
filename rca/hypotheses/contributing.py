"""Two causes at work at the same time: a second one that explains what the first leaves over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from rca.catalogue import Cause
from rca.hypotheses.scoring import Observed, Scored, explained_by, marks, required
from rca.weights import settings

Rescore = Callable[[Cause, Cause], Scored]
"""(cause, beside) → the cause's score where the other one is at work as well."""


def pair(
    scored: Sequence[Scored], observed: Mapping[str, Observed], again: Rescore
) -> tuple[Scored, Scored] | None:
    """The two causes that explain the evidence together, the better first; None when one is enough.

    Each must have a required move of its own that the other one does not account for, and fit well
    once the other's moves are set aside. Without the best single cause they must beat it. What
    slowness itself brings about makes no second cause, unless a change speaks of it.
    """
    numbers = settings()
    if not scored:
        return None
    single = scored[0]
    able = [s for s in scored if s.decided and not s.cause.generic][
        : int(numbers["pair_candidates"])
    ]
    best: tuple[Scored, Scored] | None = None
    most = 0.0
    for one, two in combinations(able, 2):
        weaker = min(one, two, key=lambda s: s.score)
        if not (_apart(one.cause, two.cause, observed) and _stands_alone(weaker, observed)):
            continue
        first, second = again(one.cause, two.cause), again(two.cause, one.cause)
        both = (first.score + second.score) / 2
        needed = single.score + numbers["pair_gain"] if single not in (one, two) else 0.0
        if min(first.score, second.score) >= numbers["pair_score"] and both > max(most, needed):
            most = both
            best = (first, second) if first.score >= second.score else (second, first)
    return best


def _stands_alone(one: Scored, observed: Mapping[str, Observed]) -> bool:
    """Whether a required move is more than a consequence of slowness, or a change speaks of the cause."""
    return one.own_change or required(one.cause, marks(observed)) is True


def _apart(one: Cause, two: Cause, observed: Mapping[str, Observed]) -> bool:
    """Whether each has a required move that is not the other's doing; what looks alike is one thing."""
    alike = {x.cause for x in one.lookalikes} | {x.cause for x in two.lookalikes}
    return (
        not alike & {one.id, two.id}
        and _own_move(one, two, observed)
        and _own_move(two, one, observed)
    )


def _own_move(cause: Cause, other: Cause, observed: Mapping[str, Observed]) -> bool:
    """Whether a required move of a cause is not the other's doing."""
    explained = explained_by(other, observed)
    left = {r: o for r, o in observed.items() if r not in explained}
    return required(cause, left) is True
