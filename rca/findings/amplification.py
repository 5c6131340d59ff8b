"""How a cache that is missed loads what lies behind it, and how delay grows from depth to depth.

A cache's origin is loaded by the lookups that it does not answer: ρ = λ(1−h)/μ. What is recorded of
that are lookups and hits (λ, h) and the calls to other services; the origin is the one whose calls rise
and fall with the misses, or in all by as many. Its capacity μ shows only where it was at its limit: where misses came faster
than it answered, or its calls took longer. Without that μ is at least what it served, and ρ at most that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.findings.cohort import query
from rca.findings.records import Cohort, Indicator
from rca.plain import duration, number, percent, printable

Floats = npt.NDArray[np.float64]

BOUND = 0.9
_FEWEST = 4
_ALIKE = 0.5
"""Correlation of calls with misses from which on a service is taken for the origin."""
_AGREED = 0.8
"""The smaller rise from healthy to incident as a share of the larger one from which on both are one."""
_AT_LIMIT = 0.9
_OUTRUN = 1.2
_SLOWER = 1.5


@dataclass(frozen=True)
class Side:
    """One side in equal steps of time; NaN where nothing was recorded. Rates in 1/s, times in s."""

    lookups: Floats
    hits: Floats
    calls: Floats
    times: Floats

    @property
    def misses(self) -> Floats:
        """Lookups a second that the cache did not answer."""
        return self.lookups - self.hits

    @property
    def hit_rate(self) -> float:
        """Share of the lookups that the cache answered."""
        return float(np.nansum(self.hits) / np.nansum(self.lookups))


@dataclass(frozen=True)
class Load:
    """What the misses of a cache ask of its origin.

    Attributes:
        capacity: What the origin serves at most, 1/s.
        is_limit: Whether it was seen at its limit; else it may serve more.
        usual: The seed's r, rate / (hit rate × capacity); None at a hit rate of 0.
    """

    reference: float
    observed: float
    capacity: float
    is_limit: bool
    usual: float | None


def measure(case: Case, cohort: Cohort) -> Iterator[Indicator]:
    """Indicators of the load on origins; none where lookups are not counted or no calls go with them."""
    table = case.sql(query("origin_load"))
    rates = table.filter(pl.col("role") == "downstream_rate")
    for cache in table.filter(pl.col("role") == "cache_hit_rate")["service"].unique().sort():
        lookups = table.filter(
            (pl.col("role") == "cache_hit_rate") & (pl.col("service") == cache)
        )
        if len(lookups) < 2 * _FEWEST or (lookups["den"] == 1).all():
            continue
        # Misses before the window are served in it: all of the incident's recording names the origin.
        found = {
            origin: _alike(sides)
            for origin in rates["service"].unique().sort()
            if origin != cache and (sides := _sides(table, cohort, cache, origin, whole=True))
        }
        best = max(found, key=lambda name: found[name], default=None)
        sides = _sides(table, cohort, cache, best) if best is not None else None
        if best is None or found[best] < _ALIKE or sides is None:
            continue
        old, new = sides
        load = load_on(old, new)
        if load is not None:
            yield from _told(case, f"{cache} → {best}", old, new, load)


def load_on(old: Side, new: Side) -> Load | None:
    """The load on the origin of both sides; None where it never served anything."""
    calls, misses, times = (
        np.concatenate([getattr(old, name), getattr(new, name)])
        for name in ("calls", "misses", "times")
    )
    capacity = float(np.nanquantile(calls, 0.95))
    if not capacity > 0:
        return None
    busy = calls >= _AT_LIMIT * capacity
    slow = _median(times[busy]) >= _SLOWER * _median(old.times)
    outrun = _median(misses[busy]) >= _OUTRUN * capacity
    rate, hit_rate = float(np.nanmean(new.lookups)), new.hit_rate
    return Load(
        float(np.nanmean(old.misses)) / capacity, float(np.nanmean(new.misses)) / capacity, capacity,
        slow or outrun, rate / (hit_rate * capacity) if hit_rate > 0 else None,
    )  # fmt: skip


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else np.nan


def _told(case: Case, subject: str, old: Side, new: Side, load: Load) -> Iterator[Indicator]:
    n_old, n_new = (int(np.isfinite(side.lookups).sum()) for side in (old, new))
    most = "" if load.is_limit else "at most "
    yield Indicator(
        "origin_load", printable(subject, 80), "ratio", load.reference, load.observed, n_old, n_new,
        f"what {printable(subject.rpartition(' → ')[0], 40)} misses asks of its origin {most}{number(load.observed)} times "
        f"what that serves ({number(float(np.nanmean(new.misses)))}/s of {number(load.capacity)}/s at a hit rate of "
        f"{percent(new.hit_rate)}), {most}{number(load.reference)} when healthy",
        bound=BOUND, is_flagged=load.observed >= BOUND if load.is_limit or load.observed < BOUND else None,
        common=load.usual,
        common_formula="requests/(hit rate × capacity); all requests count as load, however many the cache answers",
        note=None if load.is_limit else "the origin was never seen at its limit: it may serve more",
    )  # fmt: skip
    yield from _growth(case, subject, load)


def _growth(case: Case, subject: str, load: Load) -> Iterator[Indicator]:
    """How much longer a call takes with each level above the deepest one, and D0·rⁿ beside it."""
    levels = {
        depth: (before, after)
        for depth, before, after in case.rows(
            "SELECT depth, mean_reference_ns, mean_ns FROM call_depth ORDER BY depth"
        )
    }
    n = max(levels, default=0)
    if n < 1 or not all(value for pair in levels.values() for value in pair):
        return
    was, now = ((levels[0][side] / levels[n][side]) ** (1 / n) for side in (0, 1))
    first_ns = levels[n][0]
    told = ", ".join(f"{duration(after)} at {depth}" for depth, (_, after) in levels.items())
    yield Indicator(
        "delay_by_depth", printable(subject, 80), "ns", levels[0][0], levels[0][1], n + 1, n + 1,
        f"mean time by depth of the calls: {told}; it grows ×{number(now)} with each level, ×{number(was)} when healthy",
        common=_power(first_ns, load.usual, n),
        common_formula=f"D0·rⁿ with D0 = {duration(first_ns)} at depth {n}, n = {n} and r = "
        f"{'infinite' if load.usual is None else number(load.usual)}; layers add up rather than multiply",
    )  # fmt: skip


def _power(first_ns: float, ratio: float | None, n: int) -> float | None:
    return None if ratio is None else first_ns * ratio**n


def _alike(sides: tuple[Side, Side]) -> float:
    """How well the origin's calls go with the misses, 0 to 1: step by step, or as they rise in all.

    A burst of misses is served one after the other, later than it came.
    """
    calls, misses = (
        np.concatenate([getattr(s, name) for s in sides]) for name in ("calls", "misses")
    )
    known = np.isfinite(calls) & np.isfinite(misses)
    calls, misses = calls[known], misses[known]
    if len(calls) < 2 * _FEWEST or calls.std() == 0 or misses.std() == 0:
        return 0.0
    rises = [float(np.nanmean(sides[1].calls) - np.nanmean(sides[0].calls)),
             float(np.nanmean(sides[1].misses) - np.nanmean(sides[0].misses))]  # fmt: skip
    agreed = min(rises) / max(rises) if min(rises) > 0 else 0.0
    return max(float(np.corrcoef(calls, misses)[0, 1]), agreed if agreed >= _AGREED else 0.0)


def _sides(
    table: pl.DataFrame, cohort: Cohort, cache: str, origin: str, *, whole: bool = False
) -> tuple[Side, Side] | None:
    """Healthy side and window of a cache and a service; None where one has too few steps.

    Beside a baseline all of the incident's recording stands for the window when it is the `whole`.
    """
    inside = (pl.col("part") == "incident") & pl.col("ts_ns").is_between(
        cohort.start_ns, cohort.end_ns
    )
    early = (pl.col("part") == "incident") & (pl.col("ts_ns") < cohort.start_ns)
    outside = pl.col("part") == "baseline" if cohort.reference == "baseline" else early
    if whole and cohort.reference == "baseline":
        inside = pl.col("part") == "incident"
    wanted = {"cache_hit_rate": cache, "downstream_rate": origin, "downstream_latency": origin}
    sides = []
    for chosen in (outside, inside):
        rows = {
            role: table.filter(
                chosen & (pl.col("role") == role) & (pl.col("service") == service)
            )
            for role, service in wanted.items()
        }
        if min(len(rows["cache_hit_rate"]), len(rows["downstream_rate"])) < _FEWEST:
            return None
        sides.append(_side(rows))
    return sides[0], sides[1]


def _side(rows: Mapping[str, pl.DataFrame]) -> Side:
    """Samples put into steps that hold at least one of each series."""
    lookups, calls, times = (
        rows[r] for r in ("cache_hit_rate", "downstream_rate", "downstream_latency")
    )
    stamps = [r["ts_ns"].to_numpy() for r in (lookups, calls)]
    step = max(int(np.median(np.diff(s))) for s in stamps)
    first, last = min(s[0] for s in stamps), max(s[-1] for s in stamps)
    bins = int((last - first) // step) + 1

    def summed(frame: pl.DataFrame, column: str) -> Floats:
        slot = (frame["ts_ns"].to_numpy() - first) // step
        kept = (slot >= 0) & (slot < bins)
        return np.bincount(slot[kept], frame[column].to_numpy()[kept], bins).astype(np.float64)

    with np.errstate(invalid="ignore", divide="ignore"):
        known = summed(lookups, "den")
        seconds = step / 1e9
        return Side(
            np.where(known > 0, known / seconds, np.nan),
            np.where(known > 0, summed(lookups, "num") / seconds, np.nan),
            summed(calls, "num") / summed(calls, "den"),
            summed(times, "num") / summed(times, "den"),
        )
