"""Labelled bundles → how often the diagnosis is right, how wide its windows, how honest its confidence."""

from __future__ import annotations

import math
import multiprocessing
import os
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rca.errors import BundleError, RcaError

SURE = 0.87
"""Confidence at which rollbacks may be proposed."""
_BINS = 10
_Z95 = 1.959964


@dataclass(frozen=True)
class Outcome:
    """One bundle: what was true, what was said.

    Attributes:
        answers: Causes in order of rank; 'unknown' or 'no_incident' stands first for such a status.
        iou: Overlap of the windows by their union, None where the truth has none.
        error: Why there is no answer, None when there is one.
    """

    case: str
    kind: str
    right: tuple[str, ...]
    true_class: str
    answers: tuple[str, ...]
    status: str
    said_class: str | None
    confidence: float
    iou: float | None
    error: str | None = None

    def hit(self, k: int) -> bool:
        """Whether a right answer is among the first k."""
        return any(a in self.right for a in self.answers[:k])


def evaluate(
    folder: Path,
    *,
    workers: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Analyse every bundle below a folder that has a truth.toml, and score the answers.

    Returns:
        {'cases': n, 'scores': {kind: {name: value or [value, low, high]}}, 'outcomes': [...]}; shares
        have Wilson's 95 % interval.

    Raises:
        BundleError: No truth.toml below the folder.
    """
    bundles = sorted(p.parent for p in folder.rglob("truth.toml"))
    if not bundles:
        raise BundleError("no bundle with a truth.toml below it", path=str(folder))
    outcomes = []
    # A forked child would inherit the locks of threads that it does not have.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=fresh) as pool:
        for number, outcome in enumerate(pool.map(judge_bundle, bundles), start=1):
            outcomes.append(outcome)
            if progress:
                progress(outcome.case, number, len(bundles))
    return {
        "cases": len(outcomes),
        "scores": scores(outcomes),
        "outcomes": [asdict(o) for o in outcomes],
    }


def judge_bundle(bundle: Path) -> Outcome:
    """Analyse one bundle without the experiment."""
    from rca.pipeline import Options, analyze

    truth = tomllib.loads((bundle / "truth.toml").read_text(encoding="utf-8"))
    try:
        with analyze([bundle], options=Options(trial_budget_s=None)) as case:
            return _outcome(bundle.name, truth, case.verdict)
    except RcaError as error:
        return _outcome(bundle.name, truth, None, str(error))


def _outcome(
    name: str, truth: dict[str, Any], verdict: dict[str, Any] | None, error: str | None = None
) -> Outcome:
    right = {
        str(truth.get("cause", "")),
        *truth.get("acceptable", ()),
        *truth.get("causes", ()),
    } - {""}
    kind = str(truth.get("kind", "fault"))
    if verdict is None:
        return Outcome(
            name,
            kind,
            tuple(sorted(right)),
            truth.get("class", ""),
            (),
            "failed",
            None,
            1.0,
            0.0,
            error,
        )
    told = verdict["verdict"]
    ranked = [h["cause"] for h in verdict["hypotheses"]]
    first = [told["cause"]] if told["status"] == "diagnosed" else [told["status"]]
    return Outcome(
        name, kind, tuple(sorted(right)), truth.get("class", ""),
        tuple(dict.fromkeys([*first, *ranked])), told["status"], told["class"],
        float(told["confidence"]), _iou(truth, verdict["incident"]),
    )  # fmt: skip


def _iou(truth: dict[str, Any], incident: dict[str, Any]) -> float | None:
    start, end = truth.get("start_ns", 0), truth.get("end_ns", 0)
    if not end:
        return None
    if not incident.get("end_ns"):
        return 0.0
    both = min(end, incident["end_ns"]) - max(start, incident["start_ns"])
    either = max(end, incident["end_ns"]) - min(start, incident["start_ns"])
    return float(max(both, 0) / either)


def wilson(hits: int, n: int) -> list[float]:
    """[share, low, high] with Wilson's 95 % interval."""
    if not n:
        return [math.nan] * 3
    share, z2 = hits / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return [round(x, 4) for x in (share, max(centre - half, 0.0), min(centre + half, 1.0))]


def scores(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Scores by kind of case."""
    kinds = {o.kind for o in outcomes}
    found = {}
    for kind in sorted(kinds):
        of_kind = [o for o in outcomes if o.kind == kind]
        found[kind] = _of_kind(kind, of_kind)
    return found


def _of_kind(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    n = len(outcomes)
    if kind == "healthy":
        return {
            "n": n,
            "no_incident": wilson(sum(o.status == "no_incident" for o in outcomes), n),
        }
    if kind == "unmodelled":
        careful = sum(o.status == "unknown" or o.confidence < 0.5 or o.hit(1) for o in outcomes)
        return {"n": n, "careful": wilson(careful, n), "iou": _mean(o.iou for o in outcomes)}
    diagnosed = [o for o in outcomes if o.status in ("diagnosed", "failed")]
    sure = [o for o in diagnosed if o.confidence >= SURE]
    return {
        "n": n,
        "ac1": wilson(sum(o.hit(1) for o in outcomes), n),
        "ac3": wilson(sum(o.hit(3) for o in outcomes), n),
        "class": wilson(sum(o.said_class == o.true_class for o in outcomes), n),
        "iou": _mean(o.iou for o in outcomes),
        "unknown": wilson(sum(o.status == "unknown" for o in outcomes), n),
        "missed": wilson(sum(o.status == "no_incident" for o in outcomes), n),
        "brier": _mean((o.confidence - o.hit(1)) ** 2 for o in diagnosed),
        "ece": _ece(diagnosed),
        "precision_when_sure": wilson(sum(o.hit(1) for o in sure), len(sure)),
        "coverage_when_sure": wilson(len(sure), n),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(sum(known) / len(known), 4) if known else None


def _ece(outcomes: Sequence[Outcome]) -> float | None:
    """Expected calibration error over ten equal bins of confidence."""
    if not outcomes:
        return None
    total = 0.0
    for bin_ in range(_BINS):
        inside = [o for o in outcomes if min(int(o.confidence * _BINS), _BINS - 1) == bin_]
        if inside:
            gap = sum(o.confidence for o in inside) - sum(o.hit(1) for o in inside)
            total += abs(gap)
    return round(total / len(outcomes), 4)
