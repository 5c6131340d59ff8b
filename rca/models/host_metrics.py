"""What exporters would tell of the modelled host: DCGM, cAdvisor and node_exporter, by their own names.

The GPU is a formula, and its label `modelName` says so. A host that has none of it has no series.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from rca.models.engine import Engine
from rca.models.gateway import Admission
from rca.models.settings import SECOND

DCGM_JOB = {"job": "dcgm-exporter", "instance": "node-a:9400", "Hostname": "node-a"}
NODE_JOB = {"job": "node", "instance": "node-b:9100"}  # the gateway's
_GPU = {"gpu": "0", "UUID": "GPU-0", "modelName": "cost model, no GPU was measured"}
_CONTAINER = {"container": "llm-engine", "namespace": "llm"}
_MHZ = 1980
_COOL, _HOT = 61.0, 88.0
_HEATS_IN_S = 4.0
_IDLE_W, _BUSY_W = 110, 560
_BY_HEAT = 0x20  # "software thermal slowdown" among DCGM's reasons

Line = tuple[dict[str, str], str, dict[str, str], float]


class HostMetrics:
    """Follows the clock of one part."""

    def __init__(self) -> None:
        self._segments: list[tuple[int, int]] = []  # when they are sent again, how many
        self._sent_again = 0
        self._before = (0, 0)  # of the last scrape: time, busy ns
        self._hot_since_ns: int | None = None

    def expect(self, admission: Admission) -> None:
        """Know of what the network will lose."""
        lost = [(r.ready_ns, r.resent) for r in admission.requests if r.resent]
        self._segments = sorted([*self._segments, *lost], reverse=True)

    def lines(self, engine: Engine, job: dict[str, str], at_ns: int) -> Iterator[Line]:
        """Job, name, labels and value of each series."""
        if engine.plan.host.has_gpu:
            yield from self._gpu(engine, job, at_ns)
        if engine.quota is not None:
            yield from _container(engine, job)
        if engine.plan.host.has_network:
            while self._segments and self._segments[-1][0] <= at_ns:
                self._sent_again += self._segments.pop()[1]
            yield NODE_JOB, "node_netstat_Tcp_RetransSegs", {}, self._sent_again

    def _gpu(self, engine: Engine, job: dict[str, str], at_ns: int) -> Iterator[Line]:
        share = engine.plan.host.clock_share
        jitter = random.Random(f"gpu:{at_ns}")
        if share >= 1:
            self._hot_since_ns = None
        elif self._hot_since_ns is None:
            self._hot_since_ns = at_ns
        warmed = 0.0
        if self._hot_since_ns is not None:
            warmed = 1 - math.exp(-(at_ns - self._hot_since_ns + SECOND) / SECOND / _HEATS_IN_S)
        busy = self._busy(engine, at_ns)
        watts = _IDLE_W + (_BUSY_W - _IDLE_W) * busy * share**2
        values = {
            "DCGM_FI_DEV_SM_CLOCK": round(_MHZ * share) + 15 * (jitter.randrange(3) - 1),
            "DCGM_FI_DEV_GPU_TEMP": round(
                _COOL + (_HOT - _COOL) * warmed + jitter.uniform(-1, 1)
            ),
            "DCGM_FI_DEV_POWER_USAGE": round(watts + jitter.uniform(-4, 4), 1),
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _BY_HEAT if share < 1 else 0,
            "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
        }
        for name, value in values.items():
            yield DCGM_JOB, name, {**_GPU, "pod": job["pod"]}, value

    def _busy(self, engine: Engine, at_ns: int) -> float:
        """Share of the time since the last scrape in which the engine computed."""
        (before_ns, spent_ns), self._before = self._before, (at_ns, engine.busy_ns)
        if not before_ns or engine.busy_ns < spent_ns or at_ns <= before_ns:
            return 0.5
        return min(1.0, (engine.busy_ns - spent_ns) / (at_ns - before_ns))


def _container(engine: Engine, job: dict[str, str]) -> Iterator[Line]:
    quota = engine.quota
    if quota is None:
        return
    used = engine.busy_ns / SECOND
    values = {
        "container_cpu_usage_seconds_total": round(used, 3),
        "container_cpu_cfs_periods_total": quota.periods,
        "container_cpu_cfs_throttled_periods_total": quota.throttled,
        "container_cpu_cfs_throttled_seconds_total": round(quota.throttled_ns / SECOND, 3),
    }
    for name, value in values.items():
        yield job, name, _CONTAINER, value
