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
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from rca.case import Case
from rca.cli import main as main_of_rca
from rca.fleet import is_shards, open_shards

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- killed: begin -->\n", "<!-- killed: end -->\n"
SAMPLE = ROOT / "sample_traces" / "03_batch_window_mismatch"
FRESH = multiprocessing.get_context("forkserver")
MODULES = [
    "rca.cli",
    "rca.pipeline",
    "rca.fleet",
    "rca.postmortem.html",
    "rca.postmortem.markdown",
    "altair",
    "jsonschema",
    "pyarrow.dataset",
    "scipy.special",
]
"""Loaded before the clock runs, so that the moments fall on the work."""
with Case.create() as _empty:
    TABLES = _empty.recorded_tables()  # in shards some are views
Check = Callable[[Path], object]
MOST_S_TO_END = 30.0
"""A process that was just started reads its modules first, which takes its time on a busy machine."""
STATES = ("kills", "nothing yet", "a part", "whole", "rerun complete", "fault")


def run(
    arguments: list[str], kill_after_s: float | None = None, *, alone: bool = False
) -> float | None:
    """Run `rca` to the end, or kill it after so long.

    Args:
        arguments: Of the command line.
        kill_after_s: Seconds; to the end when None.
        alone: Kill the first process only; those that it started must then end by themselves.

    Returns:
        The seconds it ran, None when it was killed.
    """
    began, begins = FRESH.Pipe(duplex=False)
    process = FRESH.Process(target=_rca, args=(arguments, begins))
    process.start()
    begins.close()
    began.recv()
    start = time.monotonic()
    process.join(kill_after_s)
    took_s = time.monotonic() - start
    if process.exitcode is None and process.pid is not None:
        (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)
        process.join()
        _await_end(process.pid)
        return None
    assert process.exitcode == 0, f"{arguments} ended with {process.exitcode}"
    return took_s


def _rca(arguments: list[str], begins: Connection) -> None:
    """The command line in a group of its own, silent."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    sys.argv = ["rca", *arguments]
    begins.send(True)
    main_of_rca()


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
    return {t: int(case.scalar(f"SELECT count(*) FROM {t}")) for t in TABLES}


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


def commands(case: Path, light: Path) -> dict[str, tuple[Callable[[Path], list[str]], Check]]:
    """Each command by name, for a folder, and what is looked at.

    Args:
        case: One that was analysed, for its documents.
        light: A bundle that is read and analysed in a short time.
    """
    return {
        "ingest": (lambda d: ["ingest", str(SAMPLE), "--out", str(d / "case.duckdb"), "-q"], case_in),
        "report": (lambda d: ["report", str(case), "--out", str(d)], documents_in),
        "fleet ingest": (
            lambda d: ["fleet", "ingest", str(light), "--out", str(d / "shards"), "--workers", "2", "--no-dask", "-q"],
            shards_in,
        ),
        "analyze": (lambda d: ["analyze", str(light), "--out", str(d), "--no-trial", "-q"], answer_in),
    }  # fmt: skip


def light_bundle(folder: Path) -> Path:
    """The sample without profiles and traces of requests: metrics, changes and configuration."""
    return Path(shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("*trace*")))


def names_in(folder: Path) -> set[str]:
    """All files below the folder."""
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def killed(
    make: Callable[[Path], list[str]],
    look: Check,
    count: int,
    budget_s: float,
    draws: random.Random,
) -> Counter[str]:
    """Kill so many times or until the budget ends, each in a folder of its own; what was found.

    The moments are spread evenly over the time that the last whole run took, one drawn from each
    part of it. A run that ended before its moment is done again with another.
    """
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work:
        first = Path(work, "whole")
        took_s = run(make(first)) or 0.0
        whole, names = look(first), names_in(first)
        assert whole
        ends = time.monotonic() + budget_s
        for number in draws.sample(range(count), count):
            if time.monotonic() > ends:
                break
            found["kills"] += 1
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
    parser.add_argument("--budget", type=float, default=3600, help="seconds for each command")
    parser.add_argument("--only", nargs="+", default=[], help="commands; all unless given")
    given = parser.parse_args()
    faults = 0
    FRESH.set_forkserver_preload(MODULES)
    with tempfile.TemporaryDirectory() as folder:
        light, out = light_bundle(Path(folder, "light")), Path(folder, "out")
        run(["analyze", str(light), "--out", str(out), "--no-trial", "-q"])
        for name, (make, look) in commands(out / "case.duckdb", light).items():
            if given.only and name.split()[0] not in given.only:
                continue
            found = killed(make, look, given.count, given.budget, random.Random(given.seed))
            faults += found["fault"]
            row = " | ".join(str(n) for n in (given.seed, *(found[s] for s in STATES)))
            print(f"| `{name}` | {row} |", dict(found), flush=True)
            write_between(BEGIN, END, table(f"| `{name}` |", f"{row} |"))
    return 1 if faults else 0


def table(command: str, counts: str) -> str:
    """The table of the document, with these counts in the row of a command."""
    kept = TARGET.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    rows = {row[: row.index("|", 2) + 1]: row for row in kept if row.startswith("| `")}
    rows[command] = f"{command} {counts}"
    head = "| Command | Seed | " + " | ".join(s.capitalize() for s in STATES) + " |"
    return "\n".join([head, "|---" + "|---:" * (len(STATES) + 1) + "|", *rows.values()]) + "\n"


def write_between(begin: str, end: str, content: str) -> None:
    """Put content between two marks of the document."""
    head, _, rest = TARGET.read_text(encoding="utf-8").partition(begin)
    TARGET.write_text(head + begin + content + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
