"""Write the matrix of docs/reproducer.md: which candidate looks most like which fault.

    python scripts/fault_matrix.py [--check] [--seeds 43,57,71] [--needs]

Each fault is run in the twin with seeds and doses that the candidates were not run with,
and compared by `ranking.rank` with all candidates at three doses. Pairs of equal services
go through the same steps: what is counted is how far they come before torch would be asked.
--check prints the section, writes nothing, and fails below the aim; other seeds are always printed
only. --needs writes only what the other causes would need, which takes no time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rca.models.arms import run_twin
from rca.models.fault import Fault
from rca.models.faults import FAULTS
from rca.models.figures import Figures, log_ratios
from rca.models.modelled_counts import count
from rca.models.ranking import LEAST_LIKENESS, Rank, is_still, rank
from rca.models.screening import COUNTED, SECONDS, mean_of, still
from rca.models.settings import Plan

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reproducer.md"
MATRIX, NEEDS = "matrix", "needs"
CANDIDATE_DOSES = (0.5, 1.0, 2.0)
CANDIDATE_SEEDS = (101, 102)
DOSES = (0.7, 1.4)
SEEDS = (7, 19, 31)
EQUAL_PAIRS = 200
LEAST_RIGHT = 0.85

Shown = dict[tuple[str, float], Figures]


class Trial(NamedTuple):
    """One fault as an incident, and what the candidates look like beside it."""

    truth: str
    dose: float
    seed: int
    ranks: list[Rank]


def main(arguments: list[str]) -> int:
    """Measure, and write or check the document; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print, and write nothing")
    parser.add_argument("--seeds", type=_whole_numbers, default=SEEDS, help="of the incidents")
    parser.add_argument("--needs", action="store_true", help="write the other table only")
    asked = parser.parse_args(arguments)
    if asked.needs:
        write(NEEDS, needs())
        return 0
    faults = [f for f in FAULTS.values() if f.reproducible and f.cause != "healthy"]
    shown = candidates(faults)
    trials = list(incidents(faults, shown, asked.seeds))
    text = report(faults, trials, taken_for_a_fault(faults, shown))
    if asked.check or asked.seeds != SEEDS:
        print(text)
        return int(asked.check and first_share(trials) < LEAST_RIGHT)
    write(MATRIX, text)
    write(NEEDS, needs())
    return 0


def write(name: str, text: str) -> None:
    """Write a section of the document between its marks."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, rest = DOCUMENT.read_text(encoding="utf-8").split(begin, 1)
    tail = rest.split(end, 1)[1]
    DOCUMENT.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def needs() -> str:
    """What the causes need that cannot be switched on here."""
    lines = ["| Cause | What it would need |", "|---|---|"]
    lines += [
        f"| `{fault.cause}` | {fault.device.removeprefix('needs ')} |"
        for fault in FAULTS.values()
        if not fault.reproducible
    ]
    return "\n".join(lines)


def first_share(trials: Sequence[Trial]) -> float:
    """Share of the incidents whose true cause comes first."""
    return sum(trial.ranks[0].cause == trial.truth for trial in trials) / len(trials)


def _whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def candidates(faults: Iterable[Fault]) -> Shown:
    """Mean log-ratios of each candidate at each dose."""
    healthy = [_figures(Plan(), seed) for seed in CANDIDATE_SEEDS]
    return {
        (fault.cause, dose): mean_of(
            [
                log_ratios(_figures(fault.plan(Plan(), dose, SECONDS), seed), before)
                for seed, before in zip(CANDIDATE_SEEDS, healthy, strict=True)
            ]
        )
        for fault in faults
        for dose in CANDIDATE_DOSES
    }


def _figures(plan: Plan, seed: int) -> Figures:
    """Of metrics and traces, and of the profile."""
    counts = count(plan, seed)
    return run_twin(plan, seed, SECONDS) | {figure: counts[figure] for figure in COUNTED}


def incidents(faults: Iterable[Fault], shown: Shown, seeds: Sequence[int]) -> Iterable[Trial]:
    """Each fault with each seed and dose, against a healthy service of another seed."""
    for seed in seeds:
        before = _figures(Plan(), 1000 + seed)
        for fault in faults:
            for dose in DOSES:
                after = _figures(fault.plan(Plan(), dose, SECONDS), seed)
                ranks = rank(log_ratios(after, before), shown)
                yield Trial(fault.cause, dose, seed, ranks)


def taken_for_a_fault(faults: list[Fault], shown: Shown) -> Counter[str]:
    """Of pairs of equal services, how many each cheap step would have let through."""
    passed: Counter[str] = Counter()
    by_cause = {fault.cause: fault for fault in faults}
    for pair in range(EQUAL_PAIRS):
        before, after = (run_twin(Plan(), 5000 + 2 * pair + n, SECONDS) for n in (0, 1))
        observed = log_ratios(after, before)
        if is_still(observed):
            passed["still"] += 1
            continue
        best = rank(observed, shown)[0]
        fault = by_cause[best.cause]
        alike = best.likeness >= LEAST_LIKENESS
        passed["alike"] += alike
        moved = _moved(fault.moves, observed)
        passed["alike, and its counters moved"] += alike and moved
    return passed


def _moved(moves: Mapping[str, int], observed: Figures) -> bool:
    return bool(moves) and not still(moves, observed)


def report(faults: list[Fault], trials: list[Trial], equal: Counter[str]) -> str:
    """The section of the document."""
    right = sum(trial.ranks[0].cause == trial.truth for trial in trials)
    three = sum(trial.truth in [r.cause for r in trial.ranks[:3]] for trial in trials)
    share = first_share(trials)
    lines = [
        f"{len(faults)} faults, doses {_list(DOSES)}, seeds {_list(sorted({trial.seed for trial in trials}))}: {len(trials)} "
        f"incidents. The right candidate is first in {right} ({share:.0%}; the aim is "
        f"{LEAST_RIGHT:.0%}: {'kept' if share >= LEAST_RIGHT else 'missed'}) and among the "
        f"first three in {three} ({three / len(trials):.0%}).",
        "",
        f"Of {EQUAL_PAIRS} pairs of equal services with different traffic, {equal['still']} "
        f"show nothing that moved by a fifth, {equal['alike']} look somewhat like a "
        f"candidate (likeness of {LEAST_LIKENESS:g} or more), and in "
        f"{equal['alike, and its counters moved']} that candidate's counters moved as they "
        "must. None is validated: the twin alone never validates.",
        "",
        "| Fault | First | Taken for |",
        "|---|---|---|",
    ]
    for fault in faults:
        own = [trial for trial in trials if trial.truth == fault.cause]
        first = Counter(trial.ranks[0].cause for trial in own)
        hits = first.pop(fault.cause, 0)
        wrong = ", ".join(f"`{cause}` {n}" for cause, n in first.most_common())
        lines.append(f"| `{fault.cause}` | {hits} of {len(own)} | {wrong} |")
    return "\n".join(lines)


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
