"""What this machine lets a process have."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

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
