"""Everything that a run leaves behind, written as one part of a bundle."""

from __future__ import annotations

import random
from pathlib import Path

from rca.models.deployment import write_yaml
from rca.models.engine import Engine
from rca.models.gateway import Admission, Request
from rca.models.otlp import Traces
from rca.models.prometheus import Metrics, engine_job
from rca.models.scheduler import Batch
from rca.models.settings import SECOND, Plan


class Telemetry:
    """An observer of one part: metrics, traces and the engine's configuration.

    Args:
        scrape_s: seconds between two scrapes.
        sampled: share of the requests whose spans are kept.
    """

    def __init__(
        self, from_ns: int, until_ns: int, seed: int, scrape_s: int = 1, sampled: float = 1.0
    ) -> None:
        self.from_ns, self.until_ns = from_ns, until_ns
        self.scrape_s, self.sampled = scrape_s, sampled
        self._rng = random.Random(f"sample:{seed}")
        self.metrics = Metrics(from_ns)
        self._by_replica = {0: self.metrics}
        self.traces = Traces(seed)
        self.finished: list[Request] = []

    def scrape(self, engine: Engine, at_ns: int) -> None:
        """Scrape while the part lasts."""
        if at_ns <= self.until_ns and at_ns // SECOND % self.scrape_s == 0:
            self._of(engine).scrape(engine, at_ns)

    def step(self, engine: Engine, batch: Batch, cost_ns: int) -> None:
        """Count a step."""
        self._of(engine).step(engine, batch, cost_ns)

    def finish(self, engine: Engine, request: Request) -> None:
        """Write the spans of a request that came and went while the part lasted."""
        self._of(engine).finish(engine, request)
        if request.arrival.at_ns >= self.from_ns and engine.now_ns <= self.until_ns:
            if self._rng.random() < self.sampled:
                pod = engine_job(engine.replica)["pod"]
                self.traces.add(request, engine.plan, pod)
            self.finished.append(request)

    def _of(self, engine: Engine) -> Metrics:
        if engine.replica not in self._by_replica:
            self._by_replica[engine.replica] = Metrics(
                self.from_ns, engine.replica, self.metrics
            )
        return self._by_replica[engine.replica]

    def expect(self, admission: Admission) -> None:
        """Know of what the gateway let through, and write what it turned away."""
        self.metrics.expect(admission)
        for arrival in admission.rejected:
            if (
                self.from_ns <= arrival.at_ns <= self.until_ns
                and self._rng.random() < self.sampled
            ):
                self.traces.reject(arrival)

    def write(self, folder: Path, plan: Plan) -> None:
        """Write metrics.json.gz, traces.jsonl.gz and config/llm-engine.yaml."""
        folder.mkdir(parents=True, exist_ok=True)
        self.metrics.write(folder / "metrics.json.gz")
        self.traces.write(folder / "traces.jsonl.gz")
        write_yaml(plan, folder / "config" / "llm-engine.yaml")


def first_slow_ns(done: list[Request], fault_ns: int, until_ns: int, lasts_s: int = 10) -> int:
    """When requests became slow: a third slower than the lead-in, in each ten seconds of the next `lasts_s`."""
    limit = 1.33 * _mean_e2e(done, 0, fault_ns)
    for begin_ns in range(fault_ns, until_ns, 5 * SECOND):
        begins = range(begin_ns, begin_ns + (lasts_s - 5) * SECOND, 5 * SECOND)
        if all(_mean_e2e(done, at_ns, at_ns + 10 * SECOND) > limit for at_ns in begins):
            return begin_ns
    return fault_ns


def last_slow_ns(done: list[Request], fault_ns: int, until_ns: int) -> int:
    """When requests were well again: before the first ten seconds that are not slow; `until_ns` if none were."""
    limit = 1.33 * _mean_e2e(done, 0, fault_ns)
    begin_ns = first_slow_ns(done, fault_ns, until_ns)
    while begin_ns < until_ns:
        if _mean_e2e(done, begin_ns, begin_ns + 10 * SECOND) <= limit:
            return begin_ns if begin_ns > fault_ns else until_ns
        begin_ns += 5 * SECOND
    return until_ns


def well_again_ns(done: list[Request], fault_ns: int, begin_ns: int, until_ns: int) -> int:
    """When requests were well after a fault was taken back: the first ten seconds not slow."""
    limit = 1.33 * _mean_e2e(done, 0, fault_ns)
    while begin_ns < until_ns and _mean_e2e(done, begin_ns, begin_ns + 10 * SECOND) > limit:
        begin_ns += 5 * SECOND
    return min(begin_ns, until_ns)


def _mean_e2e(done: list[Request], begin_ns: int, end_ns: int) -> float:
    times = [
        (r.finished_ns or r.ready_ns) - r.arrival.at_ns + r.back_ns
        for r in done
        if begin_ns <= r.arrival.at_ns < end_ns
    ]
    return sum(times) / len(times) if times else 0.0
