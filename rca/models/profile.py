"""A torch profiler trace of some engine steps, placed on the bundle's clock.

The profiler slows the engine, so it is taken after the metrics end. Its first run is
thrown away: it pays for the profiler's own start.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from rca import scratch
from rca.models.device import settle
from rca.models.engine import Engine
from rca.models.worker import TorchWorker

_DISCARDED_STEPS = 3
HOST = "node-a"


def record(engine: Engine, worker: TorchWorker, folder: Path, steps: int) -> Path:
    """Profile the engine's next steps; returns the .pt.trace.json.gz file written."""
    worker.annotate = record_function
    worker.follow_twin()
    try:
        with _quiet(), _profiler():
            _run(engine, _DISCARDED_STEPS)
        at_ns = engine.now_ns
        with _quiet(), _profiler() as seen:
            _run(engine, steps)
            settle(worker.made.device)  # what still runs on the device belongs to these steps
    finally:
        worker.annotate = None
        worker.pace = None
    with scratch.folder() as work:
        raw = work / "trace.json"
        seen.export_chrome_trace(str(raw))
        trace = json.loads(raw.read_text())
    path = folder / f"llm-engine-0.{at_ns}.pt.trace.json.gz"
    _place(trace, at_ns, path.name.removesuffix(".gz"))
    path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0))
    return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back the lines that the profiler's C++ part writes to stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)


def _profiler() -> profile:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities, record_shapes=True, profile_memory=True)


def _run(engine: Engine, steps: int) -> None:
    done = 0
    while done < steps:
        if engine.step():
            done += 1
        elif not engine.skip_to_next_event():
            return


def _place(trace: dict[str, object], at_ns: int, name: str) -> None:
    """Move the trace to `at_ns` and take this machine's name and paths out of it."""
    events = trace.get("traceEvents")
    if not isinstance(events, list):
        return
    first_us = min(float(event["ts"]) for event in events if event.get("ph") == "X")
    # Event times count from this base; the fraction of a microsecond does not matter.
    trace["baseTimeNanoseconds"] = at_ns - int(first_us) * 1000
    trace["traceName"] = name
    if "host_name" in trace:
        trace["host_name"] = HOST
