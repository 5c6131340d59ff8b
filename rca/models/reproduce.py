"""A cause → a bundle: a healthy baseline, and an incident with a healthy lead-in.

Times are virtual: torch work is timed by its CPU time and stretched so that a decode step
of four sequences takes 20 ms; waiting takes no time. So a bundle of nearly three minutes
is recorded in some seconds, on a busy machine too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rca.errors import BundleError, CauseError, MissingExtra
from rca.models import modelled_profile
from rca.models.deployment import Change, decoys, revisions, true_change, write_changes
from rca.models.engine import Engine, PairedEngine, Worker, start_up_ns
from rca.models.fault import Fault
from rca.models.faults import find
from rca.models.gateway import admit
from rca.models.mooncake import Replay
from rca.models.settings import SECOND, Plan, Traffic
from rca.models.sizes import DecoderConfig
from rca.models.telemetry import Telemetry, first_slow_ns, last_slow_ns, well_again_ns
from rca.models.truth import write_truth
from rca.models.twin import TwinWorker
from rca.models.workload import arrivals

if TYPE_CHECKING:
    from rca.models.worker import Runtime

Progress = Callable[[str], None]

_EPOCH_NS = 1_773_136_800 * SECOND  # 2026-03-10 10:00 UTC; a seed moves it by hours
_WARM_UP_NS = 12 * SECOND  # caches fill before anything is recorded
_BETWEEN_NS = 1800 * SECOND
_PROFILED_SECONDS = 30  # traffic that the profiled steps may use up
_NEW_VERSION = "1.9.0"


@dataclass(frozen=True)
class Lengths:
    """Seconds of virtual time of a bundle's stretches, and how closely they are watched.

    Attributes:
        recovery_s: healthy time after the fault; the profile is left out when there is any.
        profiled_steps: 0 for no profile.
        scrape_s: seconds between two scrapes.
        sampled: share of the requests whose spans are kept.
    """

    baseline_s: int = 60
    lead_in_s: int = 45
    fault_s: int = 60
    recovery_s: int = 0
    profiled_steps: int = 14
    scrape_s: int = 1
    sampled: float = 1.0


def reproduce(
    cause: str,
    out: Path,
    *,
    engine: str = "torch",
    seed: int = 0,
    dose: float = 1.0,
    lengths: Lengths | None = None,
    healthy: Plan | None = None,
    sizes: DecoderConfig | None = None,
    requests: Replay | None = None,
    progress: Progress | None = None,
) -> Path:
    """A bundle of `cause` at `out`: incident/, baseline/ and truth.toml.

    Args:
        cause: an id of the catalogue, an alias, 'healthy', 'red_herring' or
            'model_without_tokenizer'; several joined by '+' are switched on at the same time.
        out: a folder that does not exist yet, or is empty.
        engine: 'torch' computes and is profiled; 'twin' follows a formula, needs no torch,
            leaves a modelled profile and gives the same bytes each time.
        seed: of the traffic, the decoys and the date.
        dose: strength of the fault; 1 is a clear incident, 0 a healthy service.
        lengths: how long the stretches are.
        healthy: the service before the fault; the usual one unless given.
        sizes: of the model; the usual ones unless given.
        requests: what is asked, instead of requests that are drawn.
        progress: called with a line about what is going on.

    Raises:
        CauseError: no such cause, or one that cannot be switched on here, or not with `requests`.
        MissingExtra: torch is not installed.
        BundleError: `out` holds something already.
    """
    faults = [find(one) for one in cause.split("+")]
    for fault in faults:
        if not fault.reproducible:
            raise CauseError(f"{fault.cause} cannot be reproduced: it {fault.device}")
        if fault.by_model and engine == "torch":
            told = f"{fault.cause} is shown by a cost model of the host only"
            raise CauseError(told, hint="add --engine twin")
    refuse_full(out)
    say = progress or (lambda _line: None)
    lengths = lengths or Lengths()
    with _workers(engine, sizes, say) as bench:
        recorder = _Recorder(
            faults, out, seed, dose, lengths, bench, say, healthy or Plan(), requests
        )
        recorder.baseline()
        recorder.incident()
    return out


def refuse_full(out: Path) -> None:
    """Nothing, as long as the folder is new or empty.

    Raises:
        BundleError: It holds something already.
    """
    if out.exists() and any(out.iterdir()):
        raise BundleError("the folder is not empty", path=str(out), hint="name a new one")


class Bench:
    """Where workers come from: the twin, or one calibrated torch model."""

    def __init__(self, made: Runtime | None, sizes: DecoderConfig | None = None) -> None:
        self.made, self.sizes = made, sizes or DecoderConfig()

    @contextmanager
    def worker(self, plan: Plan) -> Iterator[Worker]:
        """A worker for one process's life."""
        if self.made is None:
            yield TwinWorker(plan)
            return
        from rca.models.worker import TorchWorker

        with TorchWorker(plan, self.made) as worker:
            yield worker

    def profile(self, engine: Engine, folder: Path, steps: int) -> None:
        """Profile the next steps; the twin's trace is modelled, and says so."""
        if self.made is None:
            modelled_profile.record(engine, folder, steps, self.sizes)
            return
        from rca.models.profile import record
        from rca.models.worker import TorchWorker

        if isinstance(engine.worker, TorchWorker):
            record(engine, engine.worker, folder, steps)


