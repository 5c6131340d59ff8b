"""Which candidate looks most like the incident.

Directions are compared, not sizes: the cosine of two vectors of log-ratios, where what
moved by less than a fifth counts as still. Counters weigh more than latencies, because
every cause moves those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

DEAD_BAND = math.log(1.2)
MARGIN = 0.05
LEAST_LIKENESS = 0.5
_LATENCY_WEIGHT = 0.5
_LATENCIES = ("ttft", "itl", "e2e", "request_p50", "queue_mean")


class Rank(NamedTuple):
    """One candidate's likeness, and the figure that speaks most against it."""

    cause: str
    likeness: float  # cosine, -1 … 1
    dose: float
    worst_figure: str

    def as_dict(self) -> dict[str, str | float]:
        """For JSON."""
        return self._asdict()


def rank(
    observed: Mapping[str, float], candidates: Mapping[tuple[str, float], Mapping[str, float]]
) -> list[Rank]:
    """Candidates, best first; each with the dose at which it is most like the incident.

    Args:
        observed: log-ratios of the incident.
        candidates: (cause, dose) → log-ratios of the model.
    """
    best: dict[str, Rank] = {}
    for (cause, dose), shown in candidates.items():
        keys = [key for key in observed if key in shown]
        here = Rank(cause, likeness(observed, shown, keys), dose, _worst(observed, shown, keys))
        if cause not in best or here.likeness > best[cause].likeness:
            best[cause] = here
    return sorted(best.values(), key=lambda found: -found.likeness)


def likeness(
    observed: Mapping[str, float], shown: Mapping[str, float], keys: Sequence[str]
) -> float:
    """Cosine of two sets of log-ratios over `keys`; 0 where one of them is still."""
    ours = [_weight(key) * _moved(observed[key]) for key in keys]
    theirs = [_weight(key) * _moved(shown[key]) for key in keys]
    size = math.hypot(*ours) * math.hypot(*theirs)
    return sum(a * b for a, b in zip(ours, theirs, strict=True)) / size if size else 0.0


def is_still(observed: Mapping[str, float]) -> bool:
    """Whether nothing moved beyond the dead band."""
    return all(_moved(value) == 0 for value in observed.values())


def _moved(value: float) -> float:
    return value if abs(value) >= DEAD_BAND else 0.0


def _weight(key: str) -> float:
    return _LATENCY_WEIGHT if key.startswith(_LATENCIES) else 1.0


def _worst(
    observed: Mapping[str, float], shown: Mapping[str, float], keys: Sequence[str]
) -> str:
    def gap(key: str) -> float:
        return _weight(key) * abs(_moved(observed[key]) - _moved(shown[key]))

    return max(keys, key=gap, default="")
