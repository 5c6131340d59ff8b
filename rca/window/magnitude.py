"""Whether a stretch that stands out is worth a name: by how much a latency or an error rate moved.

A service with more to do is slower. A latency that grew by no more than the rate of arrivals did is
that of a busier service, and an incident only where an objective says so; of what demand leaves
unexplained the root of that factor is taken off, since demand beyond the healthy range is not extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rca.signals import Points, Signal, meanings
from rca.window.demand import MARK

MIN_RATIO = 1.12
"""A latency must have grown by this factor, both against the reference and against the lead-in."""
_LEAST_SHARE = 0.04


def matters(
    signals: Sequence[Signal], demand: Sequence[Signal], start_ns: int, end_ns: int
) -> bool:
    """Whether a latency or an error rate moved by more than a trifle, against all that is healthy.

    Args:
        signals: Symptoms, and what demand leaves of them (`rca.window.demand.residuals`).
        demand: Rates of arrival.
        start_ns: Start of the stretch; a point at this time is not in it.
        end_ns: End of the stretch.
    """
    busier = _busier(demand, start_ns, end_ns)
    for signal in signals:
        inside, healthy = _sides(signal, start_ns, end_ns)
        if len(inside.ts_ns) and healthy and _grew(signal.role, inside, healthy, busier):
            return True
    return False


def growth_alone(
    signals: Sequence[Signal], start_ns: int, end_ns: int
) -> tuple[float, str] | None:
    """The largest factor by which a latency of the stretch exceeds the median of the rest, and its role.

    Of recordings without a baseline, whose rest may hold incidents as well. None where there is no latency.
    """
    grown = []
    for signal in signals:
        inside, healthy = _sides(signal, start_ns, end_ns)
        known = meanings().get(signal.role)
        if known is None or known.unit != "s" or not healthy or not len(inside.ts_ns):
            continue
        rest = float(np.median(healthy[-1].values))
        if rest > 0:
            grown.append((float(np.median(inside.values)) / rest, signal.role))
    return max(grown, default=None)


def _busier(demand: Sequence[Signal], start_ns: int, end_ns: int) -> float:
    """Factor by which demand grew at the busiest service against its busiest healthy side, at least 1."""
    grown = []
    for signal in demand:
        inside, healthy = _sides(signal, start_ns, end_ns)
        before = max((p.pooled() for p in healthy), default=0.0)
        if len(inside.ts_ns) and before > 0:
            grown.append((before, inside.pooled() / before))
    return max(1.0, max(grown)[1]) if grown else 1.0


def _sides(signal: Signal, start_ns: int, end_ns: int) -> tuple[Points, list[Points]]:
    """Points in the stretch, and each healthy side that has enough of them."""
    times = signal.incident.ts_ns
    outside = signal.incident.pick((times <= start_ns) | (times > end_ns))
    healthy = [p for p in (signal.baseline, outside) if len(p.ts_ns) >= 3]
    return signal.incident.between(start_ns + 1, end_ns), healthy


def _grew(role: str, inside: Points, healthy: Sequence[Points], busier: float) -> bool:
    if role.endswith(MARK):
        rise = float(np.median(inside.values)) - max(
            float(np.median(p.values)) for p in healthy
        )
        return rise >= math.log(MIN_RATIO * math.sqrt(busier))
    value, before = inside.pooled(), max(p.pooled() for p in healthy)
    known = meanings()[role]
    if known.unit == "s":
        return value >= max(MIN_RATIO, busier) * before
    return value >= before + min(_LEAST_SHARE, 2 * known.least)
