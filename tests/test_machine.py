"""What a machine lets a process have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rca import machine

BUSY = "import sys; print(flush=True)\nwhile True: pass"


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many processes that do nothing but run."""
    running = [
        subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) for _ in range(n)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_processes_that_run_now_are_not_idle_processors() -> None:
    before = machine.idle_processors()
    with busy(2):
        assert machine.idle_processors() <= before - 1  # others may begin or end meanwhile


@pytest.mark.parametrize(
    ("processors", "running", "idle"), [(1, 1, 0.0), (2, 1, 1.0), (2, 2, 0.0), (16, 9, 7.0)]
)
def test_a_process_counts_itself_among_those_that_run(
    processors: int, running: int, idle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "/proc/stat": f"cpu 1 2 3\nprocs_running {running}\nprocs_blocked 0\n",
        "/sys/fs/cgroup/cpu.max": "max 100000\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda self, **_: files[str(self)])
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(processors)))
    assert machine.idle_processors() == idle
    files["/sys/fs/cgroup/cpu.max"] = "50000 100000\n"
    assert machine.idle_processors() == 0.5 - running
