"""The machine on which vLLM runs: what its processors do, and others that want them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Line = tuple[str, dict[str, str], float]
"""Name, labels and value of a sample."""
_MODES = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
)  # of /proc/stat
_TICKS = os.sysconf("SC_CLK_TCK")


def node_lines() -> Iterator[Line]:
    """What node_exporter tells of the processors, where the system has /proc."""
    with suppress(OSError):  # another system
        for line in Path("/proc/stat").read_text().splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name != "cpu":
                for mode, ticks in zip(_MODES, numbers, strict=False):
                    yield (
                        "node_cpu_seconds_total",
                        {"cpu": name[3:], "mode": mode},
                        int(ticks) / _TICKS,
                    )
            elif name == "ctxt":
                yield "node_context_switches_total", {}, int(numbers[0])
        yield "node_load1", {}, float(Path("/proc/loadavg").read_text().split()[0])
        waiting_us = re.search(r"some .*total=(\d+)", Path("/proc/pressure/cpu").read_text())
        if waiting_us:
            yield "node_pressure_cpu_waiting_seconds_total", {}, int(waiting_us[1]) / 1e6


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]  # noqa: S603
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
