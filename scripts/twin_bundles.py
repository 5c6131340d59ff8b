"""Make labelled bundles with the twin, for `rca eval`: every fault that it can show, and healthy ones.

    python scripts/twin_bundles.py OUT SEED [SEED ...]

Doses go round 1.0, 0.7 and 1.5 with the position of the seed. A bundle that is there is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rca.errors import CauseError
from rca.models.faults import FAULTS
from rca.models.reproduce import reproduce

DOSES = (1.0, 0.7, 1.5)


def main(arguments: list[str]) -> int:
    """Make the bundles; returns the exit status."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    out, seeds = Path(arguments[0]), [int(a) for a in arguments[1:]]
    for position, seed in enumerate(seeds):
        for cause in FAULTS:
            folder = out / f"{cause}-{seed}"
            if folder.exists():
                continue
            try:
                reproduce(cause, folder, engine="twin", seed=seed, dose=DOSES[position % 3])
            except CauseError:
                continue  # not to be shown by this model; `rca causes` says which
            print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
