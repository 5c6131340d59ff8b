"""Signals without the shape of their day, where the baseline is long enough to know it.

Every morning latency rises with demand, and an hour of it looks like an incident beside a whole day.
Where the baseline lasts a day, each value is held against the usual one at that time of day: what is
left is on the level of the whole baseline, on both sides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.signals import Points, Signal, Times, Values, meanings

_DAY_NS = 86_400 * 1_000_000_000
_LEAST_DAYS = 0.8
_SLOT_NS = 900 * 1_000_000_000
"""The shape is known by quarters of an hour."""
_FEWEST = 5
"""Points of the baseline that a quarter of an hour needs."""
_NEIGHBOURS = 2
"""Slots on either side that share in a slot's median, so that one day's noise is no shape."""
_LEAST_KNOWN = 0.9
"""Part of the incident's points at whose time of day the baseline must be known."""
_TINY = 1e-12
_SHARES = ("share", "ratio")


def flattened(signal: Signal) -> Signal:
    """The signal less the shape of its day; as it is where the baseline does not tell one.

    Shares are set off by the difference from the usual value, other values by the ratio.
    """
    times = signal.baseline.ts_ns
    if not len(times) or times[-1] - times[0] < _LEAST_DAYS * _DAY_NS:
        return signal
    is_share = signal.role in meanings() and meanings()[signal.role].unit in _SHARES
    shape = _shape(signal.baseline, is_share)
    known = np.isfinite(shape[_slots(signal.incident.ts_ns)])
    if not len(known) or known.mean() < _LEAST_KNOWN:
        return signal
    level = _middle(signal.baseline.values, is_share)
    return replace(
        signal,
        incident=_left(signal.incident, shape, level, is_share),
        baseline=_left(signal.baseline, shape, level, is_share),
    )


def _slots(times: Times) -> Times:
    slots: Times = times % _DAY_NS // _SLOT_NS
    return slots


def _middle(values: Values, is_share: bool) -> float:
    """The mean of shares, which are often few events and many zeros; else the median."""
    return float(np.mean(values) if is_share else np.median(values))


def _shape(points: Points, is_share: bool) -> Values:
    """Usual value by quarter of an hour of the day (UTC) and its neighbours, NaN where too few are known."""
    count = _DAY_NS // _SLOT_NS
    slots, values = _slots(points.ts_ns), points.values
    by_slot = [values[slots == i] for i in range(count)]
    shape = np.full(count, np.nan)
    for i in range(count):
        near = [by_slot[(i + k) % count] for k in range(-_NEIGHBOURS, _NEIGHBOURS + 1)]
        usual = [_middle(v, is_share) for v in near if len(v) >= _FEWEST]
        if len(by_slot[i]) >= _FEWEST:
            shape[i] = float(np.median(usual))
    return shape


def _left(points: Points, shape: Values, level: float, is_share: bool) -> Points:
    """Points on the level of the whole day; those at an unknown time of day stay as they are."""
    usual = _between(points.ts_ns, shape)
    usual = np.where(np.isfinite(usual), usual, level)
    if is_share:
        return points._replace(num=points.num + points.den * (level - usual))
    return points._replace(num=points.num * (max(level, _TINY) / np.maximum(usual, _TINY)))


def _between(times: Times, shape: Values) -> Values:
    """The shape at each time, straight between the middles of slots; NaN beside an unknown one."""
    place = times % _DAY_NS / _SLOT_NS - 0.5
    low = np.floor(place).astype(np.int64)
    share = place - low
    count = len(shape)
    before, after = shape[low % count], shape[(low + 1) % count]
    own = shape[_slots(times)]
    mixed = (1 - share) * before + share * after
    found: Values = np.where(np.isfinite(mixed), mixed, own)
    return found
