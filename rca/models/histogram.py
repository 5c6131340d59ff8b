"""A histogram as Prometheus keeps it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """Counts below each bound, as Prometheus keeps them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[tuple[str, dict[str, str], float]]:
        """Cumulative buckets, sum and count, as (name, extra labels, value)."""
        running = 0
        for bound, count in zip([*self.bounds, None], self.counts, strict=True):
            running += count
            yield f"{name}_bucket", {"le": "+Inf" if bound is None else str(bound)}, running
        yield f"{name}_sum", {}, self.total
        yield f"{name}_count", {}, running
