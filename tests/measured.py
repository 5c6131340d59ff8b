"""The command line in a process of its own, with its peak memory and CPU time measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1_000_000_000
MOST_S = 20.0

_PROGRAM = """
import json, re, resource, sys, time
from pathlib import Path
code = 0
try:
    from rca.cli import main
    main()
except SystemExit as end:
    code = end.code or 0
finally:
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    print("MEASURED", json.dumps([peak, time.process_time()]), file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Measured:
    """How it ended, what it said, and what it took: peak memory in bytes, CPU time in s."""

    code: int
    out: str
    err: str
    peak_bytes: int
    cpu_s: float


def rca(*arguments: str | Path, **environment: str) -> Measured:
    """Run `rca ARGUMENTS`; it must end within the limits and without a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    said, _, figures = done.stderr.rpartition("MEASURED ")
    assert figures, f"it was killed ({done.returncode}): {done.stderr[-2000:]}"
    assert "Traceback" not in said, said[-3000:]
    peak, cpu_s = json.loads(figures)
    assert peak < MOST_BYTES, f"{peak:,} bytes"
    assert cpu_s < MOST_S, f"{cpu_s} s"
    return Measured(done.returncode, done.stdout, said, peak, cpu_s)
