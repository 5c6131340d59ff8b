"""Skew of the clock of traces against that of the metrics, written to source.shift_ns.

A server counts a request when it ends. Spans moved by the right shift therefore fall into the
same scrapes, and into the same latency buckets, as the counters' gains; the correlation over the
shift is a triangle as wide as two scrapes. A counter never shows a request before its end, but
may show it late: an answer of `query_range` has the last scrape before each step, up to one
interval old. So each target bounds the shift from both sides, and the shift applied is the
smallest that no target contradicts: where there is no skew, none is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.clock import hosts

Floats = npt.NDArray[np.float64]

FEWEST_SCRAPES = 20
FEWEST_SPANS = 60
LEAST_PEAK = 4.5
"""Peak of the correlation against its own scatter far from the peak."""
LEAST_FIT = 0.75
"""Correlation of the peak's shape with the triangle that scrapes make of one true lag."""
CLEAR_PEAK, CLEAR_FIT, CLEAR_MARGIN = 9.0, 0.6, 2.0
"""A peak this high needs less of the shape, if it is also so many times the next best: many lags bring noise."""
LEAST_SHIFT_S = 1.0
LARGEST_ERROR_S = 3.0
"""A target whose lag is no better known than this says nothing."""
_COARSE = 0.05
"""Error in scrape intervals that resampling does not see: ends of spans and of counts differ a little."""
_REACH_S = 75.0
"""Lags that are looked for: clocks may be a minute apart, and the peak must stand within the reach."""
_LEAST_SHARED = 1 / 3
"""Part of a recording that spans and counts must still share at the largest lag."""
_LOCAL = 9
_RESAMPLES = 100
_BLOCK = 4
_DROP = 2.0
"""Log likelihood below the best at which a shift counts as contradicted (about 95 %)."""


@dataclass(frozen=True)
class Target:
    """One scraped process: what it counted and the spans that it should have counted.

    Attributes:
        edges_s: Ends of the scrape intervals, and the start of the first.
        counts: Requests finished, a row for each latency bucket, a column for each interval.
        ends_s: Ends of the spans in each bucket, sorted.
    """

    name: str
    edges_s: Floats
    counts: Floats
    ends_s: list[Floats]

    @property
    def step_s(self) -> float:
        """Distance of scrapes."""
        return float(np.median(np.diff(self.edges_s)))

    def spans_inside(self, lag_s: float) -> int:
        """Spans that end within the scrapes when they are moved by `lag_s`."""
        first, last = self.edges_s[0] - lag_s, self.edges_s[-1] - lag_s
        return sum(int(((t > first) & (t < last)).sum()) for t in self.ends_s)


class Lag(NamedTuple):
    """What must be added to the spans' times for them to fall into the scrapes that counted them."""

    name: str
    lag_s: float
    error_s: float
    step_s: float


class Skew(NamedTuple):
    """The shifts that no target contradicts, and the one to apply."""

    low_s: float
    high_s: float
    shift_s: float


def align(case: Case) -> None:
    """Write host_clock, source.shift_ns for every trace source, and notes with the estimates.

    Sources of which one calls the other keep their clocks together.
    """
    case.execute("DELETE FROM ingest_note WHERE code IN ('clock_skew', 'clock_skew_unknown')")
    case.execute("UPDATE source SET shift_ns = 0, shift_error_ns = NULL WHERE kind = 'trace'")
    linked = hosts.align(case)
    traces = dict(case.rows(
        "SELECT id, part FROM source WHERE kind = 'trace' AND n_rows > 0 ORDER BY id"
    ))  # fmt: skip
    groups = {
        next((g for g in linked if i in g), frozenset({i})): part for i, part in traces.items()
    }
    shifts: dict[int, tuple[int, int | None]] = {}
    for group, part in groups.items():
        shift_ns, error_ns, code, message = _skew(case, sorted(group), part)
        for source_id in sorted(group & traces.keys()):
            shifts[source_id] = shift_ns, error_ns
            _note(case, source_id, code, message)
    # All at once: spans of other sources are timed by them.
    for source_id, found in shifts.items():
        case.execute(
            "UPDATE source SET shift_ns = ?, shift_error_ns = ? WHERE id = ?",
            (*found, source_id),
        )


