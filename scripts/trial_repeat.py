"""Repeat the trial of bundles, and print how often it came to which status, and the time it took.

    python scripts/trial_repeat.py [--times 20] [--load 2] [--budget 20] BUNDLE...

Each bundle is analysed once and its experiment run --times over, with --load processes that do
nothing but compute beside it. One line a bundle: the cause, the statuses with their counts, and the
longest run as a share of the budget.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rca import trial
from rca.pipeline import Options, analyze

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> int:
    """Run, print, and return the exit status: 0 when each bundle had one status alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--budget", type=float, default=trial.DEFAULT_BUDGET_S, help="seconds")
    asked = parser.parse_args()
    steady = True
    for bundle in asked.bundles:
        with analyze([bundle], options=Options(trial_budget_s=None)) as case, busy(asked.load):
            found: Counter[str] = Counter()
            longest = 0.0
            for _ in range(asked.times):
                begun = time.monotonic()
                trial.run(case, asked.budget)
                longest = max(longest, time.monotonic() - begun)
                found[case.scalar("SELECT status FROM trial")] += 1
            cause = case.scalar("SELECT cause FROM trial") or "no cause"
        told = ", ".join(f"{n} {status}" for status, n in found.most_common())
        print(
            f"{bundle.name}: {cause}: {told}; longest {longest / asked.budget:.0%} of the budget",
            flush=True,
        )
        steady &= len(found) == 1
    return 0 if steady else 1


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute without end, until the block ends."""
    workers = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()


def _compute() -> None:
    while True:
        sum(range(10_000))


if __name__ == "__main__":
    sys.exit(main())
