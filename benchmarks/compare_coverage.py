"""How often the intervals of `rca compare` hold when nothing changed: queues against themselves.

python benchmarks/compare_coverage.py prints, for a light and a busy queue of eight servers, with the
same arrivals on both sides and with others, the share of repeats in which the interval of P95's
change covers zero, and in which a throughput loss of at most 5 % is shown.
"""

from __future__ import annotations

import numpy as np

from rca.compare import estimates
from rca.compare.estimates import Completed, Values

REPEATS, REQUESTS, RATE, SERVERS = 300, 1200, 10.0, 8


def arrivals(draws: np.random.Generator) -> Values:
    """Arrival times in s of Poisson traffic."""
    return np.cumsum(draws.exponential(1 / RATE, REQUESTS))


def served(arrived: Values, load: float, draws: np.random.Generator) -> Values:
    """End times in s, first come first served."""
    free, ends = np.zeros(SERVERS), np.empty(REQUESTS)
    lengths = draws.gamma(2, load * SERVERS / RATE / 2, REQUESTS)
    for i in range(REQUESTS):
        server = free.argmin()
        free[server] = ends[i] = max(arrived[i], free[server]) + lengths[i]
    return ends


def completed(arrived: Values, ends: Values) -> Completed:
    """What was done when, for the rate."""
    first, last = int(arrived[0] * 1e9), int(ends.max() * 1e9)
    return Completed((ends * 1e9).astype(np.int64), np.ones(REQUESTS), first, last)


def repeat(load: float, replayed: bool, draws: np.random.Generator) -> tuple[bool, bool]:
    """Whether P95's interval covers no change, and whether throughput passes its limit."""
    first = arrivals(draws)
    second = first if replayed else arrivals(draws)
    ends = served(first, load, draws), served(second, load, draws)
    waits = ends[0] - first, ends[1] - second
    wider = estimates.inflation(waits[0], 0.95), estimates.inflation(waits[1], 0.95)
    change = estimates.quantile_change(np.sort(waits[0]), np.sort(waits[1]), 0.95, "p95", wider)
    rate = estimates.rate_change(completed(first, ends[0]), completed(second, ends[1]), "rate")
    assert change.low is not None and change.high is not None and rate.low is not None
    return change.low <= 0 <= change.high, -np.expm1(rate.low) <= 0.05


def main() -> None:
    """Print one line a setting."""
    draws = np.random.default_rng(0)
    print("load  arrivals  P95 interval covers  throughput limit passes")
    for load in (0.3, 0.7):
        for replayed in (True, False):
            covers, passes = np.mean(
                [repeat(load, replayed, draws) for _ in range(REPEATS)], axis=0
            )
            name = "replayed" if replayed else "others"
            print(f"{load:.0%}   {name:<8}  {covers:>19.0%}  {passes:>23.0%}")


if __name__ == "__main__":
    main()