def _skew(case: Case, source_ids: list[int], part: str) -> tuple[int, int | None, str, str]:
    """The shift of sources that share a clock and its error, ns; code and text of the note."""
    targets = load(case, source_ids, part)
    lags = [lag for t in targets if (lag := estimate(t))]
    if not lags:
        return 0, None, "clock_skew_unknown", _why_unknown(targets)
    skew = combine(lags, late_s=0.0 if _is_raw(case, part) else max(x.step_s for x in lags))
    error_ns = round((skew.high_s - skew.low_s) * 500) * 1_000_000
    shift_ns = round(skew.shift_s * 1000) * 1_000_000
    return shift_ns, error_ns, "clock_skew", _wording(skew, lags)


def load(case: Case, source_ids: list[int], part: str) -> list[Target]:
    """Targets of the metrics of one part whose requests the trace sources have."""
    counts = case.sql(
        "SELECT role, service, replica, coalesce(longer_than, -1) AS longer_than, up_to, ts_ns, "
        "CAST(greatest(n, 0) AS DOUBLE) AS n FROM served_count WHERE part = ? ORDER BY ALL",
        (part,),
    )
    spans = case.sql(
        "SELECT role, service, replica, end_ns, seconds FROM served_span WHERE recorded_in IN (SELECT unnest(?)) "
        "ORDER BY ALL",
        (source_ids,),
    )
    if counts.is_empty() or spans.is_empty():
        return []
    return [
        target
        for role, key in (("e2e_latency", "replica"), ("gateway_latency", "service"))
        for target in _targets(
            counts.filter(pl.col("role") == role), spans.filter(pl.col("role") == role), key
        )
    ]


def _targets(counts: pl.DataFrame, spans: pl.DataFrame, key: str) -> list[Target]:
    """One target for each value of `key` on both sides; engines of unknown replicas are one."""
    shared = set(counts[key].unique()) & set(spans[key].unique()) - {""}
    if not shared and key == "replica" and not (counts.is_empty() or spans.is_empty()):
        whole = _target("all engines", counts, spans)
        return [whole] if whole else []
    found = (
        _target(name, counts.filter(pl.col(key) == name), spans.filter(pl.col(key) == name))
        for name in sorted(shared)
    )
    return [t for t in found if t]


def _target(name: str, counts: pl.DataFrame, spans: pl.DataFrame) -> Target | None:
    times, column = np.unique(counts["ts_ns"].to_numpy(), return_inverse=True)
    if len(times) < FEWEST_SCRAPES:
        return None
    step = int(np.median(np.diff(times)))
    edges = (np.concatenate([[times[0] - step], times]) - times[0]) / 1e9
    ends = (spans["end_ns"].to_numpy() - times[0]) / 1e9
    seconds = spans["seconds"].to_numpy()
    limits = counts.select("longer_than", "up_to").to_numpy()
    bounds, row = np.unique(limits, axis=0, return_inverse=True)
    matrix = np.zeros((len(bounds), len(times)))
    np.add.at(matrix, (row.ravel(), column), counts["n"].to_numpy())
    kept = np.flatnonzero(matrix.sum(axis=1) > 0)
    inside = [np.sort(ends[(seconds > low) & (seconds <= high)]) for low, high in bounds[kept]]
    return Target(name, edges, matrix[kept], inside)


