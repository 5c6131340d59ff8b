"""Prometheus' arithmetic on a grid of scrapes: rates, means, slopes, and when an alert fires.

The same as promtool computes for `alerts.test.yml`; whether the left edge of a range belongs to it
changed with Prometheus 3, so both readings are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Values = npt.NDArray[np.float64]
"""One value a scrape, NaN where there is none."""


class Watched(NamedTuple):
    """One expression over series on the same grid.

    Attributes:
        how: 'gauge', 'rate', 'ratio' (of rates), 'gratio' (of gauges) or 'slope'.
        top, bottom: One row a series; `bottom` is empty but for ratios.
    """

    how: str
    mean: bool
    scale: float
    top: Values
    bottom: Values


def values(watched: Watched, steps: int, step_s: float, *, closed: bool) -> Values:
    """The expression at every scrape; `closed` takes the sample at the left edge of a range along."""
    inside = steps + 1 if closed else steps

    def over_series(rows: Values) -> Values:
        """sum() of what the expression makes of each series, or avg() of gauges."""
        if watched.how in ("rate", "ratio"):
            parts, mean = [_rate(row, inside, steps, step_s) for row in rows], False
        elif watched.how == "slope":
            parts, mean = [_slope(row, inside, step_s) for row in rows], False
        else:
            parts, mean = [_mean(row, inside) for row in rows], watched.mean
        return _total(np.array(parts).reshape(len(rows), watched.top.shape[1]), mean)

    found = over_series(watched.top)
    if watched.how in ("ratio", "gratio"):
        bottom = over_series(watched.bottom)
        found = np.divide(found, bottom, out=np.full_like(found, np.nan), where=bottom != 0)
    return found * watched.scale


def firing(found: Values, threshold: float, side: str, for_steps: int) -> npt.NDArray[np.bool_]:
    """At which scrapes the alert fires: the condition held without a break for so many steps."""
    with np.errstate(invalid="ignore"):
        held = found > threshold if side == "up" else found < threshold
    since = 0
    fires = np.zeros(len(found), dtype=bool)
    for at, holds in enumerate(held):
        since = since + 1 if holds else 0
        fires[at] = since > for_steps
    return fires


def _ranges(row: Values, inside: int) -> Values:
    """The samples of the range that ends at each scrape, (scrapes, inside); NaN before the first."""
    return sliding_window_view(np.concatenate([np.full(inside - 1, np.nan), row]), inside)


def _rate(row: Values, inside: int, steps: int, step_s: float) -> Values:
    """rate() of one counter at each scrape, resets undone, extrapolated as Prometheus does."""
    at = np.arange(len(row))
    ranges = _ranges(row, inside)
    seen = ~np.isnan(ranges)
    count = seen.sum(axis=1)
    first, last = seen.argmax(axis=1), inside - 1 - seen[:, ::-1].argmax(axis=1)
    oldest, newest = ranges[at, first], ranges[at, last]
    fallen = np.where(np.arange(inside) > first[:, None], _ranges(_falls(row), inside), 0.0)
    gained = newest - oldest + np.nansum(fallen, axis=1)
    begin = at - (inside - 1)
    first_s, last_s = (begin + first) * step_s, (begin + last) * step_s
    sampled = last_s - first_s
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = sampled / (count - 1)
        ahead, behind = first_s - (at - steps) * step_s, at * step_s - last_s
        to_zero = np.where((gained > 0) & (oldest >= 0), sampled * oldest / gained, np.inf)
        ahead = np.minimum(ahead, to_zero)
        reach = sampled + np.where(ahead < 1.1 * gap, ahead, gap / 2)
        reach += np.where(behind < 1.1 * gap, behind, gap / 2)
        rate = gained * (reach / sampled) / (steps * step_s)
    return np.where(count < 2, np.nan, rate)


def _falls(row: Values) -> Values:
    """What a counter had before each reset, at the first sample after it; else 0."""
    falls = np.zeros(len(row))
    seen = np.flatnonzero(~np.isnan(row))
    points = row[seen]
    falls[seen[1:]] = np.where(np.diff(points) < 0, points[:-1], 0.0)
    return falls


def _slope(row: Values, inside: int, step_s: float) -> Values:
    """deriv() of one gauge at each scrape: least squares, per second."""
    y = _ranges(row, inside)
    x = np.where(np.isnan(y), np.nan, np.arange(inside) * step_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        count = (~np.isnan(y)).sum(axis=1, keepdims=True)
        x = x - np.nansum(x, axis=1, keepdims=True) / count
        y = y - np.nansum(y, axis=1, keepdims=True) / count
        slope = np.nansum(x * y, axis=1) / np.nansum(x * x, axis=1)
    return np.where(count[:, 0] < 2, np.nan, slope)


def _mean(row: Values, inside: int) -> Values:
    """avg_over_time() of one gauge at each scrape."""
    ranges = _ranges(row, inside)
    with np.errstate(invalid="ignore"):
        mean: Values = np.nansum(ranges, axis=1) / (~np.isnan(ranges)).sum(axis=1)
    return mean


def _total(parts: Values, mean: bool) -> Values:
    """sum() or avg() over the series that have a value at each scrape; NaN where none has."""
    known = (~np.isnan(parts)).sum(axis=0)
    total = np.where(known > 0, np.nansum(parts, axis=0), np.nan)
    return total / np.maximum(known, 1) if mean else total
