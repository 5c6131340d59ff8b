"""How well incidents are found in labelled bundles, whatever is then made of them.

    python scripts/window_scores.py BUNDLES [--no-baseline]

Prints a line a bundle: what was found, its deviation and the bar, the overlap with the truth, and what
the fault did to users: the largest ratio of median, mean or 95th percentile of any latency, against the
baseline or the lead-in, whichever differs less. A fault below a ratio of 1.25 counts as without effect.
"""

from __future__ import annotations

import math
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rca import alerts, clock, derived, window
from rca.case import Case
from rca.evaluate.scores import wilson
from rca.pipeline import read

MATERIAL = 1.25
_FEWEST = 20


class Score(NamedTuple):
    """One bundle: whether something was found, its overlap and the true effect; None when healthy."""

    found: bool
    iou: float | None
    effect: float | None


def main(arguments: list[str]) -> int:
    """Score every bundle below a folder; returns the exit status."""
    flags, folders = (
        [a for a in arguments if a.startswith("--") == is_flag] for is_flag in (True, False)
    )
    if len(folders) != 1 or not set(flags) <= {"--no-baseline"}:
        print(__doc__, file=sys.stderr)
        return 2
    scores = [
        score(p.parent, with_baseline=not flags)
        for p in sorted(Path(folders[0]).rglob("truth.toml"))
    ]
    for line in summary(scores):
        print(line)
    return 0


def score(bundle: Path, *, with_baseline: bool) -> Score:
    """Find the incident of one bundle, print and return how well."""
    truth = tomllib.loads((bundle / "truth.toml").read_text(encoding="utf-8"))
    with read([bundle if with_baseline else bundle / "incident"]) as case:
        clock.align(case)
        derived.derive(case)
        alerts.collect(case)
        window.locate(case)
        status, by, start, end, value, bar = case.rows(
            "SELECT status, detected_by, start_ns, end_ns, score, threshold FROM incident_window ORDER BY id"
        )[0]
        found = status == "incident"
        overlap = _iou(truth, start, end) if truth["end_ns"] else None
        effect = _effect(case, truth) if truth["end_ns"] else None
    told = "healthy" if effect is None else f"iou {overlap:.2f} effect {effect:.2f}"
    print(
        f"{bundle.name:44} {status:9} {by} {value or 0:5.2f} of {bar or 0:.2f} {told}",
        flush=True,
    )
    return Score(found, overlap, effect)


def _iou(truth: dict[str, Any], start: int | None, end: int | None) -> float:
    if start is None or end is None:
        return 0.0
    both = min(end, truth["end_ns"]) - max(start, truth["start_ns"])
    return max(both, 0) / (max(end, truth["end_ns"]) - min(start, truth["start_ns"]))


def _effect(case: Case, truth: dict[str, Any]) -> float:
    """The largest ratio of any latency's median, mean or 95th percentile."""
    largest = 1.0
    for column in ("e2e_ns", "ttft_ns", "itl_ns"):
        inside, before, healthy = (
            np.array(
                [v for (v,) in case.rows(f"SELECT {column} FROM request WHERE {where}")], float
            )
            for where in (
                f"part = 'incident' AND start_ns BETWEEN {truth['start_ns']} AND {truth['end_ns']}",
                f"part = 'incident' AND start_ns < {truth['start_ns']}",
                "part = 'baseline'",
            )
        )
        inside, before, healthy = (v[np.isfinite(v)] for v in (inside, before, healthy))
        references = [r for r in (before, healthy) if len(r) >= _FEWEST]
        for figure in (np.median, np.mean, lambda v: np.percentile(v, 95)):
            ratios = [figure(inside) / figure(r) for r in references if len(inside)]
            largest = max(largest, min(ratios, key=lambda r: abs(math.log(r)), default=1.0))
    return float(largest)


def summary(scores: list[Score]) -> list[str]:
    """Shares with Wilson's interval, and mean overlaps."""
    healthy = [s for s in scores if s.effect is None]
    faults = [s for s in scores if s.effect is not None]
    material = [s for s in faults if (s.effect or 0.0) >= MATERIAL]
    lines = [f"healthy and silent: {wilson(sum(not s.found for s in healthy), len(healthy))}"]
    for name, chosen in (("faults", faults), ("faults with an effect", material)):
        overlap = float(np.mean([s.iou or 0.0 for s in chosen])) if chosen else math.nan
        found = sum(s.found for s in chosen)
        lines.append(
            f"{name}: found {found} of {len(chosen)} {wilson(found, len(chosen))}, IoU {overlap:.3f}"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
