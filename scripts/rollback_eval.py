"""Measure rollbacks on twin bundles: how often the right revision, and how often a wrong one.

    python scripts/rollback_eval.py OUT [CHANGED OTHERS [FIRST_SEED]]

Makes CHANGED bundles of faults that a rollout of the engine brought (class code-regression or
config) and OTHERS of faults that no rollback mends, red herrings and healthy services, all with
three unrelated changes around them; analyses each without the experiment, and prints the counts.
OUT/outcomes.jsonl keeps one line a bundle: what is there is not made again. One process a core
works on them.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from rca import fixes
from rca.evaluate.scores import wilson
from rca.fixes import ROLLBACK_CLASSES
from rca.models.faults import FAULTS
from rca.models.reproduce import reproduce
from rca.pipeline import Options, analyze

_OTHERS = ("healthy", "red_herring")
_DOSES = (1.0, 1.5)
_REVISION = re.compile(r"^revision=(\d+)$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Make, analyse, count; returns the exit status."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[0])
    numbers = [int(a) for a in arguments[1:]]
    changed, others, seed = [*numbers, *(100, 300, 20_000)[len(numbers) :]]
    out.mkdir(parents=True, exist_ok=True)
    wanted = [*_wanted(True, changed, seed), *_wanted(False, others, seed)]
    told = out / "outcomes.jsonl"
    lines = told.read_text().splitlines() if told.is_file() else []
    known = {r["bundle"]: r for r in map(json.loads, lines)}
    new = [task for task in wanted if f"{task[1]}-{task[2]}" not in known]
    # A forked child would inherit the locks of threads that it does not have.
    fresh = multiprocessing.get_context("spawn")
    with (
        told.open("a", encoding="utf-8") as file,
        ProcessPoolExecutor(mp_context=fresh) as pool,
    ):
        for done in as_completed([pool.submit(_outcome, out, *task) for task in new]):
            row = done.result()
            known[row["bundle"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
    rows = [known[f"{cause}-{number}"] for _, cause, number, _ in wanted]
    for line in summary(rows):
        print(line)
    return 0


def _wanted(by_change: bool, count: int, seed: int) -> Iterator[tuple[bool, str, int, float]]:
    """(by a change, cause, seed, dose), causes in turn."""
    causes = [
        f.cause
        for f in FAULTS.values()
        if f.reproducible and (f.cause_class in ROLLBACK_CLASSES) == by_change
    ]
    causes += [] if by_change else [c for c in _OTHERS if c not in causes]
    for number, cause in enumerate(islice(cycle(causes), count)):
        yield by_change, cause, seed + number, _DOSES[number // len(causes) % len(_DOSES)]


def _outcome(out: Path, by_change: bool, cause: str, seed: int, dose: float) -> dict[str, Any]:
    """What was proposed for one bundle; the bundle itself is not kept."""
    folder = out / f"{cause}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)  # what an ended run has left half done
    reproduce(cause, folder, engine="twin", seed=seed, dose=dose)
    truth = tomllib.loads((folder / "truth.toml").read_text(encoding="utf-8"))
    with analyze([folder], options=Options(trial_budget_s=None, answer_only=True)) as case:
        fixes.propose(case)
        said = case.verdict["verdict"]
        blame = case.scalar(
            "SELECT sum(confidence) FROM hypothesis WHERE class IN ('config', 'code-regression') AND change_id = ?",
            (truth["change"],),
        )
        rows = case.rows(
            "SELECT change_id, content FROM fix WHERE kind = 'rollback' ORDER BY id"
        )
        gates = [gate for (gate,) in case.rows("SELECT gate FROM fix ORDER BY id LIMIT 1")]
    shutil.rmtree(folder)
    proposed = rows[0] if rows else (None, "")
    revision = _REVISION.search(proposed[1] or "")
    return {
        "bundle": folder.name, "cause": cause, "by_change": by_change and bool(truth["change"]),
        "status": said["status"], "said": said["cause"], "confidence": said["confidence"], "blame": blame,
        "change": proposed[0], "revision": int(revision[1]) if revision else None,
        "true_change": truth["change"], "true_revision": truth["revision"], "gate": gates[0] if gates else None,
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The counts, in lines."""
    changed = [r for r in rows if r["by_change"]]
    others = [r for r in rows if not r["by_change"]]
    found = [r for r in changed if r["status"] == "diagnosed"]
    right = [r for r in changed if _is_right(r)]
    yield f"caused by a change: {len(changed)}, found {len(found)}"
    yield f"right revision proposed, of all: {_share(len(right), len(changed))}"
    yield f"right revision proposed, of those found: {_share(len(right), len(found))}"
    wrong = [r for r in changed if r["change"] and not _is_right(r)]
    yield f"wrong rollback among them: {len(wrong)}"
    bad = [r for r in others if r["change"]]
    yield f"others: {len(others)}; wrong rollbacks: {_share(len(bad), len(others))}"
    for row in [*wrong, *bad]:
        yield f"  wrong: {row['bundle']} said {row['said']} {row['confidence']:.2f} {row['change']}"


def _is_right(row: dict[str, Any]) -> bool:
    same = (row["change"], row["revision"]) == (
        row["true_change"],
        row["true_revision"] or None,
    )
    return bool(row["change"]) and same


def _share(hits: int, n: int) -> str:
    share, low, high = wilson(hits, n)
    return f"{hits} of {n} = {share:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
