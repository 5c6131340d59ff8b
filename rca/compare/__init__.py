"""Two recordings side by side: latency, spread, throughput, errors, tokens, kernels, quality; a gate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rca.compare import estimates, ops
from rca.compare import gate as gates
from rca.compare import quality as qualities
from rca.compare.estimates import Change, Values
from rca.compare.sides import Group, Side, load
from rca.ingest import Progress

__all__ = ["compare"]

_LATENCIES = {"e2e": "e2e_ns", "ttft": "ttft_ns", "itl": "itl_ns"}
_QUANTILES = (50, 95, 99)
_OTHER_WORK = 0.1
"""Log-ratio of mean tokens from which on two recordings did not do the same work."""


def compare(
    base: Path,
    candidate: Path,
    *,
    base_where: str | None = None,
    candidate_where: str | None = None,
    quality: Path | None = None,
    gate: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What changed from one recording to another, with 95 % intervals.

    Times are in ms. Changes are log-ratios of candidate to base, with `low` and `high`; None is a
    figure that the recordings cannot give. Latencies are those of answered requests.

    Args:
        base: A case, or a folder, archive or file of recordings.
        candidate: The same of what is to be judged.
        base_where: Attribute that the base's requests carry, as KEY=VALUE; both sides may then be
            one recording.
        candidate_where: The same of the candidate's.
        quality: CSV with the columns metric, base, candidate.
        gate: Limits as TOML, or 'default' for the shipped ones; not gated when None.

    Raises:
        RcaError: A file is missing or is not what it should be.
    """
    limits = gates.read(gate)
    pairs = qualities.read(quality) if quality else None
    groups = [Group.parse(text) if text else None for text in (base_where, candidate_where)]
    sides = load(base, groups[0], progress), load(candidate, groups[1], progress)
    found: dict[str, Any] = {
        "schema_version": 1,
        "base": sides[0].facts(),
        "candidate": sides[1].facts(),
        "figures": [*_latencies(*sides), *_rates(*sides), *_tokens(*sides)],
        "ttft_spread": _spread(*sides),
        "errors": {"base": _errors(sides[0]), "candidate": _errors(sides[1])},
        "gpu": ops.gpu_states(sides[0].gpu, sides[1].gpu),
        "ops": ops.difference(sides[0].ops, sides[1].ops),
    }
    p99 = next(row for row in found["figures"] if row["figure"] == "e2e_p99")
    found["quality"] = qualities.judge(pairs, limits.rules, p99) if pairs else None
    found["notes"] = list(_notes(found))
    found["gate"] = gates.check(limits, found) if gate else None
    return found


def _latencies(base: Side, candidate: Side) -> Iterator[dict[str, Any]]:
    for name, column in _LATENCIES.items():
        arrived = base.latency(column), candidate.latency(column)
        old, new = (np.sort(values) for values in arrived)
        for percentile in _QUANTILES:
            figure, p = f"{name}_p{percentile}", percentile / 100
            wider = estimates.inflation(arrived[0], p), estimates.inflation(arrived[1], p)
            change = estimates.quantile_change(old, new, p, figure, wider)
            row = _row(
                figure, "ms", estimates.quantile(old, p), estimates.quantile(new, p), change
            )
            sides = zip(("base", "candidate"), (old, new), wider, strict=True)
            for side, values, factor in sides:
                interval = estimates.quantile_interval(values, p, factor)
                row |= {f"{side}_low": interval.low, f"{side}_high": interval.high}
                row |= {f"n_{side}": len(values), f"inflation_{side}": factor}
            yield row


def _rates(base: Side, candidate: Side) -> Iterator[dict[str, Any]]:
    for figure, unit, column in (
        ("throughput", "requests/s", None),
        ("token_throughput", "tokens/s", "output_tokens"),
    ):
        old, new = base.completed(column), candidate.completed(column)
        if old is None or new is None:
            values = [estimates.rate(side) if side else None for side in (old, new)]
            yield _row(figure, unit, values[0], values[1], estimates.NONE)
            continue
        change = estimates.rate_change(old, new, figure)
        row = _row(figure, unit, estimates.rate(old), estimates.rate(new), change)
        yield row | {"base_own_spread": estimates.own_spread(old)}


def _tokens(base: Side, candidate: Side) -> Iterator[dict[str, Any]]:
    for figure in ("input_tokens", "output_tokens"):
        old, new = base.tokens(figure), candidate.tokens(figure)
        means = [float(v.mean()) if len(v) else None for v in (old, new)]
        change = estimates.mean_change(old, new)
        yield _row(figure, "tokens/request", means[0], means[1], change)


def _row(
    figure: str, unit: str, base: float | None, candidate: float | None, change: Change
) -> dict[str, Any]:
    return {
        "figure": figure,
        "unit": unit,
        "base": base,
        "candidate": candidate,
        **change._asdict(),
    }


def _spread(base: Side, candidate: Side) -> dict[str, Any]:
    """Spread of the time to first token: between the quartiles; the standard deviation beside it."""
    old, new = np.sort(base.latency("ttft_ns")), np.sort(candidate.latency("ttft_ns"))
    change = estimates.spread_change(old, new, "ttft_spread")
    row = _row("ttft_spread", "ms", estimates.spread(old), estimates.spread(new), change)
    return row | {
        "same_spread_p": estimates.same_spread_p(old, new),
        "sigma_base": _sigma(old),
        "sigma_candidate": _sigma(new),
    }


def _sigma(values: Values) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _errors(side: Side) -> dict[str, Any]:
    n = len(side.requests)
    share = side.failed / n if n else None
    return {
        "failed": side.failed,
        "n": n,
        "share": share,
        **estimates.wilson(side.failed, n)._asdict(),
    }


def _notes(found: dict[str, Any]) -> Iterator[str]:
    """What a reader must know before believing the figures."""
    for side in ("base", "candidate"):
        facts = found[side]
        if not facts["requests"]:
            yield f"{side} holds no requests: latency, throughput and errors cannot be compared"
        if facts["sampled"]:
            yield f"{side} is sampled, its figures are biased: {facts['sampled']}"
        for line in (*facts["damaged"], *facts["unread"]):
            yield f"{side}: {line}"
    for row in found["figures"]:
        if row["unit"] == "tokens/request" and _is_other_work(row):
            yield (
                f"{row['figure']} differ by {math.expm1(row['log_ratio']):+.0%}: "
                "the two did not do the same work, compare latency with care"
            )
    if found["base"]["group"] and found["base"]["path"] == found["candidate"]["path"]:
        yield "groups of one recording: their throughput is their share of the traffic"
    if found["ops"] is None:
        yield "no profile on both sides: kernels and operators are not compared"


def _is_other_work(row: dict[str, Any]) -> bool:
    ratio, low, high = row["log_ratio"], row["low"], row["high"]
    return ratio is not None and abs(ratio) > _OTHER_WORK and not low <= 0 <= high
