"""Prometheus' arithmetic on a grid of scrapes: rates, means, slopes, and when an alert fires.

The same as promtool computes for `alerts.test.yml`; whether the left edge of a range belongs to it
changed with Prometheus 3, so both readings are computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    n = watched.top.shape[1]
    inside = steps + 1 if closed else steps
    found = np.full(n, np.nan)
    for at in range(n):
        low = max(at - inside + 1, 0)
        window_s = steps * step_s
        top = watched.top[:, low : at + 1]
        ahead_s = (at - steps) * step_s
        if watched.how in ("rate", "ratio"):
            rates = [_rate(row, low, at, ahead_s, window_s, step_s) for row in top]
            value = _total(rates, mean=False)
            if watched.how == "ratio":
                under = [
                    _rate(row, low, at, ahead_s, window_s, step_s)
                    for row in watched.bottom[:, low : at + 1]
                ]
                value = _divided(value, _total(under, mean=False))
        elif watched.how == "slope":
            value = _total([_slope(row, step_s) for row in top], mean=False)
        else:
            value = _total([_mean(row) for row in top], mean=watched.mean)
            if watched.how == "gratio":
                under = [_mean(row) for row in watched.bottom[:, low : at + 1]]
                value = _divided(value, _total(under, mean=watched.mean))
        found[at] = value * watched.scale
    return found


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


def _rate(
    row: Values, low: int, at: int, start_s: float, window_s: float, step_s: float
) -> float:
    """rate() of one counter, resets undone, extrapolated as Prometheus does."""
    seen = np.flatnonzero(~np.isnan(row))
    if len(seen) < 2:
        return float("nan")
    points = row[seen]
    falls = points[:-1][np.diff(points) < 0]
    gained = float(points[-1] - points[0] + falls.sum())
    first_s, last_s = float(low + seen[0]) * step_s, float(low + seen[-1]) * step_s
    sampled = last_s - first_s
    gap = sampled / (len(seen) - 1)
    ahead, behind = first_s - start_s, at * step_s - last_s
    if gained > 0 and points[0] >= 0:
        ahead = min(ahead, sampled * float(points[0]) / gained)
    reach: float = sampled
    reach += ahead if ahead < 1.1 * gap else gap / 2
    reach += behind if behind < 1.1 * gap else gap / 2
    return gained * (reach / sampled) / window_s


def _slope(row: Values, step_s: float) -> float:
    """deriv() of one gauge: least squares, per second."""
    seen = np.flatnonzero(~np.isnan(row))
    if len(seen) < 2:
        return float("nan")
    x, y = seen * step_s, row[seen]
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x * x).sum())


def _mean(row: Values) -> float:
    seen = row[~np.isnan(row)]
    return float(seen.mean()) if len(seen) else float("nan")


def _total(parts: list[float], *, mean: bool) -> float:
    """sum() or avg() over the series that have a value; NaN when none has."""
    known = [p for p in parts if not np.isnan(p)]
    if not known:
        return float("nan")
    return sum(known) / len(known) if mean else sum(known)


def _divided(top: float, bottom: float) -> float:
    return top / bottom if bottom else float("nan")
