"""What this machine lets a process have."""

from __future__ import annotations

import os
import re
import statistics
import time
from contextlib import suppress
from pathlib import Path

_LOOKS = 5
_BETWEEN_LOOKS_S = 0.002
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),  # version 2
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),  # version 1
)


def memory_bytes() -> int:
    """Memory that processes may use together: what is built in, or less where a container says so."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            known.append(int(path.read_text()))
        except (OSError, ValueError):  # no such version, or 'max'
            continue
    return min(known)


def available_bytes() -> int | None:
    """Memory that this process may still take, of the machine and of its control group; None when unsaid."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    free = [int(found[1]) * 1024] if found else []
    # Without a control group of version 2 the machine's own figure stands.
    with suppress(OSError, ValueError):
        limit, used = (
            Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii").strip()
            for name in ("max", "current")
        )
        free += [max(int(limit) - int(used), 0)] if limit.isdecimal() else []
    return min(free) if free else None


def idle_processors() -> float:
    """Processors that a further process would have for itself, as of the last hundredth of a second.

    What runs now counts, this process among it, and not the load of the last minute: that is
    still high when the command before this one was at work.
    """
    here = hasattr(os, "sched_getaffinity")  # not on every system
    allowed = float(len(os.sched_getaffinity(0)) if here else os.cpu_count() or 1)
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        allowed = min(allowed, int(quota) / int(period))  # 'max' is no number: no limit
    return allowed - _running()


def _running() -> float:
    """Processes and threads that run or could, of the whole machine."""
    found = []
    for _ in range(_LOOKS):
        try:
            text = Path("/proc/stat").read_text(encoding="ascii")
            found.append(int(text.partition("procs_running ")[2].split()[0]))
        except (OSError, ValueError, IndexError):
            return os.getloadavg()[0] + 1
        time.sleep(_BETWEEN_LOOKS_S)
    return statistics.median(found)
