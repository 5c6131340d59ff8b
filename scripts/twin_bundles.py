"""Make labelled bundles for `rca eval`: every fault that the model can show, pairs, and healthy ones.

    python scripts/twin_bundles.py OUT SEED [SEED ...] [--pairs N] [--healthy N] [--doses 1,0.7,1.5]
        [--causes CAUSE,CAUSE] [--engine torch]

Doses go round with the position of the seed. Pairs are drawn with the seed, from
different components or classes where they can be. A bundle that is there is kept. Torch takes longer
for one than the twin.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from itertools import combinations
from pathlib import Path

from rca.errors import CauseError
from rca.models.faults import FAULTS
from rca.models.reproduce import reproduce

_HEALTHY_EVERY = 100_000
"""Seeds of further healthy bundles lie this far apart from those of faults."""


def pairs(seed: int, count: int) -> list[str]:
    """`count` pairs of faults as `A+B`, drawn with the seed, no two of one class and component.

    Faults of the modelled host take no part: a seed goes on to mean the pairs that it meant.
    """
    shown = [f for f in FAULTS.values() if f.reproducible and f.cause_class and not f.by_model]
    possible = [
        f"{a.cause}+{b.cause}"
        for a, b in combinations(shown, 2)
        if (a.cause_class, a.component) != (b.cause_class, b.component)
    ]
    return random.Random(seed).sample(possible, min(count, len(possible)))


def _make(cause: str, folder: Path, engine: str, seed: int, dose: float) -> None:
    if folder.exists():
        return
    half = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        reproduce(cause, half, engine=engine, seed=seed, dose=dose)
    except CauseError:
        return  # not to be shown by this model; `rca causes` says which
    half.rename(folder)
    print(folder, flush=True)


def main(arguments: list[str]) -> int:
    """Make the bundles; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of faults for each seed")
    parser.add_argument("--healthy", type=int, default=1, help="healthy bundles for each seed")
    parser.add_argument("--doses", default="1.0,0.7,1.5", help="strengths of the faults")
    parser.add_argument("--causes", help="these only, and no healthy ones")
    parser.add_argument("--engine", choices=["twin", "torch"], default="twin")
    told = parser.parse_args(arguments)
    causes = told.causes.split(",") if told.causes else [c for c in FAULTS if c != "healthy"]
    doses = [float(text) for text in told.doses.split(",")]
    for position, seed in enumerate(told.seeds):
        dose = doses[position % len(doses)]
        for number in range(0 if told.causes else told.healthy):
            other = seed + number * _HEALTHY_EVERY
            _make("healthy", told.out / f"healthy-{other}", told.engine, other, dose)
        for cause in causes + pairs(seed, told.pairs):
            _make(cause, told.out / f"{cause}-{seed}", told.engine, seed, dose)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
