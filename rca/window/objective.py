"""Objectives of bundle.toml: what was promised, and in which stretch it was broken.

An objective such as `e2e_p99 = "< 2 s"` leaves one request in a hundred free. It is broken when the
recording overspends this allowance by more than chance gives (requests of a service are alike for
some time: their variance is taken as twice that of independent ones), in the stretch that overspends
it most. A service that breaks its objective on the healthy day as well has no incident for that
reason. Single requests tell of it where all of them were traced; else the metrics do (`counted`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rca.errors import BundleError
from rca.plain import percent
from rca.signals import Points, Signal, Times, Values

_NAME = re.compile(r"(e2e|ttft|itl|tpot|error)_?(?:latency)?_?(p\d{2,3}(?:\.\d+)?|share|rate)")
_LIMIT = re.compile(r"\s*(?:<=?)?\s*(\d+(?:\.\d+)?)\s*(ms|s|%|)\s*")
_FLOOR_NAME = re.compile(
    r"(?:(?:output|generation|decode)_)?(?:(?:token_)?throughput|tok(?:en)?s_per_s(?:econd)?)(_per_(?:instance|replica|pod|gpu))?"
)
_FLOOR = re.compile(
    r"\s*(?:>=?|≥)?\s*(\d+(?:\.\d+)?)\s*(?:tok(?:en)?s?\s*(?:/\s*s|per second))?\s*"
)
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
_UNDER_FLOOR = 0.05
"""Part of the scrapes under load that may stay below a floor."""


@dataclass(frozen=True)
class Objective:
    """What was promised: at most a share `allowed` of the requests above `limit`.

    Attributes:
        text: Name and value as bundle.toml has them.
        role: Role of what is measured.
        limit: In the role's unit, seconds or tokens a second; what lies on the wrong side of it counts.
        allowed: Share that may lie there, 0 to 1.
        of_each: Whether it is a promise for each replica.
    """

    text: str
    role: str
    limit: float
    allowed: float
    of_each: bool = False


class Broken(NamedTuple):
    """An objective and the stretch that broke it most, ns since the Unix epoch."""

    objective: Objective
    start_ns: int
    end_ns: int
    score: float
    share: float
    what: str = "of requests over it"

    @property
    def words(self) -> str:
        """The objective and what became of it."""
        return f"{self.objective.text} ({percent(self.share)} {self.what})"


class Spent(NamedTuple):
    """Observations in the order of time, and how many of them lie on the wrong side of a limit.

    Attributes:
        start_ns: From when on each row counts.
        end_ns: Until when.
        n: Observations, shape (rows,).
        over: Of these on the wrong side, shape (rows,).
    """

    start_ns: Times
    end_ns: Times
    n: Values
    over: Values

    def between(self, first: int, last: int) -> Spent:
        """Rows first to last."""
        rows = slice(first, last + 1)
        return Spent(self.start_ns[rows], self.end_ns[rows], self.n[rows], self.over[rows])

    def share(self) -> float:
        """Share on the wrong side, NaN without observations."""
        total = float(self.n.sum())
        return float(self.over.sum()) / total if total else float("nan")


def read(table: Mapping[str, Any]) -> tuple[list[Objective], list[str]]:
    """Objectives of the table [slo], and the texts of those that no recording can tell of.

    Raises:
        BundleError: An objective is called as one of requests is, and gives no limit.
    """
    known, other = [], []
    for name, value in table.items():
        found = _floor(str(name), str(value)) or _objective(str(name), str(value))
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
        raise _no_limit(name, value, 'write "< 2 s", "< 500 ms" or "< 0.5 %"')
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


def _floor(name: str, value: str) -> Objective | None:
    """A floor for the tokens generated a second."""
    form, limit = _FLOOR_NAME.fullmatch(name.lower()), _FLOOR.fullmatch(value.lower())
    # A throughput may be of requests: that it is of tokens, the name or the value says.
    if form is None or "tok" not in (name + value).lower():
        return None
    if limit is None:
        raise _no_limit(name, value, 'write "> 1200 tok/s"')
    each = form.group(1) is not None
    return Objective(
        f"{name} {value}", "generation_throughput", float(limit.group(1)), _UNDER_FLOOR, each
    )


def _no_limit(name: str, value: str, hint: str) -> BundleError:
    return BundleError(
        f"{value!r} is no limit", path="bundle.toml", place=f"slo.{name}", hint=hint
    )


def broken(objectives: Sequence[Objective], signals: Sequence[Signal]) -> list[Broken]:
    """Objectives that single requests of the incident side broke and the baseline kept, worst first."""
    found = []
    for objective in objectives:
        for signal in signals:
            if signal.source == "trace" and signal.role == objective.role:
                found += worst(
                    objective,
                    _each(signal.incident, objective),
                    _each(signal.baseline, objective),
                )
    return sorted(found, key=lambda b: -b.score)


def worst(objective: Objective, now: Spent, healthy: Spent) -> list[Broken]:
    """The stretch that overspends an objective most; none when it is kept, or broken every day."""
    if not overspends(objective, now):
        return []
    first, last = _overspent(now.over - objective.allowed * now.n)
    inside = now.between(first, last)
    share = inside.share()
    chronic = healthy.n.sum() >= _FEWEST and share < 2 * healthy.share()
    if chronic:
        return []
    score = _overspending(now, objective.allowed)
    return [Broken(objective, int(inside.start_ns[0]), int(inside.end_ns[-1]), score, share)]


def overspends(objective: Objective, spent: Spent) -> bool:
    """Whether more of it lies on the wrong side than the objective allows, beyond chance."""
    return (
        bool(spent.n.sum() >= _FEWEST and spent.over.sum() >= _FEWEST_OVER)
        and _overspending(spent, objective.allowed) >= _SURE
    )


def _each(points: Points, objective: Objective) -> Spent:
    over = (points.values > objective.limit).astype(np.float64)
    return Spent(points.ts_ns, points.ts_ns, np.ones(len(over)), over)


def _overspent(gains: Values) -> tuple[int, int]:
    """First and last index of the stretch of largest sum."""
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    lowest = np.minimum.accumulate(sums)
    last = int(np.argmax(sums[1:] - lowest[:-1]))
    return int(np.argmin(sums[: last + 1])), last


def _overspending(spent: Spent, allowed: float) -> float:
    share = max(allowed, _LEAST_ALLOWED)
    expected = float(spent.n.sum()) * share
    return float(spent.over.sum() - expected) / math.sqrt(_ALIKE * expected * (1.0 - share))
