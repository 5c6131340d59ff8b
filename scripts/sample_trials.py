"""Put each sample's cause to the experiment, and a wrong one too; print the table, or write it.

    python scripts/sample_trials.py [--budget 20] [--write] [SAMPLE ...]

Each bundle of sample_traces/ is diagnosed once. Then its trial is run twice: for the cause that
the verdict names, and for the best other hypothesis, which is wrong because truth.toml names
neither it nor takes it as acceptable. --write puts the table into docs/reproducer.md; it takes
all samples, and about a minute for each with the usual budget. Run it on a machine that has
nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rca import trial
from rca.case import Case
from rca.models.faults import FAULTS, find, is_known
from rca.pipeline import Options, analyze

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reproducer.md"
BEGIN, END = "<!-- sample trials -->", "<!-- /sample trials -->"
_NO_RIVAL = ("overload", "kv_pool_too_small")
_NS = 1e9


class Tried(NamedTuple):
    """One trial: what was claimed of which sample, and what came out."""

    sample: str
    is_true: bool
    cause: str | None
    status: str
    pairs: int
    spent_s: float
    reason: str
    details: dict[str, Any]


def main(arguments: list[str]) -> int:
    """Run the trials, print them, and write the document when asked; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help="all unless given")
    parser.add_argument("--budget", type=float, default=trial.DEFAULT_BUDGET_S, help="seconds")
    parser.add_argument("--write", action="store_true", help="into docs/reproducer.md")
    asked = parser.parse_args(arguments)
    every = sorted(path.name for path in (ROOT / "sample_traces").glob("[0-9]*"))
    chosen = [name for name in every if not asked.samples or name in asked.samples]
    found: list[Tried] = []
    loads = [os.getloadavg()[0]]
    for name in chosen:
        for tried in both(ROOT / "sample_traces" / name, asked.budget):
            found.append(tried)
            print(f"{_row(tried, asked.budget)}\n    {tried.reason}", flush=True)
        loads.append(os.getloadavg()[0])
    if asked.write:
        machine = f"{os.cpu_count()} cores, load average {min(loads):.1f} to {max(loads):.1f} meanwhile"
        _write(table(found, asked.budget, machine))
    return 0


def both(bundle: Path, budget_s: float, right_budget_s: float | None = None) -> Iterator[Tried]:
    """The trial of the verdict's cause, then that of a wrong one; budgets are wall time."""
    truth = tomllib.loads((bundle / "truth.toml").read_text(encoding="utf-8"))
    right = {truth["cause"], *truth["causes"], *truth["acceptable"]}
    with analyze([bundle], options=Options(trial_budget_s=None)) as case:
        trial.run(case, budget_s if right_budget_s is None else right_budget_s)
        yield _told(case, bundle.name, right)
        trial.run(case, budget_s, wrong_hypothesis(case, right))
        yield _told(case, bundle.name, right)


def wrong_hypothesis(case: Case, right: set[str]) -> str:
    """The best hypothesis that the model can show and that is not true."""
    ranked = [c for (c,) in case.rows("SELECT cause FROM hypothesis ORDER BY rank")]
    for cause in (*ranked, *_NO_RIVAL):
        if is_known(cause) and find(cause).reproducible and find(cause).cause not in right:
            return find(cause).cause
    raise ValueError("every hypothesis is true")


def _told(case: Case, sample: str, right: set[str]) -> Tried:
    ((cause, status, pairs, spent_ns, reason, details),) = case.rows(
        "SELECT cause, status, pairs, spent_ns, reason, details FROM trial"
    )
    known = json.loads(details)
    return Tried(sample, cause in right, cause, status, pairs, spent_ns / _NS, reason, known)


def table(found: list[Tried], budget_s: float, machine: str) -> str:
    """The section of the document; `machine` says where it was measured."""
    lines = [
        f"Budget {budget_s:g} s each; {machine}. Effects are the first latency that the fault must worsen, "
        "against healthy, with 95 % intervals; likeness is the claim's, and by how much the best "
        "of its rivals that is not ruled out lies below.",
    ]
    for title, is_true in (("the cause that the verdict names", True), ("a wrong one", False)):
        lines += ["", f"Claim: {title}.", ""]
        lines += [
            "| Sample | Claim | Status | Pairs | Fault | Fix | Placebo | Rank, likeness "
            "| Side effects of the fix | Time |",
            "|---|---|---|---:|---|---|---|---|---|---:|",
        ]
        own = [t for t in found if (t.is_true or t.cause is None) is is_true]
        lines += [_row(tried, budget_s) for tried in own]
    return "\n".join(lines)


def _row(tried: Tried, budget_s: float) -> str:
    claim = f"`{tried.cause}`" if tried.cause else ""
    cells = [
        tried.sample, claim, tried.status, str(tried.pairs or ""),
        *(_effect(tried, arm) for arm in ("fault", "fix", "placebo")),
        _likeness(tried), ", ".join(tried.details.get("side_effects", [])),
        f"{tried.spent_s / budget_s:.0%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _effect(tried: Tried, arm: str) -> str:
    effects = tried.details.get("effects", {}).get(arm, {})
    for figure in FAULTS[tried.cause].timing if tried.cause else ():
        if effect := effects.get(figure):
            interval = f"[{effect['low']:.3g}–{effect['high']:.3g}]"
            return f"{figure} ×{effect['ratio']:.3g} {interval}"
    return ""


def _likeness(tried: Tried) -> str:
    ranks = tried.details.get("ranks", [])
    out = tried.details.get("ruled_out", {})
    own = next((n for n, rank in enumerate(ranks) if rank["cause"] == tried.cause), None)
    if own is None:
        return ""
    others = [r["likeness"] for r in ranks if r["cause"] not in (tried.cause, *out)]
    mine = ranks[own]["likeness"]
    margin = f", {mine - max(others):+.2f}" if others else ", no rival"
    return f"{own + 1} of {len(ranks)}, {mine:.2f}{margin}"


def _write(text: str) -> None:
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
