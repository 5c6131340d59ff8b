"""What this machine lets a process have."""

from __future__ import annotations

import os
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
