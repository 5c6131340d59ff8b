"""Outcomes of labelled bundles → shares with Wilson's intervals, calibration, false alarms; by kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SURE = 0.87
"""Confidence at which rollbacks may be proposed."""
CAREFUL = 0.5
"""Confidence below which an answer counts as a guess."""
_BINS = 10
_Z95 = 1.959964


@dataclass(frozen=True)
class Outcome:
    """One bundle: what was true, what was said.

    Attributes:
        kind: 'fault', 'two_faults', 'healthy' or 'unmodelled'.
        right: Causes that count as right.
        causes: All causes that were at work; two of them for two faults.
        answers: Causes in order of rank; 'unknown' or 'no_incident' stands first for such a status.
        contributing: Causes said to be at work at once, empty when one was said.
        iou: Overlap of the windows by their union, None where the truth has none.
        error: Why there is no answer, None when there is one.
        found: Whether an incident was found; where nothing can be judged, none is.
    """

    case: str
    kind: str
    right: tuple[str, ...]
    true_class: str
    answers: tuple[str, ...]
    status: str
    said_class: str | None
    confidence: float
    iou: float | None
    error: str | None = None
    causes: tuple[str, ...] = ()
    contributing: tuple[str, ...] = ()
    found: bool = True

    def hit(self, k: int) -> bool:
        """Whether a right answer is among the first k."""
        return any(a in self.right for a in self.answers[:k])

    @property
    def named(self) -> tuple[str, ...]:
        """The causes in order of rank, without a status before them."""
        return tuple(a for a in self.answers if a not in ("unknown", "no_incident"))

    @property
    def is_right(self) -> bool:
        """Whether the answer is what an expert would say of this kind of bundle."""
        if self.kind == "healthy":
            return self.status == "no_incident"
        if self.kind == "unmodelled":
            return self.status == "unknown" or self.confidence < CAREFUL or self.hit(1)
        return self.hit(1)


def wilson(hits: int, n: int) -> list[float]:
    """[share, low, high] with Wilson's 95 % interval."""
    if not n:
        return [math.nan] * 3
    share, z2 = hits / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return [round(x, 4) for x in (share, max(centre - half, 0.0), min(centre + half, 1.0))]


def scores(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Scores by kind of case."""
    return {
        kind: _of_kind(kind, [o for o in outcomes if o.kind == kind])
        for kind in sorted({o.kind for o in outcomes})
    }


def _of_kind(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    n = len(outcomes)
    calm = sum(o.status == "no_incident" for o in outcomes)
    if kind == "healthy":
        alarms = sum(o.found and o.status != "no_incident" for o in outcomes)
        return {"n": n, "no_incident": wilson(calm, n), "false_alarms": wilson(alarms, n)}
    if kind == "unmodelled":
        return {
            "n": n,
            "careful": wilson(sum(o.is_right for o in outcomes), n),
            "unknown": wilson(sum(o.status == "unknown" for o in outcomes), n),
            "sure": wilson(sum(_sure(o) and not o.hit(1) for o in outcomes), n),
            "iou": _mean(o.iou for o in outcomes),
        }
    both = _both(outcomes) if kind == "two_faults" else {}
    return {"n": n, **_ranking(outcomes), **both, **_honesty(outcomes)}


def _ranking(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    n = len(outcomes)
    found = [o for o in outcomes if o.status != "no_incident"]
    return {
        "ac1": wilson(sum(o.hit(1) for o in outcomes), n),
        "ac3": wilson(sum(o.hit(3) for o in outcomes), n),
        "ac1_of_found": wilson(sum(o.hit(1) for o in found), len(found)),
        "ac3_of_found": wilson(sum(o.hit(3) for o in found), len(found)),
        "class": wilson(sum(o.said_class == o.true_class for o in outcomes), n),
        "iou": _mean(o.iou for o in outcomes),
        "unknown": wilson(sum(o.status == "unknown" for o in outcomes), n),
        "missed": wilson(n - len(found), n),
    }


def _both(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    found = [o for o in outcomes if o.status != "no_incident"]
    both = [set(o.causes) <= set(o.named[:3]) for o in found]
    said = [set(o.causes) == set(o.contributing) for o in found]
    return {
        "both_in_three_of_found": wilson(sum(both), len(found)),
        "both_said_of_found": wilson(sum(said), len(found)),
    }


def _honesty(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    n = len(outcomes)
    diagnosed = [o for o in outcomes if o.status in ("diagnosed", "failed")]
    sure = [o for o in diagnosed if _sure(o)]
    found = [o for o in outcomes if o.status != "no_incident"]
    return {
        "brier": _mean((o.confidence - o.hit(1)) ** 2 for o in diagnosed),
        "ece": _ece(diagnosed),
        "precision_when_sure": wilson(sum(o.hit(1) for o in sure), len(sure)),
        "coverage_when_sure": wilson(len(sure), n),
        "coverage_of_found": wilson(len(sure), len(found)),
    }


def _sure(one: Outcome) -> bool:
    return one.status in ("diagnosed", "failed") and one.confidence >= SURE


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(sum(known) / len(known), 4) if known else None


def _ece(outcomes: Sequence[Outcome]) -> float | None:
    """Expected calibration error over ten equal bins of confidence."""
    if not outcomes:
        return None
    total = 0.0
    for bin_ in range(_BINS):
        inside = [o for o in outcomes if min(int(o.confidence * _BINS), _BINS - 1) == bin_]
        if inside:
            gap = sum(o.confidence for o in inside) - sum(o.hit(1) for o in inside)
            total += abs(gap)
    return round(total / len(outcomes), 4)
