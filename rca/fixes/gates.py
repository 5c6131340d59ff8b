"""Gates before a proposal that takes something away: what must hold, said in words.

Nothing is ever carried out; a gate decides whether a file is written for a person, or advice to
look first.
"""

from __future__ import annotations

from typing import NamedTuple

from rca.fixes.facts import ROLLBACK_CLASSES, Facts
from rca.plain import confidence, duration

ROLLBACK_CONFIDENCE = 0.87
"""The seed's threshold. There the judge labels a class, so it is held against the calibrated
probability that the change brought a cause of an undoable class about, whichever of them."""
LEAST_OF_CAUSE = 0.5
"""The cause that is named must be more likely than not."""
CIRCUIT_BREAK_CONFIDENCE = 0.92
STRICT_CLASSES = ("code-regression",)
"""The seed's own, narrower rule; shown beside ours."""
UNDOABLE = ("deploy", "config", "flag")
_BLOCKING_TRIALS = ("refuted", "ambiguous")
_LATE_NS = 30_000_000_000
"""A change this long after the start of the window may still have brought it about: starts are estimates."""


class Gate(NamedTuple):
    """Whether a proposal may be made, and the reasons in words."""

    passed: bool
    words: str


def rollback(facts: Facts) -> Gate:
    """A matched deployment or change of configuration that triggers the cause may be undone."""
    cls = facts.cause.cls
    undone = cls in ROLLBACK_CLASSES
    return _gate(
        [
            (undone, f"class {cls} {'can' if undone else 'cannot'} be undone"),
            _matched(facts),
            *([_blamed(facts)] if undone else []),  # blame is that of causes that can be undone
            (
                facts.guarded,
                f"the two strongest moves are {'' if facts.guarded else 'not both '}explained",
            ),
            _tried(facts),
        ]
    )


def strict(facts: Facts) -> str:
    """What the narrower rule says: only code that regressed is rolled back."""
    ours = rollback(facts).passed
    if facts.cause.cls not in STRICT_CLASSES:
        return f"the strict rule (code-regression only) holds it back: class {facts.cause.cls}"
    return f"the strict rule (code-regression only) {'passes it too' if ours else 'holds it back too'}"


def circuit_break(facts: Facts) -> Gate:
    """A dependency that is slow while nothing was changed on our side may be cut off."""
    cls, local = facts.cause.cls, local_change(facts)
    return _gate(
        [
            (cls == "dependency", f"class {cls}"),
            (
                not local,
                "a change of our own fits it in time" if local else "no change of our own fits",
            ),
            _sure(facts, CIRCUIT_BREAK_CONFIDENCE),
            _tried(facts),
        ]
    )


def local_change(facts: Facts) -> bool:
    """Whether the matched change is one of our own, not one of the slow service itself."""
    return facts.change is not None and not any(s in facts.change.subject for s in facts.slow)


def _matched(facts: Facts) -> tuple[bool, str]:
    change, lag = facts.change, facts.lag_ns
    if change is None or lag is None:
        return False, "no change matches"
    when = f"{duration(abs(lag))} {'before' if lag >= 0 else 'after'} the window began"
    if change.kind not in UNDOABLE:
        return False, f"the change is of kind {change.kind}, which no rollback undoes"
    return lag >= -_LATE_NS, f"the change came {when}"


def _blamed(facts: Facts) -> tuple[bool, str]:
    sure = facts.blame >= ROLLBACK_CONFIDENCE and facts.confidence >= LEAST_OF_CAUSE
    own = confidence(facts.confidence)
    told = (
        f"confidence {confidence(facts.blame)} that it is to blame ({own} for {facts.cause.id})"
    )
    if facts.blame >= ROLLBACK_CONFIDENCE and not sure:
        return False, f"{told}, the cause itself is below {LEAST_OF_CAUSE}"
    return sure, f"{told} {'reaches' if sure else 'is below'} {ROLLBACK_CONFIDENCE}"


def _sure(facts: Facts, least: float) -> tuple[bool, str]:
    sure = facts.confidence >= least
    return (
        sure,
        f"confidence {confidence(facts.confidence)} {'reaches' if sure else 'is below'} {least}",
    )


def _tried(facts: Facts) -> tuple[bool, str]:
    blocked = facts.trial in _BLOCKING_TRIALS
    against = "" if blocked else "nothing in "
    return not blocked, f"{against}the experiment ({facts.trial}) speaks against it"


def _gate(checks: list[tuple[bool, str]]) -> Gate:
    met = ", ".join(told for ok, told in checks if ok)
    failed = ", ".join(told for ok, told in checks if not ok)
    if failed:
        return Gate(False, f"held back, since {failed}; met: {met or 'nothing'}")
    return Gate(True, f"passed: {met}")
