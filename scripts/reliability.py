"""Kill rca at random moments and look what is left; writes the counts into docs/reliability.md.

    python scripts/reliability.py --count 20 --seed 1

For each of ingest, report, fleet and analyze: the command is run once whole, then started and killed
with SIGKILL at moments spread over the time it takes whole; every other time together with the
processes that it started, else alone, and those must end by themselves. After each kill the case must
open (or not be there yet), hold no source twice and no table with more rows than a whole run, and
nothing half-written may be called done: a verdict.json must be JSON. Then the command runs again, and
must give what a whole run gives, and leave no other file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rca.case import Case
from rca.fleet import is_shards, open_shards

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- killed: begin -->\n", "<!-- killed: end -->\n"
SAMPLE = ROOT / "sample_traces" / "03_batch_window_mismatch"
RCA = [sys.executable, "-m", "rca.cli"]
Check = Callable[[Path], object]
MOST_S_TO_END = 10.0


def run(
    command: list[str], kill_after_s: float | None = None, *, alone: bool = False
) -> float | None:
    """Run to the end, or kill it after so long.

    Args:
        command: What is run.
        kill_after_s: Seconds; to the end when None.
        alone: Kill the first process only; those that it started must then end by themselves.

    Returns:
        The seconds it ran, None when it was killed.
    """
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)
            process.wait()
            _await_end(process.pid)
            return None
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return time.monotonic() - began


def _await_end(group: int) -> None:
    """Wait until no process of the group works any more."""
    ends = time.monotonic() + MOST_S_TO_END
    while left := _members(group):
        if time.monotonic() > ends:
            os.killpg(group, signal.SIGKILL)
            raise AssertionError(f"{left} processes are left")
        time.sleep(0.05)


def _members(group: int) -> int:
    """How many processes of the group there are, without those that have ended."""
    n = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
            n += int(its_group) == group and state not in "ZX"
    return n


def rows_of(case: Case) -> dict[str, int]:
    """Rows of each recorded table; a source twice is a fault."""
    twice = case.scalar("SELECT count(*) - count(DISTINCT (sha256, part)) FROM source")
    assert not twice, "a source is there twice"
    tables = case.recorded_tables()
    return {t: int(case.scalar(f"SELECT count(*) FROM {t}")) for t in tables}


def case_in(folder: Path) -> dict[str, int] | None:
    """What the case holds; None when there is none yet."""
    path = folder / "case.duckdb"
    if not path.exists():
        return None
    with Case.open(path) as case:
        return rows_of(case)


def shards_in(folder: Path) -> dict[str, int] | None:
    """What the shards hold; None when there are none yet."""
    where = folder / "shards"
    if not is_shards(str(where)):
        return None
    with open_shards(str(where)) as case:
        return rows_of(case)


def documents_in(folder: Path) -> dict[str, bytes] | None:
    """The documents, when the last of them is there."""
    if not (folder / "verdict.json").exists():
        return None
    json.loads((folder / "verdict.json").read_bytes())
    return {
        n: (folder / n).read_bytes() for n in ("postmortem.md", "report.html", "verdict.json")
    }


def answer_in(folder: Path) -> dict[str, object] | None:
    """What the case holds, and the documents."""
    rows = case_in(folder)
    return None if rows is None else {**rows, "documents": documents_in(folder)}


def commands(case: Path) -> dict[str, tuple[Callable[[Path], list[str]], Check]]:
    """Each command by name, for a folder, and what is looked at."""
    sample = str(SAMPLE)
    return {
        "ingest": (lambda d: [*RCA, "ingest", sample, "--out", str(d / "case.duckdb"), "-q"], case_in),
        "report": (lambda d: [*RCA, "report", str(case), "--out", str(d)], documents_in),
        "fleet ingest": (
            lambda d: [*RCA, "fleet", "ingest", sample, "--out", str(d / "shards"), "--workers", "2", "--no-dask", "-q"],
            shards_in,
        ),
        "analyze": (lambda d: [*RCA, "analyze", sample, "--out", str(d), "--no-trial", "-q"], answer_in),
    }  # fmt: skip


def names_in(folder: Path) -> set[str]:
    """All files below the folder."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def killed(
    make: Callable[[Path], list[str]], look: Check, count: int, draws: random.Random
) -> Counter[str]:
    """Kill so many times, each in a folder of its own; counts of what was found.

    The moments are spread evenly over the time that the last whole run took, one drawn from each
    part of it. A run that ended before its moment is done again with another.
    """
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work:
        first = Path(work, "whole")
        took_s = run(make(first)) or 0.0
        whole, names = look(first), names_in(first)
        assert whole
        for number in draws.sample(range(count), count):
            folder = Path(work, str(number))
            try:
                moment = (number + draws.random()) / count
                while run(make(folder), moment * took_s, alone=number % 2 == 1) is not None:
                    found["ended before"] += 1
                    shutil.rmtree(folder)
                    moment *= draws.random()
                found[_state(look(folder), whole)] += 1
                took_s = run(make(folder)) or 0.0
                assert look(folder) == whole, "a rerun gives something else"
                assert names_in(folder) == names, f"left: {names_in(folder) ^ names}"
                found["rerun complete"] += 1
            except Exception as error:  # noqa: BLE001 - each is counted and told
                found["fault"] += 1
                print(f"fault {number}: {type(error).__name__}: {error}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _state(left: object, whole: object) -> str:
    """What a kill left: nothing yet, a part, or all; more than all is a fault."""
    if left is None:
        return "nothing yet"
    if isinstance(left, dict) and isinstance(whole, dict):
        more = [t for t, n in left.items() if isinstance(n, int) and n > whole[t]]
        assert not more, f"more rows than a whole run: {more}"
    return "whole" if left == whole else "a part"


def main() -> int:
    """Kill, count, write; 1 when anything was found wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    states = ("nothing yet", "a part", "whole", "rerun complete", "fault")
    lines = ["| Command | Kills | " + " | ".join(s.capitalize() for s in states) + " |"]
    lines.append("|---|---:" + "|---:" * len(states) + "|")
    said = f"`python scripts/reliability.py --count {given.count} --seed {given.seed}`:\n\n"
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        run([*RCA, "analyze", str(SAMPLE), "--out", folder, "--no-trial", "-q"])
        for name, (make, look) in commands(Path(folder, "case.duckdb")).items():
            found = killed(make, look, given.count, random.Random(given.seed))
            faults += found["fault"]
            row = " | ".join(str(found[s]) for s in states)
            lines.append(f"| `{name}` | {given.count} | {row} |")
            print(lines[-1], dict(found), flush=True)
            write_between(BEGIN, END, said + "\n".join(lines) + "\n")
    return 1 if faults else 0


def write_between(begin: str, end: str, content: str) -> None:
    """Put content between two marks of the document."""
    head, _, rest = TARGET.read_text(encoding="utf-8").partition(begin)
    TARGET.write_text(head + begin + content + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
