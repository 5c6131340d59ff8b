"""Measure how reading a fleet grows with its workers; writes the table into docs/scale.md.

    python scripts/fleet_scale.py --files 8 --mb 10

Recordings of PyTorch Profiler are generated, then read into shards by one and two plain processes
and by one and two workers of Dask, each in a process of its own. CPU seconds are those of all
processes, start and imports included; wall seconds depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import generate

TORCH = next(iter(generate.FORMS))
TARGET = Path(__file__).parent.parent / "docs" / "scale.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
HEADER = """| Runner | Workers | CPU s | wall s | MB/CPU s | MB/s wall | CPU beside plain processes |
|---|---:|---:|---:|---:|---:|---:|"""


def measure(files: Path, where: Path, workers: int, dask: bool) -> tuple[float, float]:
    """CPU and wall seconds of one ingest."""
    command = [
        sys.executable,
        "-m",
        "rca.cli",
        "fleet",
        "ingest",
        str(files),
        "--out",
        str(where),
    ]
    command += ["--workers", str(workers), "--quiet"] + ([] if dask else ["--no-dask"])
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True)
    wall_s = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def table(n_files: int, mb: int) -> list[str]:
    """The lines of the table."""
    lines = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "files")
        files.mkdir()
        for number in range(n_files):
            # Different sizes give different bytes: the same bytes would be read once only.
            generate.write(TORCH, files / f"rank{number}.json", mb * 1_000_000 + 997 * number)
        size = sum(p.stat().st_size for p in files.iterdir()) / 1e6
        for workers in (1, 2):
            plain_s = 0.0
            for dask in (False, True):
                where = Path(folder, f"shards-{workers}-{dask}")
                cpu_s, wall_s = measure(files, where, workers, dask)
                plain_s = plain_s or cpu_s
                name = "Dask" if dask else "plain processes"
                lines.append(
                    f"| {name} | {workers} | {cpu_s:.1f} | {wall_s:.1f} | {size / cpu_s:.0f}"
                    f" | {size / wall_s:.1f} | {cpu_s / plain_s:.2f} |"
                )
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--mb", type=int, default=10)
    given = parser.parse_args()
    load = os.getloadavg()[1]
    lines = table(given.files, given.mb)
    said = (
        f"`python scripts/fleet_scale.py --files {given.files} --mb {given.mb}`, {os.cpu_count()} cores,"
        f" load {load:.0f} from other work:\n\n"
    )
    text = TARGET.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    TARGET.write_text(
        head + BEGIN + said + "\n".join(lines) + "\n" + END + tail, encoding="utf-8"
    )


if __name__ == "__main__":
    main()