def estimate(target: Target) -> Lag | None:
    """The lag of one target, None when its peak does not stand out or is badly known."""
    step = target.step_s
    if not len(target.counts):
        return None
    whole = float(target.edges_s[-1] - target.edges_s[0])
    reach = min(max(4 * step, _REACH_S), whole * (1 - _LEAST_SHARED))
    fine = min(1.0, step / 4)
    lags = np.arange(-np.floor(reach / fine), np.floor(reach / fine) + 1) * fine
    product = _products(target, lags)
    peak = _peak(product.sum(axis=1), lags, step)
    at = peak.lag_s
    if not peak.stands_out or abs(at) > reach - step or target.spans_inside(at) < FEWEST_SPANS:
        return None
    error = _error(product, lags, step)
    return (
        Lag(target.name, at, error, step)
        if error <= LARGEST_ERROR_S * max(1.0, step / 15)
        else None
    )


def _products(target: Target, lags: Floats) -> Floats:
    """Agreement of spans and counts, a row for each lag, a column for each interval."""
    total = np.zeros((len(lags), target.counts.shape[1]))
    for counts, ends in zip(target.counts, target.ends_s, strict=True):
        edges = (target.edges_s[None, :] - lags[:, None]).ravel()
        cumulated = np.searchsorted(ends, edges, side="right").reshape(len(lags), -1)
        total += _surplus(np.diff(cumulated, axis=1).astype(np.float64)) * _surplus(
            counts[None, :]
        )
    return total


def _surplus(counts: Floats) -> Floats:
    """Counts against their local mean, in units of their Poisson scatter."""
    width = min(_LOCAL, counts.shape[1])
    half = width // 2
    padded = np.cumsum(np.pad(counts, ((0, 0), (half + 1, half))), axis=1)
    ones = np.cumsum(np.pad(np.ones((1, counts.shape[1])), ((0, 0), (half + 1, half))), axis=1)
    span = 2 * half + 1
    mean = (padded[:, span:] - padded[:, :-span]) / (ones[:, span:] - ones[:, :-span])
    surplus: Floats = (counts - mean) / np.sqrt(mean + 0.5)
    return surplus


class _Peak(NamedTuple):
    """The best triangle: its place, its correlation with the score, its height in scatters of what is
    far from it, and how many times the height of the next best that is."""

    lag_s: float
    fit: float
    height: float = 0.0
    margin: float = 0.0

    @property
    def stands_out(self) -> bool:
        """Whether it is the one lag that the score speaks of."""
        clear = self.height >= CLEAR_PEAK and self.margin >= CLEAR_MARGIN
        return self.height >= LEAST_PEAK and self.fit >= (CLEAR_FIT if clear else LEAST_FIT)


def _peak(score: Floats, lags: Floats, step: float) -> _Peak:
    """The triangle that fits the score best."""
    places, shapes = _triangles(lags, step)
    centred = score - score.mean()
    fits = shapes @ centred / max(float(np.sqrt((centred**2).sum())), 1e-300)
    best = int(np.argmax(fits))
    lag_s, fit = float(places[best]), float(fits[best])
    far = np.abs(lags - lag_s) > 1.5 * step
    if far.sum() < 4:
        return _Peak(lag_s, fit)
    scatter, level = float(np.std(score[far])), float(np.median(score[far]))
    height = float(score[int(np.argmin(np.abs(lags - lag_s)))]) - level
    rival = float(score[far].max()) - level
    return _Peak(lag_s, fit, height / max(scatter, 1e-300), height / max(rival, 1e-300))


def _triangles(lags: Floats, step: float) -> tuple[Floats, Floats]:
    """Places of a true lag and the shape that each gives the score, centred and of length 1."""
    places = np.arange(lags[0], lags[-1] + 1e-9, (lags[1] - lags[0]) / 4)
    shapes = np.maximum(0.0, 1.0 - np.abs(lags[None, :] - places[:, None]) / step)
    shapes -= shapes.mean(axis=1, keepdims=True)
    shapes /= np.sqrt((shapes**2).sum(axis=1, keepdims=True))
    return places, shapes


