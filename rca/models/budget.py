"""The wall time that an experiment may take, and how far it goes on this machine now."""

from __future__ import annotations

import time


class Budget:
    """Seconds of wall time, running since `began` (time.monotonic()), now unless given."""

    def __init__(self, seconds: float, began: float | None = None) -> None:
        self.seconds = seconds
        self._made, self._cpu = time.monotonic(), time.process_time()
        self._began = began or self._made

    def __str__(self) -> str:
        return f"the budget of {self.seconds:g} s"

    def left_s(self) -> float:
        """Seconds that are left; below zero when it is overdrawn."""
        return self.seconds - (time.monotonic() - self._began)

    def spent_ns(self) -> int:
        """Wall time since it began."""
        return round((time.monotonic() - self._began) * 1e9)

    def wall_s(self, cpu_s: float) -> float:
        """How long so much CPU time will take, others wanting the machine as they did so far."""
        spent_s = max(time.process_time() - self._cpu, 1e-3)
        return cpu_s * max(1.0, (time.monotonic() - self._made) / spent_s)
