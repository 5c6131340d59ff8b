"""Latency beyond what demand explains: what is left when sizes and recent arrivals are accounted for.

A service at half of its capacity has bursts that double latency for some seconds and mean nothing.
They come with requests that arrived shortly before, and those are known. On healthy time the
logarithm of a latency is regressed on the size of the request and on the work that arrived in
windows of one, three and eight typical requests before it and one after; the mean latency of a
scrape on the rate of requests that the gateway answered then and in the three scrapes before. The
residuals are a signal of their own, on which a slower build stands out that a burst would hide.
Arrivals cause latency and are not caused by it, unlike the number of requests in flight, which must
not be used here; answers fall behind arrivals when a service is slow, which hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rca.signals import EMPTY, Points, Signal, Times, Values

MARK = "|demand"
"""Ends the role of a signal of residuals."""
_LATENCIES = ("e2e_latency", "ttft", "itl")
_LATENCIES_OF_SCRAPES = (*_LATENCIES, "gateway_latency")
_SIZES = ("prompt_tokens", "output_tokens")
_WINDOWS = (1.0, 3.0, 8.0)
"""Typical requests before an arrival whose work counts."""
_LAGS = (0, 1, 2, 3)
_FEWEST = 30
_RIDGE = (3.0, 0.02)
"""Penalty on coefficients: a constant and a share of the number of points."""
_HUBER = 1.345
_TINY = 1e-9
_Side = Callable[[Signal], Points]


def residuals(signals: Sequence[Signal]) -> list[Signal]:
    """Signals of log residuals for latencies of requests and of scrapes, on both sides.

    The regression is fitted on the baseline, or on the incident side where there is none: it is
    robust, and a shift of the level is no function of demand. Values are natural logarithms.
    """
    traced = [s for s in signals if s.source == "trace"]
    scraped = [s for s in signals if s.source == "metrics"]
    made = [_of_requests(s, traced) for s in traced if s.role in _LATENCIES]
    made += [_of_scrapes(s, scraped) for s in scraped if s.role in _LATENCIES_OF_SCRAPES]
    return [m for m in made if m is not None]


def _of_requests(own: Signal, signals: Sequence[Signal]) -> Signal | None:
    same = {s.role: s for s in signals if s.service == own.service}
    every, side = same.get("e2e_latency"), _reference(own)
    if every is None or not len(side(every).ts_ns):
        return None
    life_ns = max(int(1e9 * float(np.median(side(every).values))), 1_000_000)
    sizes = [same[name] for name in _SIZES if name in same and len(side(same[name]).ts_ns)]

    def features(part: _Side) -> Values:
        return _around(part(every), [part(s) for s in sizes], part(own), life_ns)

    return _left(own, features)


def _of_scrapes(own: Signal, signals: Sequence[Signal]) -> Signal | None:
    side = _reference(own)
    rates = [s for s in signals if s.role == "arrival_rate" and len(side(s).ts_ns)]
    if not rates or len(side(own).ts_ns) < _FEWEST:
        return None
    busiest = max(rates, key=lambda s: (side(s).pooled(), s.service))
    step_ns = int(np.median(np.diff(side(own).ts_ns)))
    sizes = [
        s
        for s in signals
        if s.role in _SIZES and s.service == own.service and len(side(s).ts_ns)
    ]

    def features(part: _Side) -> Values:
        times = part(own).ts_ns
        recent = [_near(part(busiest), times - lag * step_ns, step_ns) for lag in _LAGS]
        recent.append(np.mean(recent, axis=0))
        logs = [np.log1p(np.maximum(_near(part(s), times, step_ns), 0.0)) for s in sizes]
        return np.column_stack([*(np.sqrt(np.maximum(r, 0.0)) for r in recent), *logs])

    return _left(own, features)


def _reference(signal: Signal) -> _Side:
    return _baseline if len(signal.baseline.ts_ns) >= _FEWEST else _incident


def _baseline(signal: Signal) -> Points:
    return signal.baseline


def _incident(signal: Signal) -> Points:
    return signal.incident


def _left(own: Signal, features: Callable[[_Side], Values]) -> Signal | None:
    side = _reference(own)
    if len(side(own).ts_ns) < _FEWEST:
        return None
    model = _Regression(features(side), _log(side(own)))
    baseline = EMPTY
    if side is _baseline:
        baseline = model.residuals(own.baseline, features(_baseline))
    incident = model.residuals(own.incident, features(_incident))
    return Signal(own.source, own.role + MARK, own.service, own.subject, incident, baseline)


def _log(points: Points) -> Values:
    logs: Values = np.log(np.maximum(points.values, _TINY))
    return logs


def _around(
    every: Points, sizes: Sequence[Points], wanted: Points, life_ns: int
) -> Values:  # (points of `wanted`, features)
    """Sizes of each request, and the root of the work that arrived around it, a second."""
    if not len(wanted.ts_ns):
        return np.zeros((0, len(sizes) + len(_WINDOWS) + 1))
    known = [_at(every.ts_ns, s) for s in sizes]
    work = np.sum(known, axis=0) if known else np.ones(len(every.ts_ns))
    total = np.concatenate(([0.0], np.cumsum(work)))
    times = wanted.ts_ns
    before = np.searchsorted(every.ts_ns, times, side="left")
    columns = [np.log1p(np.maximum(_at(times, s), 0.0)) for s in sizes]
    for lives in _WINDOWS:
        since = np.searchsorted(every.ts_ns, times - int(lives * life_ns), side="left")
        columns.append(np.sqrt((total[before] - total[since]) / lives))
    after = np.searchsorted(every.ts_ns, times, side="right")
    until = np.searchsorted(every.ts_ns, times + life_ns, side="right")
    columns.append(np.sqrt(total[until] - total[after]))
    return np.column_stack(columns)


def _near(points: Points, times: Times, step_ns: int) -> Values:
    """The value within one step of each time, the median where there is none."""
    if not len(points.ts_ns):
        return np.zeros(len(times))
    last = len(points.ts_ns) - 1
    place = np.clip(np.searchsorted(points.ts_ns, times - step_ns // 2), 0, last)
    values = points.values
    close = np.abs(points.ts_ns[place] - times) <= step_ns
    return np.where(close, values[place], np.median(values))


def _at(times: Times, size: Points) -> Values:
    """The size of the request that arrived at each time, the median where it is not recorded."""
    if not len(size.ts_ns):
        return np.zeros(len(times))
    place = np.clip(np.searchsorted(size.ts_ns, times), 0, len(size.ts_ns) - 1)
    values = size.values
    return np.where(size.ts_ns[place] == times, values[place], np.median(values))


class _Regression:
    """Ridge regression with Huber's weights, on standardised features."""

    def __init__(self, features: Values, logs: Values) -> None:
        self.centre, self.scale = features.mean(axis=0), features.std(axis=0) + _TINY
        standard = (features - self.centre) / self.scale
        # What lies outside of the healthy range is not extrapolated: it is the incident's.
        self.low, self.high = standard.min(axis=0), standard.max(axis=0)
        penalty = (_RIDGE[0] + _RIDGE[1] * len(logs)) * np.eye(features.shape[1])
        weights, self.slopes = np.ones(len(logs)), np.zeros(features.shape[1])
        for _ in range(3):
            self.level = float(np.average(logs - standard @ self.slopes, weights=weights))
            weighted = standard * weights[:, None]
            self.slopes = np.linalg.solve(
                weighted.T @ standard + penalty, weighted.T @ (logs - self.level)
            )
            left = logs - self.level - standard @ self.slopes
            limit = _HUBER * 1.4826 * float(np.median(np.abs(left))) + _TINY
            weights = np.minimum(1.0, limit / np.maximum(np.abs(left), _TINY))

    def residuals(self, points: Points, features: Values) -> Points:
        """What the regression leaves of each point."""
        standard = np.clip((features - self.centre) / self.scale, self.low, self.high)
        left = _log(points) - self.level - standard @ self.slopes
        return Points(points.ts_ns, left, np.ones(len(left)))
