"""Damage files of every format and read them; writes the counts into docs/reliability.md.

    python scripts/fuzz.py --budget 120 --seed 1

The corpus is a file of each format (`tests/fuzz_corpus`), the files of sample_traces, those of the folder that
RCA_CONFORMANCE_DATA names, and archives of some. Each round takes a file, damages it in one to four ways
(bits, bytes, cuts, repeats, numbers that are huge, keys swapped, text of another file spliced in) and
reads it into a case. An expected failure is one line; anything else, or more than 20 s of CPU time, is a
finding, which is told with the seed of its round and kept in the folder of --keep.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from reliability import ROOT, write_between

from rca.bundle import find
from rca.case import Case
from rca.errors import RcaError
from rca.ingest import ingest
from rca.parsers import recognise
from rca.parsers.stream import read_head

BEGIN, END = "<!-- fuzzed: begin -->\n", "<!-- fuzzed: end -->\n"
MOST_S = 20
MOST_BYTES = 300_000
os.environ["RCA_RAISE"] = "1"  # a fault of a reader is a finding
_ROUNDS_A_CASE = 100  # making one takes longer than reading most files
_NUMBER = re.compile(rb"\d+")
_HUGE = (
    b"9" * 400,
    b"1e999",
    b"-1",
    b"0",
    b"18446744073709551616",
    b"NaN",
    b"1.5",
    b"null",
    b'"x"',
)


def damaged(data: bytes, other: bytes, draws: random.Random) -> bytes:
    """The bytes with one to four of the damages done."""
    made = bytearray(data)
    for _ in range(draws.randint(1, 4)):
        if not made:
            break
        at = draws.randrange(len(made))
        end = min(len(made), at + draws.randint(1, 200))
        match draws.randrange(7):
            case 0:
                made[at] ^= 1 << draws.randrange(8)
            case 1:
                del made[at:end]
            case 2:
                del made[at:]
            case 3:
                made[at:at] = made[at:end] * draws.randint(1, 20)
            case 4:
                start = draws.randrange(max(len(other), 1))
                made[at:end] = other[start : start + draws.randint(1, 500)]
            case 5:
                made[at:end] = draws.randbytes(end - at)
            case _:
                found = _NUMBER.search(made, at)
                if found:
                    made[found.start() : found.end()] = draws.choice(_HUGE)
    return bytes(made)


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {MOST_S} s of CPU time")


def problem(case: Case, path: Path) -> str | None:
    """What reading the file brings up that is no expected failure; None when all is well."""
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        ingest(case, find([path], None, path.parent / "unpacked"))
    except RcaError as error:
        return None if "\n" not in str(error) else f"more than one line: {str(error)[:200]!r}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def corpus() -> dict[Path, str]:
    """Files that are read, and the format of each."""
    found = {}
    folders = [ROOT / "sample_traces", ROOT / "tests" / "fuzz_corpus"]
    if given := os.environ.get("RCA_CONFORMANCE_DATA"):
        folders.append(Path(given))
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if (
                path.is_file()
                and path.stat().st_size < MOST_BYTES
                and path.name != "truth.toml"
            ):
                try:
                    found[path] = recognise(read_head(path)).name
                except RcaError:
                    continue
    return found


def archives(folder: Path, files: Iterable[Path]) -> dict[Path, str]:
    """An archive of each kind with these files in it."""
    made = {}
    for name, method in (("deflated", zipfile.ZIP_DEFLATED), ("lzma", zipfile.ZIP_LZMA)):
        made[folder / f"{name}.zip"] = "zip"
        with zipfile.ZipFile(folder / f"{name}.zip", "w", method) as packed:
            for number, file in enumerate(files):
                packed.write(file, f"{number}-{file.name}")
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        made[folder / f"{mode[2:]}.tar"] = "tar"
        with tarfile.open(folder / f"{mode[2:]}.tar", mode) as tar:
            for file in files:
                tar.add(file, "x" * 150 + file.name)
    return made


def main() -> int:
    """Fuzz until the budget ends; 1 when there are findings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", type=float, default=120, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for files that brought something up")
    given = parser.parse_args()
    signal.signal(signal.SIGPROF, _too_long)
    kept = tempfile.TemporaryDirectory()  # until the end
    files = corpus()
    files |= archives(Path(kept.name), [p for p in files if p.stat().st_size < 5000][:3])
    by_format: dict[str, list[Path]] = {}
    for path, name in files.items():
        by_format.setdefault(name, []).append(path)
    rounds: Counter[str] = Counter()
    findings: list[str] = []
    ends = time.monotonic() + given.budget
    number, case = 0, Case.create()
    while time.monotonic() < ends:
        if number % _ROUNDS_A_CASE == 0:
            case.close()
            case = Case.create()
        draws = random.Random(f"{given.seed}-{number}")
        name = sorted(by_format)[number % len(by_format)]  # each format has its turn
        path = draws.choice(by_format[name])
        data = damaged(path.read_bytes(), draws.choice(list(files)).read_bytes(), draws)
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, f"fuzzed{path.suffix}")
            made.write_bytes(data)
            if said := problem(case, made):
                findings.append(f"{name}, round {number}: {said}")
                print(findings[-1], flush=True)
                if given.keep:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    (given.keep / f"{given.seed}-{number}{path.suffix}").write_bytes(data)
        rounds[name] += 1
        number += 1
    _write(given.budget, given.seed, rounds, findings)
    print(f"{number} rounds, {len(findings)} findings")
    return 1 if findings else 0


def _write(budget_s: float, seed: int, rounds: Counter[str], findings: list[str]) -> None:
    said = f"`python scripts/fuzz.py --budget {budget_s:g} --seed {seed}`: {rounds.total():,} rounds, "
    said += f"{len(findings)} findings.\n\n| Format | Rounds |\n|---|---:|\n"
    said += "".join(f"| {name} | {n} |\n" for name, n in sorted(rounds.items()))
    said += "".join(f"\n- {line}" for line in findings) + ("\n" if findings else "")
    write_between(BEGIN, END, said)


if __name__ == "__main__":
    sys.exit(main())
