"""This process as an operator sees it: its memory, its collections, its compiler's limit."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType


def resident_bytes(otherwise: int) -> int:
    """Resident memory; `otherwise` where the system does not tell it."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return otherwise
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def context_switches() -> int:
    """Switches of all threads so far; 0 where the system does not tell them."""
    total = 0
    for path in Path("/proc/self/task").glob("*/status"):
        with suppress(OSError):  # a thread may end meanwhile
            lines = path.read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return total


def return_free_memory() -> None:
    """Give freed heap back to the system, or a leak would grow into it unseen."""
    with suppress(OSError, AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def collections() -> list[int]:
    """Garbage collections so far, by generation."""
    return [generation["collections"] for generation in gc.get_stats()]


def raise_compile_limit(config: ModuleType, limit: int) -> Callable[[], None]:
    """Raise the compiler's limit, by its name in this torch; returns what undoes it."""
    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    before = getattr(config, name)
    setattr(config, name, limit)
    return lambda: setattr(config, name, before)
