"""Kill rca at random moments and look what is left; writes the counts into docs/reliability.md.

    python scripts/reliability.py --count 20 --seed 1

For each of ingest, analyze, report and fleet: the command is run once whole, then started and killed
with SIGKILL, together with the processes that it started, at a moment drawn evenly from the time it
took whole. After each kill the case must open (or not be there yet), hold no source twice and no
row that a whole run has not, and nothing half-written may be called done: a verdict.json must be
JSON. Then the command runs again, and must give what a whole run gives.
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
from pathlib import Path

from rca.case import Case
from rca.fleet import is_shards, open_shards

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- killed: begin -->\n", "<!-- killed: end -->\n"
SAMPLE = ROOT / "sample_traces" / "03_batch_window_mismatch"
RCA = [sys.executable, "-m", "rca.cli"]
Check = Callable[[Path], object]


def run(command: list[str], kill_after_s: float | None = None) -> float:
    """Run to the end, or kill it and all it started after so long; returns the seconds it ran."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            assert process.returncode == 0, f"{command} ended with {process.returncode}"
    return time.monotonic() - began


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


def commands(case: Path) -> dict[str, tuple[Callable[[Path], list[str]], Check]]:
    """Each command by name, for a folder, and what is looked at."""
    sample = str(SAMPLE)
    return {
        "ingest": (lambda d: [*RCA, "ingest", sample, "--out", str(d / "case.duckdb"), "-q"], case_in),
        "analyze": (lambda d: [*RCA, "analyze", sample, "--out", str(d), "--no-trial", "-q"], case_in),
        "report": (lambda d: [*RCA, "report", str(case), "--out", str(d)], documents_in),
        "fleet ingest": (
            lambda d: [*RCA, "fleet", "ingest", sample, "--out", str(d / "shards"), "--workers", "2", "--no-dask", "-q"],
            shards_in,
        ),
    }  # fmt: skip


def killed(
    make: Callable[[Path], list[str]], look: Check, count: int, draws: random.Random
) -> Counter[str]:
    """Kill so many times, each in a folder of its own; counts of what was found."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work:
        took_s = run(make(Path(work, "whole")))
        whole = look(Path(work, "whole"))
        assert whole
        for number in range(count):
            folder = Path(work, str(number))
            folder.mkdir()
            run(make(folder), draws.uniform(0, took_s))
            try:
                left = look(folder)
                found[
                    "nothing yet" if left is None else "whole" if left == whole else "a part"
                ] += 1
                if isinstance(left, dict) and isinstance(whole, dict) and left != whole:
                    more = [t for t, n in left.items() if isinstance(n, int) and n > whole[t]]
                    assert not more, f"more rows than a whole run: {more}"
                run(make(folder))
                assert look(folder) == whole, "a rerun gives something else"
                found["rerun complete"] += 1
            except Exception as error:  # noqa: BLE001 - each is counted and told
                found["fault"] += 1
                print(f"fault: {type(error).__name__}: {error}", flush=True)
            shutil.rmtree(folder)
    return found


def main() -> int:
    """Kill, count, write; 1 when anything was found wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    states = ("nothing yet", "a part", "whole", "rerun complete", "fault")
    lines = ["| Command | Kills | " + " | ".join(s.capitalize() for s in states) + " |"]
    lines.append("|---|---:" + "|---:" * len(states) + "|")
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        run([*RCA, "analyze", str(SAMPLE), "--out", folder, "--no-trial", "-q"])
        for name, (make, look) in commands(Path(folder, "case.duckdb")).items():
            found = killed(make, look, given.count, random.Random(given.seed))
            faults += found["fault"]
            row = " | ".join(str(found[s]) for s in states)
            lines.append(f"| `{name}` | {given.count} | {row} |")
            print(lines[-1], flush=True)
    said = f"`python scripts/reliability.py --count {given.count} --seed {given.seed}`:\n\n"
    write_between(BEGIN, END, said + "\n".join(lines) + "\n")
    return 1 if faults else 0


def write_between(begin: str, end: str, content: str) -> None:
    """Put content between two marks of the document."""
    head, _, rest = TARGET.read_text(encoding="utf-8").partition(begin)
    TARGET.write_text(head + begin + content + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