@contextmanager
def _workers(engine: str, sizes: DecoderConfig | None, say: Progress) -> Iterator[Bench]:
    if engine == "twin":
        yield Bench(None, sizes)
        return
    if engine != "torch":
        raise CauseError(f"no engine is called {engine}", hint="one of: torch, twin")
    with torch_runtime(sizes) as made:
        said = f"torch on {made.name}, {made.model.config.dtype}"
        say(f"{said}: a second of its time is {made.scale:.0f} s of the bundle's")
        yield Bench(made)


def torch_runtime(sizes: DecoderConfig | None = None) -> AbstractContextManager[Runtime]:
    """A calibrated model of these sizes, the usual ones unless given.

    Raises:
        MissingExtra: torch is not installed.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # or the profiler talks on stderr
    try:
        from rca.models.worker import runtime
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise MissingExtra("torch", "torch") from error
    return runtime(sizes)


def _process(plan: Plan) -> tuple[object, ...]:
    """What a process is started with: another of these means another process."""
    return plan.args, plan.build, plan.host.cpu_limit


def _drawn(plan: Plan) -> Traffic:
    """The traffic but for what a file of requests leaves open."""
    usual = Traffic()
    return replace(
        plan.traffic,
        retrieval_ns=usual.retrieval_ns,
        retrieval_sigma=usual.retrieval_sigma,
        retrieval_errors=usual.retrieval_errors,
        schema_share=usual.schema_share,
        urgent_share=usual.urgent_share,
        abort_share=usual.abort_share,
    )


@dataclass
class _Recorder:
    faults: list[Fault]
    out: Path
    seed: int
    dose: float
    lengths: Lengths
    bench: Bench
    say: Progress
    healthy: Plan
    requests: Replay | None = None
    zero_ns: int = 0  # when the requests of a file begin

    def __post_init__(self) -> None:
        self.begin_ns = _EPOCH_NS + (self.seed % 5000) * 3607 * SECOND
        self.fault = self.faults[0]
        seconds = float(self.lengths.fault_s)
        for fault in self.faults:
            self.healthy = fault.around(self.healthy)
        faulty = self.healthy
        for fault in self.faults:
            faulty = fault.plan(faulty, self.dose, seconds)
        if faulty.build != self.healthy.build and not self.fault.change:
            faulty = replace(faulty, build=replace(faulty.build, version=_NEW_VERSION))
        self.faulty = faulty
        if self.requests and _drawn(faulty) != _drawn(self.healthy):
            told = f"{self.fault.cause} changes what is asked, and the file says what that is"
            raise CauseError(told, hint="leave --requests out, or take another cause")

    def baseline(self) -> None:
        """Record the healthy service, some time before."""
        self.zero_ns = from_ns = self.begin_ns
        until_ns = from_ns + self.lengths.baseline_s * SECOND
        self.say(f"baseline: {self.lengths.baseline_s} s of the healthy service")
        seen = self._watch(from_ns, until_ns, 2 * self.seed)
        with ExitStack() as stack:
            engine = self._engine(self.healthy, from_ns - _WARM_UP_NS, seen, stack)
            self._send(engine, seen, self.healthy, 2 * self.seed, (engine.now_ns, until_ns))
            engine.run(until_ns)
            seen.write(self.out / "baseline", self.healthy)
            self._profile(engine, self.out / "baseline")

    def incident(self) -> None:
        """Record the lead-in, the fault, and what is known of both."""
        from_ns = self.begin_ns + _BETWEEN_NS
        # A file goes on where the baseline left it.
        self.zero_ns = from_ns - self.lengths.baseline_s * SECOND
        fault_ns = from_ns + self.lengths.lead_in_s * SECOND
        until_ns = fault_ns + self.lengths.fault_s * SECOND
        self.say(f"incident: {self.lengths.lead_in_s} s healthy, {self.lengths.fault_s} s not")
        end_ns = until_ns + self.lengths.recovery_s * SECOND
        seen = self._watch(from_ns, end_ns, 2 * self.seed + 1)
        with ExitStack() as stack:
            engine = self._engine(self.healthy, from_ns - _WARM_UP_NS, seen, stack)
            key = 2 * self.seed + 1
            self._send(engine, seen, self.healthy, key, (engine.now_ns, fault_ns))
            engine.run(fault_ns)
            engine = self._switch(engine, self.faulty, seen, stack)
            self._send(engine, seen, self.faulty, key + 1_000_003, (fault_ns, until_ns))
            engine.run(until_ns)
            if self.lengths.recovery_s:
                engine = self._switch(engine, self.healthy, seen, stack)
                self._send(engine, seen, self.healthy, key + 2_000_003, (until_ns, end_ns))
                engine.run(end_ns)
            seen.write(self.out / "incident", engine.plan)
            self._write_truth(seen, fault_ns, until_ns)
            self._profile(engine, self.out / "incident")

    def _watch(self, from_ns: int, until_ns: int, seed: int) -> Telemetry:
        return Telemetry(from_ns, until_ns, seed, self.lengths.scrape_s, self.lengths.sampled)

    def _profile(self, engine: Engine, folder: Path) -> None:
        if self.lengths.profiled_steps and not self.lengths.recovery_s:
            self.bench.profile(engine, folder, self.lengths.profiled_steps)

    def _switch(self, old: Engine, plan: Plan, seen: Telemetry, stack: ExitStack) -> Engine:
        """Roll a change out: new arguments or a new image mean a new process."""
        if _process(old.plan) == _process(plan):
            if old.plan.host != plan.host:
                old.take(plan)
            return old
        left = old.drain()
        ready_ns = old.now_ns + start_up_ns(plan)
        seen.metrics.down(old.now_ns, ready_ns, self.lengths.scrape_s)
        engine = self._engine(plan, ready_ns, seen, stack)
        engine.send(left)
        return engine

    def _engine(self, plan: Plan, start_ns: int, seen: Telemetry, stack: ExitStack) -> Engine:
        """A process that starts; two where the router before them is modelled."""
        worker = stack.enter_context(self.bench.worker(plan))
        if not plan.host.has_router:
            return Engine(plan, worker, start_ns, seen)
        other = stack.enter_context(self.bench.worker(plan))
        return PairedEngine(plan, (worker, other), start_ns, seen)

    def _send(
        self, engine: Engine, seen: Telemetry, plan: Plan, key: int, stretch: tuple[int, int]
    ) -> None:
        begin_ns, end_ns = stretch
        # Traffic goes on while the profiler runs; only a fault's last stretch needs that.
        end_ns += _PROFILED_SECONDS * SECOND if end_ns == seen.until_ns else 0
        asked = arrivals(plan.traffic, key, begin_ns, end_ns)
        if self.requests:
            asked = self.requests.arrivals(plan.traffic, self.zero_ns, begin_ns, end_ns)
        admission = admit(plan, asked)
        engine.send(admission.requests)
        seen.expect(admission)

    def _write_truth(self, seen: Telemetry, fault_ns: int, until_ns: int) -> None:
        true = self._true_changes(fault_ns)
        changes = [*decoys(self.seed, seen.from_ns, fault_ns, until_ns), *true]
        ids = write_changes(changes, self.seed, self.out / "incident" / "changes.jsonl")
        numbers = revisions(changes, self.seed)
        is_fault = self.faulty != self.healthy and self.fault.cause_class != ""
        start_ns = fault_ns
        if self.fault.growth:
            # A burst on the way is not yet what grows.
            start_ns = first_slow_ns(seen.finished, fault_ns, until_ns, lasts_s=20)
        end_ns = until_ns
        if self.fault.recovers:
            end_ns = last_slow_ns(seen.finished, fault_ns, until_ns)
        if self.lengths.recovery_s:
            end_ns = well_again_ns(seen.finished, fault_ns, end_ns, seen.until_ns)
        fields: dict[str, object] = {
            "cause": self.fault.cause if is_fault else "",
            "class": self.fault.cause_class if is_fault else "",
            "kind": self._kind() if is_fault else "healthy",
            "acceptable": [
                *self.fault.acceptable,
                *(fault.cause for fault in self.faults[1:]),
            ],
            "start_ns": start_ns if is_fault else 0,
            "end_ns": end_ns if is_fault else 0,
            "injected_start_ns": fault_ns if is_fault else 0,
            "component": self.fault.component if is_fault else "",
            "change": ids[true[0]] if true and is_fault else "",
            "changes": [ids[change] for change in true] if is_fault else [],
            # The one to go back to; 0 where the fault came by no rollout.
            "revision": numbers[true[0]] - 1 if is_fault and true and true[0] in numbers else 0,
            "causes": [fault.cause for fault in self.faults] if is_fault else [],
            "skew_s": 0.0,
            "source": "twin" if self.bench.made is None else "torch",
            "seed": self.seed,
            "dose": self.dose,
        }
        write_truth(self.out / "truth.toml", fields)

    def _kind(self) -> str:
        return "fault" if len(self.faults) == 1 else "two_faults"

    def _true_changes(self, fault_ns: int) -> list[Change]:
        if self.faulty == self.healthy:
            return []
        found: list[Change] = []
        for number, fault in enumerate(self.faults):
            alone = fault.plan(self.healthy, self.dose, float(self.lengths.fault_s))
            if len(self.faults) == 1:
                alone = self.faulty
            at_ns = fault_ns - (1 + 2 * number) * SECOND
            change = true_change(fault, self.healthy, alone, at_ns)
            found += [change] if change else []
        return found
