"""How fast recordings are read: `python -m benchmarks [--mb 50] [--form NAME] [--write FILE]`.

Makes a recording of each form, then reads it in a process of its own: into a case (recognised,
hashed, read, written to disk), in the usual way (json or sqlite3 and a loop or a data frame; with --hta PYTHON
also Holistic Trace Analysis' loader), and with the bare scan that is the limit (JSON values found but
not looked into, lines counted, the same columns summed by SQLite). CPU seconds are those
of all processes, imports included; the peak is that of all processes added up. Of several runs the
one with the least CPU counts. With --growth also a curve over sizes and the exponent that fits, with
--incident-mb an analysis from recordings to documents, and queries on its case beside polars.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks import generate, process, readers
from benchmarks.process import Taken

TORCH = "PyTorch Profiler JSON"
HEADER = (
    "| Recording | MB | CPU s | MB/CPU s | MB/s wall | peak MB | usual way: CPU s | ratio"
    " | bare scan: CPU s | ratio |\n|---|---|---|---|---|---|---|---|---|---|"
)


_USUAL_MB = 500  # what json.load makes of more fills the memory
_BUSY = """On a busy machine a CPU second does less, wall seconds say little, and a second process is not
started for large profiles (it needs an idle processor): hold the ratios.
"""


def measure(python: str, reader: str, form: str, path: Path, repeat: int) -> Taken:
    """The best of some runs in processes of their own."""
    command = [python, "-m", "benchmarks", "--read", reader, "--form", form, str(path)]
    return min(process.run(command) for _ in range(repeat))


def read(reader: str, form: str, path: Path) -> None:
    """Read once in this process and print how many rows it gave."""
    ways = {"rca": readers.rca_case, "usual": readers.USUAL[form], "scan": readers.scan}
    print({**ways, "hta": readers.hta}[reader](path))


def lines(form: str, path: Path, mb: float, repeat: int, hta: str | None) -> Iterator[str]:
    """The rows of the table for one file."""
    ours, limit = (
        measure(sys.executable, reader, form, path, repeat) for reader in ("rca", "scan")
    )
    usual = {}
    if mb <= _USUAL_MB:
        name = "rows" if form == generate.NSYS else "json"
        usual[name] = measure(sys.executable, "usual", form, path, 1)
    if hta and form == TORCH:
        usual["HTA"] = measure(hta, "hta", form, path, 1)
    for name, other in usual.items() or [("", None)]:
        beside = f"{name} {other.cpu_s:.1f} | {other.cpu_s / ours.cpu_s:.1f}" if other else " |"
        yield (
            f"| {form} | {mb:,.0f} | {ours.cpu_s:.1f} | {mb / ours.cpu_s:.0f}"
            f" | {mb / ours.wall_s:.0f} | {ours.peak_mb:,.0f} | {beside} | {limit.cpu_s:.2f}"
            f" | {ours.cpu_s / limit.cpu_s:.1f} |"
        )


def packed_line(path: Path, mb: float, repeat: int) -> str:
    """The row of a gzip file: no other reading is timed beside it."""
    packed = path.with_name(path.name + ".gz")
    with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as file:
        shutil.copyfileobj(plain, file, 1 << 20)
    run = measure(sys.executable, "rca", TORCH, packed, repeat)
    return (
        f"| {TORCH}, .gz | {mb:,.0f} | {run.cpu_s:.1f} | {mb / run.cpu_s:.0f}"
        f" | {mb / run.wall_s:.0f} | {run.peak_mb:,.0f} | | | | |"
    )


def table(wanted: list[tuple[str, int]], repeat: int, hta: str | None) -> Iterator[str]:
    """The table, line by line, for forms and sizes in MB."""
    yield HEADER
    for form, size in wanted:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "recording.json"  # HTA asks for the ending
            generate.write(form, path, size * 1_000_000)
            mb = path.stat().st_size / 1e6
            yield from lines(form, path, mb, repeat, hta)
            if form == TORCH:
                yield packed_line(path, mb, repeat)


def main() -> None:
    """Print the table, or read one file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, nargs="+", default=[50], help="sizes, 10 to 1600")
    parser.add_argument(
        "--profile-mb", type=int, nargs="*", default=[], help="also profiles of"
    )
    parser.add_argument("--growth", type=int, nargs="*", default=[], help="a curve over sizes")
    parser.add_argument("--incident-mb", type=int, default=0, help="analyze, report, queries")
    parser.add_argument("--form", choices=generate.NAMES, action="append")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("path", type=Path, nargs="?", help=argparse.SUPPRESS)
    given = parser.parse_args()
    forms = given.form or list(generate.NAMES)
    if given.read:
        read(given.read, forms[0], given.path)
        return
    from benchmarks import growth, incident, physical  # noqa: PLC0415 - HTA's Python has not what they need

    said = []
    begun, load = time.monotonic(), os.getloadavg()[0]
    wanted = [(form, mb) for form in forms for mb in given.mb]
    wanted += [(TORCH, mb) for mb in given.profile_mb]
    parts: list[Iterable[str]] = [table(wanted, given.repeat, given.hta), [physical.line()]]
    if given.growth:
        parts.append(growth.lines(given.growth, partial(measure, sys.executable, "rca", TORCH)))
    if given.incident_mb:
        parts.append(incident.lines(given.incident_mb))
    for line in chain.from_iterable(parts):
        print(line, flush=True)
        said.append(line)
    if given.write:
        took = f"in {(time.monotonic() - begun) / 60:.0f} minutes"
        machine = f"{os.cpu_count()} cores, load {load:.1f} when it began"
        words = ["PYTHON" if word == given.hta else word for word in sys.argv[1:]]
        command = shlex.join(["python", "-m", "benchmarks", *words])
        given.write.write_text(
            f"# How fast recordings are read\n\nMade {took} by `{command}`; {machine}.\n\n"
            f"{(__doc__ or '').partition(chr(10) * 2)[2]}\n" + "\n".join(said) + f"\n\n{_BUSY}"
        )


if __name__ == "__main__":
    main()
