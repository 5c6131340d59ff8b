"""The loop: arrivals, scheduler and worker joined on a virtual clock.

A step takes as long as the worker says: CPU time times a scale in torch, a formula in
the twin. Waiting costs nothing, so a minute of service is done in seconds, and another
program on the machine does not lengthen a queue here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from rca.models.cpu_quota import CpuQuota
from rca.models.gateway import Request
from rca.models.scheduler import Batch, Scheduler
from rca.models.settings import SECOND, Plan

SCRAPE_PHASE_NS = 237_000_000
_SWITCHES_A_STEP = 3


class StepResult(NamedTuple):
    """What a step cost on the virtual clock, and the tokens that it sampled."""

    cost_ns: int
    sampled: list[int]
    cpu_ns: int = 0  # of all threads, where it is not the same
    switches: int = 0  # of context, beyond what a step with one thread makes


class Worker(Protocol):
    """What computes: torch, or the twin."""

    def admit(self, request: Request) -> int:
        """Tokenise a request; returns virtual ns."""

    def execute(self, batch: Batch) -> StepResult:
        """Compute one step."""

    def take(self, plan: Plan) -> None:
        """Go on under another plan: its host has changed, the process has not."""

    def memory_bytes(self) -> int:
        """Resident memory of the process."""

    def live_bytes(self) -> int:
        """Memory that is held on purpose."""

    def collections(self) -> Sequence[int]:
        """Garbage collections so far, by generation."""

    def written_bytes(self) -> int:
        """Bytes written to disk so far."""


class Observer(Protocol):
    """Who watches a run."""

    def scrape(self, engine: Engine, at_ns: int) -> None:
        """Called at each whole second of virtual time."""

    def step(self, engine: Engine, batch: Batch, cost_ns: int) -> None:
        """Called after each step, before the clock moves on."""

    def finish(self, engine: Engine, request: Request) -> None:
        """Called when a request has its last token."""


def next_scrape_ns(at_ns: int) -> int:
    """The first scrape at or after a time: once a second, not on the second."""
    return -(-(at_ns - SCRAPE_PHASE_NS) // SECOND) * SECOND + SCRAPE_PHASE_NS


def start_up_ns(plan: Plan) -> int:
    """How long nobody answers while a new process starts."""
    return 0 if plan.args.warm_standby else plan.build.start_up_ns


class Engine:
    """One process: it starts with cold caches and counts from zero.

    Attributes:
        replica: its number.
        quota: its container's CPU limit; None without one.
    """

    def __init__(
        self,
        plan: Plan,
        worker: Worker,
        start_ns: int,
        observer: Observer | None = None,
        replica: int = 0,
    ) -> None:
        self.plan, self.worker, self.observer, self.replica = plan, worker, observer, replica
        self.quota = CpuQuota(plan.host.cpu_limit) if plan.host.cpu_limit else None
        self.started_ns = self.now_ns = start_ns
        self.busy_ns = self.switches = 0
        self.scheduler = Scheduler(plan)
        self._coming: deque[Request] = deque()
        self._next_scrape_ns = next_scrape_ns(start_ns)

    @property
    def coming(self) -> list[Request]:
        """Requests that have not reached the engine yet."""
        return list(self._coming)

    def take(self, plan: Plan) -> None:
        """Go on under another plan: its host has changed, the process has not."""
        self.plan = plan
        self.worker.take(plan)

    def send(self, requests: Iterable[Request]) -> None:
        """Hand over requests that will arrive, or that another process left over."""
        self._coming = deque(sorted([*self._coming, *requests], key=lambda r: r.ready_ns))

    def run(self, until_ns: int) -> None:
        """Serve until the clock reads `until_ns`; what runs then stays as it is."""
        while self.now_ns < until_ns:
            if not self.step():
                events = [*self._events(), until_ns]
                self._advance(max(self.now_ns, min(events)))

    def drain(self) -> list[Request]:
        """Finish what runs and admit nothing more; returns those still waiting."""
        waiting = list(self.scheduler.waiting)
        self.scheduler.waiting.clear()
        coming, self._coming = self._coming, deque()
        while self.scheduler.running:
            self.step()
            waiting.extend(self.scheduler.waiting)
            self.scheduler.waiting.clear()
        return waiting + list(coming)

    def step(self) -> bool:
        """Admit who has come and compute one step; False when there is nothing to do."""
        while self._coming and self._coming[0].ready_ns <= self.now_ns:
            self._receive(self._coming.popleft())
        batch = self.scheduler.schedule(self.now_ns)
        if not batch.slices:
            return False
        result = self.worker.execute(batch)
        lasts_ns = self._spend(result.cost_ns, result.cpu_ns or result.cost_ns)
        self.switches += _SWITCHES_A_STEP + result.switches
        if self.observer:
            self.observer.step(self, batch, lasts_ns)
        self._advance(self.now_ns + lasts_ns)
        for request in self.scheduler.update(batch, result.sampled, self.now_ns):
            if self.observer:
                self.observer.finish(self, request)
        return True

    def skip_to_next_event(self) -> bool:
        """Move the clock to the next arrival or admission; False when none will come."""
        events = self._events()
        if events:
            self._advance(max(self.now_ns, min(events)))
        return bool(events)

    def _receive(self, request: Request) -> None:
        if request.received_ns is None:
            request.received_ns = self.now_ns
        cost_ns = self.worker.admit(request)
        lasts_ns = self._spend(cost_ns, cost_ns)
        if self.plan.args.middleware:
            self.busy_ns += self.plan.build.middleware_ns
        self._advance(self.now_ns + lasts_ns)
        self.scheduler.add(request, self.now_ns)

    def _spend(self, lasts_ns: int, cpu_ns: int) -> int:
        """Count CPU time; returns how long the work takes under the container's limit."""
        self.busy_ns += cpu_ns
        return self.quota.stretch(self.now_ns, lasts_ns, cpu_ns) if self.quota else lasts_ns

    def _events(self) -> list[int]:
        events = [self._coming[0].ready_ns] if self._coming else []
        opens_ns = self.scheduler.next_admission_ns()
        if opens_ns is not None and opens_ns > self.now_ns:
            events.append(opens_ns)
        return events

    def _advance(self, to_ns: int) -> None:
        while self.observer and self._next_scrape_ns <= to_ns:
            self.observer.scrape(self, self._next_scrape_ns)
            self._next_scrape_ns += SECOND
        self.now_ns = to_ns


class PairedEngine(Engine):
    """The first of two replicas behind a router; the other keeps step with its scrapes."""

    def __init__(
        self,
        plan: Plan,
        workers: tuple[Worker, Worker],
        start_ns: int,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(plan, workers[0], start_ns, observer)
        self.other = Engine(plan, workers[1], start_ns, observer, replica=1)

    def take(self, plan: Plan) -> None:
        """Both."""
        super().take(plan)
        self.other.take(plan)

    def send(self, requests: Iterable[Request]) -> None:
        """Each request to its replica."""
        requests = list(requests)
        super().send(r for r in requests if r.replica == 0)
        self.other.send(r for r in requests if r.replica == 1)

    def run(self, until_ns: int) -> None:
        """Both, from scrape to scrape: the first one's tells of the gateway, which sees both."""
        while self.now_ns < until_ns:
            to_ns = min(until_ns, max(self._next_scrape_ns, self.now_ns + 1))
            self.other.run(to_ns)
            super().run(to_ns)
