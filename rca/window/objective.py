"""Objectives of bundle.toml held against single requests: which were broken, and when.

An objective such as `e2e_p99 = "< 2 s"` leaves one request in a hundred free. It is broken when the
recording overspends this allowance by more than chance gives (requests of a service are alike for
some time: their variance is taken as twice that of independent ones), in the stretch that overspends
it most. A service that breaks its objective on the healthy day as well has no incident for that
reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rca.errors import BundleError
from rca.signals import Points, Signal, Values

_NAME = re.compile(r"(e2e|ttft|itl|tpot|error)_?(?:latency)?_?(p\d{2,3}(?:\.\d+)?|share|rate)")
_LIMIT = re.compile(r"\s*(?:<=?)?\s*(\d+(?:\.\d+)?)\s*(ms|s|%|)\s*")
_ROLES = {
    "e2e": "e2e_latency",
    "ttft": "ttft",
    "itl": "itl",
    "tpot": "itl",
    "error": "error_share",
}
_FACTORS = {"ms": 1e-3, "s": 1.0, "%": 0.01, "": 1.0}
_ALIKE = 2.0
_SURE = 4.0
"""Standard errors by which an allowance must be overspent."""
_FEWEST, _FEWEST_OVER = 10, 5
_LEAST_ALLOWED = 1e-4


@dataclass(frozen=True)
class Objective:
    """What was promised: at most a share `allowed` of the requests above `limit`."""

    text: str
    role: str
    limit: float
    allowed: float


class Broken(NamedTuple):
    """An objective and the stretch that broke it most, ns since the Unix epoch."""

    objective: Objective
    start_ns: int
    end_ns: int
    score: float
    share: float

    @property
    def words(self) -> str:
        """The objective and what became of it."""
        return f"{self.objective.text} ({self.share:.0%} of requests over it)"


def read(table: Mapping[str, Any]) -> tuple[list[Objective], list[str]]:
    """Objectives of the table [slo], and the texts of those that single requests cannot tell of.

    Raises:
        BundleError: An objective is called as one of requests is, and gives no limit.
    """
    known, other = [], []
    for name, value in table.items():
        found = _objective(str(name), str(value))
        if found:
            known.append(found)
        else:
            other.append(f"{name} {value}")
    return known, other


def _objective(name: str, value: str) -> Objective | None:
    form, limit = _NAME.fullmatch(name.lower()), _LIMIT.fullmatch(value)
    if form is None:
        return None
    if limit is None:
        raise BundleError(
            f"{value!r} is no limit", path="bundle.toml", place=f"slo.{name}",
            hint='write "< 2 s", "< 500 ms" or "< 0.5 %"',
        )  # fmt: skip
    what, which = form.groups()
    amount = float(limit.group(1)) * _FACTORS[limit.group(2)]
    text = f"{name} {value}"
    if (what == "error") != (which in ("share", "rate")) or (limit.group(2) == "%") > (
        what == "error"
    ):
        return None
    if what == "error":
        return Objective(text, _ROLES[what], 0.5, amount) if amount < 1.0 else None
    digits = which[1:]
    part = float(digits) / 100 if "." in digits else int(digits) / 10 ** len(digits)
    return Objective(text, _ROLES[what], amount, 1.0 - part)


def broken(objectives: Sequence[Objective], signals: Sequence[Signal]) -> list[Broken]:
    """Objectives that the incident side broke and the baseline kept, worst first."""
    found = []
    for objective in objectives:
        for signal in signals:
            if signal.source == "trace" and signal.role == objective.role:
                found += _worst(objective, signal)
    return sorted(found, key=lambda b: -b.score)


def _worst(objective: Objective, signal: Signal) -> list[Broken]:
    over = _over(signal.incident, objective)
    if len(over) < _FEWEST:
        return []
    score = _overspending(over, objective.allowed)
    first, last = _overspent(over - objective.allowed)
    healthy = _over(signal.baseline, objective)
    share = float(over[first : last + 1].mean())
    chronic = len(healthy) >= _FEWEST and share < 2 * float(healthy.mean())
    if score < _SURE or over.sum() < _FEWEST_OVER or chronic:
        return []
    times = signal.incident.ts_ns
    return [Broken(objective, int(times[first]), int(times[last]), score, share)]


def _over(points: Points, objective: Objective) -> Values:
    over: Values = (points.values > objective.limit).astype(np.float64)
    return over


def _overspent(gains: Values) -> tuple[int, int]:
    """First and last index of the stretch of largest sum."""
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    lowest = np.minimum.accumulate(sums)
    last = int(np.argmax(sums[1:] - lowest[:-1]))
    return int(np.argmin(sums[: last + 1])), last


def _overspending(over: Values, allowed: float) -> float:
    share = max(allowed, _LEAST_ALLOWED)
    expected = len(over) * share
    return float(over.sum() - expected) / math.sqrt(_ALIKE * expected * (1.0 - share))
