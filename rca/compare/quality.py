"""Quality metrics beside latency: better, same or worse, by a rule for each, and all together."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rca.errors import RcaError
from rca.plain import printable

LATENCY_STEP = 0.05
"""Growth of P99 that still counts as the same."""
_MIN_PAIRS = 20
_MAX_BYTES = 100_000_000


class Rule(NamedTuple):
    """Which way is better, and from which step on a difference counts."""

    higher_is_better: bool
    step: float


def read(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Pairs of values (base, candidate) by metric, from a CSV with metric, base, candidate.

    One row a metric is an average; many rows of a metric are the same samples on both sides.

    Raises:
        RcaError: Not such a file.
    """
    if not path.is_file():
        raise RcaError("no such file", path=str(path))
    if path.stat().st_size > _MAX_BYTES:
        raise RcaError("is too large for a table of quality metrics", path=str(path))
    hint = "write a line metric,base,candidate and one line a value"
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"metric", "base", "candidate"} <= set(rows.fieldnames or ()):
                raise RcaError(
                    "has no columns metric, base, candidate", path=str(path), hint=hint
                )
            for row in rows:
                pair = _number(row["base"]), _number(row["candidate"])
                if pair[0] is None or pair[1] is None or not row["metric"]:
                    place = f"line {rows.line_num}"
                    raise RcaError(
                        "is no pair of numbers", path=str(path), place=place, hint=hint
                    )
                found.setdefault(row["metric"].strip(), []).append((pair[0], pair[1]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RcaError(f"is no CSV: {error}", path=str(path), hint=hint) from error
    if not found:
        raise RcaError("holds no values", path=str(path), hint=hint)
    return found


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def judge(
    pairs: Mapping[str, list[tuple[float, float]]],
    rules: Mapping[str, Rule],
    p99: Mapping[str, Any],
) -> dict[str, Any]:
    """Each metric by its rule, latency by its P99, and the joint word.

    'worse' when anything is worse; else 'undecided' when anything is; else 'better' when any
    quality metric is better; else 'same'. A metric without a rule is undecided.
    """
    metrics = [_metric(name, values, rules) for name, values in pairs.items()]
    latency = _latency(p99)
    words = [latency, *(m["word"] for m in metrics)]
    joint = next((w for w in ("worse", "undecided") if w in words), None)
    if joint is None:
        joint = "better" if "better" in words[1:] else "same"
    return {"joint": joint, "latency": latency, "metrics": metrics}


def _latency(p99: Mapping[str, Any]) -> str:
    """'same' covers a shorter P99 too: it makes up for no loss of quality."""
    low, high, limit = p99["low"], p99["high"], math.log1p(LATENCY_STEP)
    if low is None or high is None:
        return "undecided"
    return "same" if high <= limit else "worse" if low > limit else "undecided"


def _metric(
    name: str, values: list[tuple[float, float]], rules: Mapping[str, Rule]
) -> dict[str, Any]:
    base, candidate = np.array(values).T
    gains = candidate - base
    row: dict[str, Any] = {
        "metric": name, "n": len(values), "base": float(base.mean()),
        "candidate": float(candidate.mean()), "difference": float(gains.mean()),
        "low": None, "high": None, "word": "undecided", "why": None,
    }  # fmt: skip
    if len(values) >= _MIN_PAIRS:
        row["low"], row["high"] = _interval(gains)
    rule = rules.get(name.lower())
    if rule is None:
        row["why"] = f"no rule: add [quality.{printable(name, 40)}] to the gate's file"
        return row
    sign = 1 if rule.higher_is_better else -1
    known = [x for x in (row["low"], row["high"]) if x is not None] or [row["difference"]]
    least, most = min(sign * x for x in known), max(sign * x for x in known)
    if most <= -rule.step:
        row["word"] = "worse"
    elif least <= -rule.step:
        row["why"] = "the interval reaches what counts as worse: take more samples"
    else:
        row["word"] = "better" if least >= rule.step else "same"
    return row


def _interval(gains: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    from scipy.stats import t

    n = len(gains)
    half = float(t.ppf(0.975, n - 1) * gains.std(ddof=1) / math.sqrt(n))
    return float(gains.mean()) - half, float(gains.mean()) + half
