"""Labelled bundles → how often the diagnosis is right, how wide its windows, how honest its confidence."""

from __future__ import annotations

import multiprocessing
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rca.errors import BundleError, RcaError
from rca.evaluate.perturb import PERTURBATIONS, Recording
from rca.evaluate.scores import Outcome, scores

if TYPE_CHECKING:
    from rca.case import Case
    from rca.pipeline import Options

LEFT_OUT = "its cause left out"
"""The ablation that takes the true cause out of the catalogue."""
AS_RECORDED = "as recorded"
ABLATIONS = (AS_RECORDED, *PERTURBATIONS)
"""The ablations that healthy bundles go through too."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Task:
    """One bundle to analyse, and how.

    Attributes:
        told_window: Whether the true window is given, so that ranking is judged without the scan.
        ablation: A name of `PERTURBATIONS`, `LEFT_OUT`, or `AS_RECORDED`.
    """

    bundle: Path
    told_window: bool = False
    ablation: str = AS_RECORDED


def evaluate(
    folder: Path,
    *,
    workers: int | None = None,
    told_window: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Analyse every bundle below a folder that has a truth.toml, and score the answers.

    Args:
        workers: Processes; one a core unless given.
        told_window: Give each bundle's true window, so that causes are judged without the scan.

    Returns:
        {'cases': n, 'scores': {kind: {name: value or [value, low, high]}}, 'outcomes': [...]}; shares
        have Wilson's 95 % interval.

    Raises:
        BundleError: No truth.toml below the folder.
    """
    tasks = [Task(bundle, told_window) for bundle in bundles(folder)]
    outcomes = list(_judged(tasks, workers, progress))
    return {
        "cases": len(outcomes),
        "scores": scores(outcomes),
        "outcomes": [asdict(o) for o in outcomes],
    }


def ablate(
    folder: Path,
    *,
    sample: int | None = None,
    workers: int | None = None,
    told_window: bool = False,
    progress: Progress | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """The scores of single faults and of healthy bundles, with recordings taken away or made worse.

    Args:
        sample: How many faults and how many healthy bundles are taken at most, evenly over their
            names; all unless given.
        told_window: Give each bundle's true window.

    Returns:
        {ablation: {kind: scores as of `evaluate`}}, as recorded first; with its cause left out a
        fault is of the kind 'unmodelled'.

    Raises:
        BundleError: No truth.toml below the folder.
    """
    every = bundles(folder)
    faulty = _spread([b for b in every if len(true_causes(_truth(b))) == 1], sample)
    healthy = _spread([b for b in every if _truth(b).get("kind") == "healthy"], sample)
    tasks = [Task(b, told_window, name) for name in ABLATIONS for b in faulty + healthy]
    # A cause cannot be left out where there is none.
    tasks += [Task(b, told_window, LEFT_OUT) for b in faulty]
    found: dict[str, list[Outcome]] = {}
    for task, outcome in zip(tasks, _judged(tasks, workers, progress), strict=True):
        kind = "unmodelled" if task.ablation == LEFT_OUT else outcome.kind
        found.setdefault(task.ablation, []).append(replace(outcome, kind=kind))
    return {name: scores(outcomes) for name, outcomes in found.items()}


def _spread(found: list[Path], sample: int | None) -> list[Path]:
    """At most `sample` of them, evenly over their order."""
    if not sample or sample >= len(found):
        return found
    return [found[i * len(found) // sample] for i in range(sample)]


def bundles(folder: Path) -> list[Path]:
    """The labelled bundles below a folder.

    Raises:
        BundleError: There is none.
    """
    found = sorted(p.parent for p in folder.rglob("truth.toml"))
    if not found:
        raise BundleError("no bundle with a truth.toml below it", path=str(folder))
    return found


def _judged(
    tasks: Sequence[Task], workers: int | None, progress: Progress | None
) -> Iterator[Outcome]:
    # A forked child would inherit the locks of threads that it does not have.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=fresh) as pool:
        for number, outcome in enumerate(pool.map(judge_bundle, tasks), start=1):
            if progress:
                progress(outcome.case, number, len(tasks))
            yield outcome


def judge_bundle(task: Task) -> Outcome:
    """Analyse one bundle without the experiment."""
    from rca.pipeline import analyze

    truth = _truth(task.bundle)
    try:
        with analyze([task.bundle], options=_options(task, truth)) as case:
            return _outcome(task, truth, case.verdict)
    except RcaError as error:
        return _outcome(task, truth, None, str(error))


def _options(task: Task, truth: dict[str, Any]) -> Options:
    from rca.pipeline import Options

    start_ns, end_ns = int(truth.get("start_ns", 0)), int(truth.get("end_ns", 0))
    change = PERTURBATIONS.get(task.ablation)
    recording = Recording(task.bundle.name, start_ns)

    def prepare(case: Case) -> None:
        if change is not None:
            change(case, recording)

    return Options(
        trial_budget_s=None,
        answer_only=True,
        window=(start_ns, end_ns) if task.told_window and end_ns else None,
        without=true_causes(truth) if task.ablation == LEFT_OUT else frozenset(),
        prepare=prepare,
    )


def _truth(bundle: Path) -> dict[str, Any]:
    return tomllib.loads((bundle / "truth.toml").read_text(encoding="utf-8"))


def true_causes(truth: dict[str, Any]) -> frozenset[str]:
    """The causes that were at work."""
    return frozenset({str(truth.get("cause", "")), *truth.get("causes", ())} - {""})


def _outcome(
    task: Task, truth: dict[str, Any], verdict: dict[str, Any] | None, error: str | None = None
) -> Outcome:
    causes = true_causes(truth)
    kind = str(truth.get("kind", "fault"))
    one = Outcome(
        task.bundle.name,
        "two_faults" if kind == "fault" and len(causes) > 1 else kind,
        tuple(sorted({*causes, *truth.get("acceptable", ())})),
        str(truth.get("class", "")),
        (), "failed", None, 1.0, 0.0, error, tuple(sorted(causes)), found=False,
    )  # fmt: skip
    if verdict is None:
        return one
    told = verdict["verdict"]
    ranked = [h["cause"] for h in verdict["hypotheses"]]
    first = [told["cause"]] if told["status"] == "diagnosed" else [told["status"]]
    return replace(
        one,
        answers=tuple(dict.fromkeys([*first, *ranked])),
        status=told["status"],
        said_class=told["class"],
        confidence=float(told["confidence"]),
        iou=_iou(truth, verdict["incident"]),
        contributing=tuple(sorted(told["contributing"])),
        found=verdict["incident"].get("end_ns") is not None,
    )


def _iou(truth: dict[str, Any], incident: dict[str, Any]) -> float | None:
    start, end = truth.get("start_ns", 0), truth.get("end_ns", 0)
    if not end:
        return None
    if not incident.get("end_ns"):
        return 0.0
    both = min(end, incident["end_ns"]) - max(start, incident["start_ns"])
    either = max(end, incident["end_ns"]) - min(start, incident["start_ns"])
    return float(max(both, 0) / either)
