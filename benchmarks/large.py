"""How long a large bundle takes from recordings to documents: `python -m benchmarks.large --mb 1000`.

A small incident made by the twin, with recordings of its time beside it that make up the size: half a
profile, the rest spans and metrics. Analysed without the trial, each time in a process of its own;
CPU seconds and the peak are those of all its processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from benchmarks import generate, process

TARGET = Path(__file__).parent.parent / "docs" / "scale.md"
BEGIN, END = "<!-- large: begin -->\n", "<!-- large: end -->\n"
HEADER = """| Bundle | `--memory` | CPU s | wall s | peak MB | case MB |
|---:|---:|---:|---:|---:|---:|"""
SHARES = {
    "PyTorch Profiler JSON": 0.5,
    "Jaeger JSON": 0.2,
    "OTLP JSON lines": 0.1,
    "Prometheus query_range": 0.2,
}
RCA = (sys.executable, "-m", "rca.cli")


class Run(NamedTuple):
    """One analysis: seconds, peak of memory and size of the case in MB."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    case_mb: float


def make(bundle: Path, mb: int) -> float:
    """Write a bundle; its size in MB."""
    made = [*RCA, "reproduce", "batch_window_mismatch", "--engine", "twin", "--quiet"]
    subprocess.run([*made, "--out", str(bundle)], check=True)
    truth = tomllib.loads((bundle / "truth.toml").read_text())
    for number, (form, share) in enumerate(SHARES.items()):
        path = bundle / "incident" / f"more{number}.json"
        generate.write(form, path, int(mb * share * 1e6), truth["start_ns"] // 10**9)
    return sum(p.stat().st_size for p in bundle.rglob("*") if p.is_file()) / 1e6


def analyse(bundle: Path, out: Path, memory: str | None) -> Run:
    """Analyse once and measure.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    command = [*RCA, "analyze", str(bundle), "--out", str(out), "--no-trial", "--quiet"]
    command += ["--memory", memory] if memory else []
    taken = process.run(command)
    case_mb = (out / "case.duckdb").stat().st_size / 1e6
    return Run(taken.cpu_s, taken.wall_s, taken.peak_mb, case_mb)


def main() -> None:
    """Print the table, and write it where it is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--memory", nargs="*", default=["500MB"], help="also with these limits")
    parser.add_argument("--write", action="store_true", help=f"into {TARGET.name}")
    given = parser.parse_args()
    lines = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, "bundle")
        mb = make(bundle, given.mb)
        for memory in (None, *given.memory):
            run = analyse(bundle, Path(folder, f"out-{memory}"), memory)
            lines.append(
                f"| {mb:,.0f} MB | {memory or 'not given'} | {run.cpu_s:.0f} | {run.wall_s:.0f}"
                f" | {run.peak_mb:,.0f} | {run.case_mb:.0f} |"
            )
            print(lines[-1], flush=True)
    if given.write:
        load = f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.0f} from other work"
        command = "python -m benchmarks.large " + " ".join(sys.argv[1:])
        before, rest = TARGET.read_text().split(BEGIN)
        said = f"`{command.strip()}`, {load}:\n\n" + "\n".join(lines) + "\n"
        TARGET.write_text(before + BEGIN + said + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
