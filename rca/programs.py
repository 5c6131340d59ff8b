"""Programs that rca starts: argument lists, a clean environment, no input, and limits of time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from rca import machine

_KEPT = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP", "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8",
    "VIRTUAL_ENV", "CONDA_PREFIX",
})  # fmt: skip
"""Variables that programs are given, LC_* beside them: no keys, tokens or addresses of services."""
_MEMORY_SHARE = 0.75


class Ended(NamedTuple):
    """How a program ended: its exit code, negative for a signal, and what it wrote."""

    code: int
    out: bytes
    err: bytes


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a program is given: the few it may need, and `more`."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith("LC_")}
    return {**kept, **(more or {})}


def start(
    command: Sequence[str],
    folder: Path | None = None,
    *,
    more: Mapping[str, str] | None = None,
    asked: int = subprocess.DEVNULL,
    out: int | IO[bytes] = subprocess.DEVNULL,
    err: int | IO[bytes] = subprocess.DEVNULL,
    memory_bytes: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program as the first of its own process group; end it with `stop`.

    Args:
        command: The program and its arguments; no shell sees them.
        folder: Where it runs; here without.
        more: Further variables of its environment.
        asked: Where its input comes from, as `subprocess.Popen` has it: from nowhere without.
        out: Where its output goes, as `subprocess.Popen` has it.
        err: Where its messages go.
        memory_bytes: Memory of its own that each process of it may have; three quarters of the
            machine's without.

    Raises:
        OSError: It does not start.
    """
    process = subprocess.Popen(  # noqa: S603 - callers name programs that users named
        command, cwd=folder, env=environment(more), stdin=asked, stdout=out, stderr=err,
        start_new_session=True,
    )  # fmt: skip
    most = memory_bytes or int(_MEMORY_SHARE * machine.memory_bytes())
    _limit_memory(process.pid, most)
    return process


def _limit_memory(pid: int, most: int) -> None:
    """Limit what a process and those that it starts may write to, where the system can.

    Files that are mapped and address space that is only reserved are not limited: nsys and
    language runtimes have far more of it than they use. Set from outside, because code between fork
    and exec is not safe while other threads run.
    """
    import resource

    if hasattr(resource, "prlimit"):  # Linux
        with suppress(OSError, ValueError):  # it has ended, or has a lower limit already
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started; nothing happens when it was waited for already."""
    if process.returncode is None:  # else its number may be another's by now
        with suppress(ProcessLookupError, PermissionError):  # macOS, of a group that has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run(
    command: Sequence[str],
    folder: Path | None = None,
    *,
    timeout_s: float,
    more: Mapping[str, str] | None = None,
    out: int | IO[bytes] = subprocess.PIPE,
    err: int | IO[bytes] = subprocess.PIPE,
    memory_bytes: int | None = None,
) -> Ended:
    """Run a program to its end, see `start`; what it wrote to elsewhere than a pipe is empty.

    Raises:
        OSError: It does not start.
        subprocess.TimeoutExpired: It did not end in time, and was ended with all that it started.
    """
    process = start(command, folder, more=more, out=out, err=err, memory_bytes=memory_bytes)
    try:
        said, complained = process.communicate(timeout=timeout_s)
    except BaseException:
        stop(process)
        raise
    return Ended(process.returncode, said or b"", complained or b"")
