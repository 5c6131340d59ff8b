"""What a command takes: CPU seconds of all its processes, wall seconds, peak of memory."""

from __future__ import annotations

import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Taken(NamedTuple):
    """CPU and wall seconds, peak MB of all its processes added up, what it printed."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str


def run(command: Sequence[str]) -> Taken:
    """Run a command to its end.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as file,
        subprocess.Popen(command, stdout=file) as process,
    ):
        peak = _Peak(process.pid)
        peak.start()
        code = process.wait()
        wall_s = time.monotonic() - began
        file.seek(0)
        output = file.read()
    if code:
        raise subprocess.CalledProcessError(code, command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(cpu_s, wall_s, peak.bytes / 1e6, output)


class _Peak(threading.Thread):
    """Watches the memory of a process and of those it started, until it ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self.bytes = pid, 0

    def run(self) -> None:
        while now := sum(_resident(pid) for pid in _family(self._pid)):
            self.bytes = max(self.bytes, now)
            time.sleep(0.05)


def _family(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in _family(child))]


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()
