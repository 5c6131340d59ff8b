"""A container's CPU limit as the kernel keeps it: so much CPU time a period, then nothing."""

from __future__ import annotations

from rca.models.settings import MS

_PERIOD_NS = 100 * MS


class CpuQuota:
    """Stretches work that needs more CPU time than a period has left.

    Attributes:
        periods: in which anything ran.
        throttled: of them, those in which the limit stopped it.
        throttled_ns: how long it was stopped.
    """

    def __init__(self, cores: float) -> None:
        self.quota_ns = round(cores * _PERIOD_NS)
        self.periods = self.throttled = self.throttled_ns = 0
        self._period, self._used_ns = -1, 0

    def stretch(self, at_ns: int, lasts_ns: int, cpu_ns: int) -> int:
        """How long work takes that begins at `at_ns`, ns.

        Args:
            at_ns: its begin.
            lasts_ns: how long it takes without a limit.
            cpu_ns: CPU time of all its threads.
        """
        now_ns, left_ns, cores = at_ns, lasts_ns, max(cpu_ns, 1) / max(lasts_ns, 1)
        while left_ns > 0:
            ends_ns = self._enter(now_ns)
            may_ns = int((self.quota_ns - self._used_ns) / cores)
            ran_ns = min(left_ns, may_ns, ends_ns - now_ns)
            self._used_ns += round(ran_ns * cores)
            now_ns, left_ns = now_ns + ran_ns, left_ns - ran_ns
            if left_ns and now_ns < ends_ns:
                self.throttled += 1
                self.throttled_ns += ends_ns - now_ns
                now_ns = ends_ns
        return now_ns - at_ns

    def _enter(self, at_ns: int) -> int:
        """Begin the period of a time, unless it is the present one; returns its end."""
        period = at_ns // _PERIOD_NS
        if period != self._period:
            self._period, self._used_ns = period, 0
            self.periods += 1
        return (period + 1) * _PERIOD_NS