def _error(product: Floats, lags: Floats, step: float) -> float:
    """Standard error of the lag, by resampling blocks of neighbouring intervals."""
    cells = product.shape[1]
    random = np.random.default_rng(cells)
    starts = random.integers(0, cells, (_RESAMPLES, -(-cells // _BLOCK)))
    index = ((starts[:, :, None] + np.arange(_BLOCK)) % cells).reshape(_RESAMPLES, -1)[
        :, :cells
    ]
    weights = np.zeros((_RESAMPLES, cells))
    np.add.at(weights, (np.arange(_RESAMPLES)[:, None], index), 1.0)
    places, shapes = _triangles(lags, step)
    found = places[np.argmax(weights @ product.T @ shapes.T, axis=1)]
    low, high = np.percentile(found, (16, 84))
    return float(np.hypot((high - low) / 2, _COARSE * step))


def combine(lags: list[Lag], late_s: float) -> Skew:
    """The shifts that agree with all lags when each may be late by 0 to `late_s`."""
    reach = max(abs(x.lag_s) for x in lags) + late_s + 10.0
    shifts = np.arange(-np.ceil(reach * 10), np.ceil(reach * 10) + 1) / 10
    likely = np.array([sum(_log_chance(x, s, late_s) for x in lags) for s in shifts])
    held = shifts[likely >= likely.max() - _DROP]
    low, high = float(held[0]), float(held[-1])
    if low <= 0.0 <= high:
        return Skew(low, high, 0.0)
    nearest = (low + high) / 2 if late_s <= 0 else min(low, high, key=abs)
    return Skew(low, high, nearest if abs(nearest) > LEAST_SHIFT_S else 0.0)


def _log_chance(lag: Lag, shift: float, late_s: float) -> float:
    """Log likelihood of a lag when the counter is late by anything from 0 to `late_s`."""
    over = (lag.lag_s - shift) / lag.error_s
    if late_s <= 0:
        return -0.5 * over * over
    inside = _below(over) - _below(over - late_s / lag.error_s)
    return float(np.log(max(inside, 1e-30)))


def _below(z: float) -> float:
    return 0.5 * erfc(-z / sqrt(2))


def _is_raw(case: Case, part: str) -> bool:
    """Whether samples carry the times of their scrapes: targets are then scraped at different times."""
    phases = case.scalar(
        """
        SELECT count(DISTINCT phase) FROM (
            SELECT s.labels['instance'] AS instance, min(v.ts_ns) % 1000000000 AS phase
            FROM sample AS v
            JOIN series AS s ON s.id = v.series_id
            JOIN source AS src ON src.id = s.source_id
            WHERE src.part = ? AND s.name IN (
                SELECT name FROM series WHERE id IN (SELECT series_id FROM series_role
                    WHERE role IN ('e2e_latency', 'gateway_latency')))
            GROUP BY instance
        )
        """,
        (part,),
    )
    return int(phases or 0) > 1


def _why_unknown(targets: list[Target]) -> str:
    if not targets:
        return "skew against the metrics is not known: no counter of finished requests goes with these spans"
    return (
        "skew against the metrics is not known: too few spans or scrapes, or no lag stands out "
        f"({', '.join(t.name for t in targets)})"
    )


def _wording(skew: Skew, lags: list[Lag]) -> str:
    seen = ", ".join(f"{x.name} {x.lag_s:+.1f} ± {1.96 * x.error_s:.1f} s" for x in lags)
    within = f"shifts from {skew.low_s:+.1f} to {skew.high_s:+.1f} s agree with the metrics"
    done = f"shifted by {skew.shift_s:+.1f} s" if skew.shift_s else "not shifted"
    return f"{done}: {within}; lags: {seen}"


def _note(case: Case, source_id: int, code: str, message: str) -> None:
    row = {
        "source_id": source_id,
        "level": "info",
        "code": code,
        "message": message,
        "count": 1,
    }
    case.insert("ingest_note", pl.DataFrame([row]))
