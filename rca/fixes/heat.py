"""How long to keep cache keys alive, by how hot they are; and how pressing it is to scale out."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rca import signals
from rca.case import Case
from rca.fixes.proposal import Proposal
from rca.plain import printable

_ALPHA = 0.8
_WINDOW_NS = 10_000_000_000
_BANDS = ((0.7, 300, 2.5), (0.3, 120, 1.0), (0.0, 30, 0.5))
"""Least heat, time to live in s, weight for warming the key again."""
_MOST_KEYS = 200
_WEIGHTS = (("memory", ("gpu_memory", "kv_usage"), 0.3), ("first token", ("ttft",), 0.4),
            ("requests", ("arrival_rate", "finish_rate"), 0.3))  # fmt: skip
_MOST_SIGMAS = 6.0
_LEAST_POINTS = 5
_NO_KEYS = (
    "No span names its key (attribute cache.key), so no times to live can be told: record it."
)


class Key(NamedTuple):
    """A cache key: requests, heat from 0 to 1, time to live in s, weight for warming it again."""

    name: str
    requests: int
    heat: float
    ttl_s: int
    weight: float


def keys(case: Case) -> list[Key]:
    """Keys that spans of the incident's side name, hottest first.

    Heat is the exponentially weighted mean (alpha 0.8) of the requests in windows of 10 s, as a share
    of the hottest key's.
    """
    counted: dict[str, dict[int, int]] = defaultdict(dict)
    for name, slot, n in case.rows(
        "SELECT a.attributes ->> '$.\"cache.key\"' AS name, a.start_ns // ? AS slot, count(*) "
        "FROM span_aligned AS a JOIN source AS s ON s.id = a.source_id "
        "WHERE s.part = 'incident' AND a.start_ns IS NOT NULL AND name IS NOT NULL "
        "GROUP BY ALL ORDER BY ALL",
        (_WINDOW_NS,),
    ):
        counted[name][slot] = n
    if not counted:
        return []
    slots = [s for by_slot in counted.values() for s in by_slot]
    first, last = min(slots), max(slots)
    heats = {name: _heat(by_slot, first, last) for name, by_slot in counted.items()}
    hottest = max(heats.values()) or 1.0
    found = [
        Key(name, sum(by_slot.values()), heats[name] / hottest, *_band(heats[name] / hottest))
        for name, by_slot in counted.items()
    ]
    return sorted(found, key=lambda k: (-k.heat, k.name))


def _heat(by_slot: dict[int, int], first: int, last: int) -> float:
    heat = float(by_slot.get(first, 0))
    start = max(first + 1, last - 60)  # what is older weighs less than 0.2 to the sixtieth
    for slot in range(start, last + 1):
        heat = _ALPHA * by_slot.get(slot, 0) + (1 - _ALPHA) * heat
    return heat


def _band(heat: float) -> tuple[int, float]:
    return next((ttl, weight) for least, ttl, weight in _BANDS if heat >= least)


def propose(case: Case, plain: Proposal) -> Proposal:
    """The proposal with a time to live for each key, as a table."""
    found = keys(case)
    if not found:
        return replace(plain, action=f"{plain.action} {_NO_KEYS}")
    lines = ["# Proposed by rca: times to live by heat (EWMA, alpha 0.8, windows of 10 s).",
             "# ttl_s\twarm\theat\trequests\tkey"]  # fmt: skip
    lines += [
        f"{k.ttl_s}\t{k.weight:g}\t{k.heat:.3f}\t{k.requests}\t{printable(k.name, 200)}"
        for k in found[:_MOST_KEYS]
    ]
    hot = sum(k.heat >= _BANDS[0][0] for k in found)
    told = f"{hot} of {len(found)} keys are hot: {_BANDS[0][1]} s, spread by a tenth so that they do not expire at once."
    return replace(
        plain, action=f"{plain.action} {told}", content="\n".join([*lines, ""]), form="text"
    )


def scaling_score(case: Case) -> tuple[float, list[str]] | None:
    """How pressing it is to scale out, 0 to 1, 0.5 as when healthy; None without two of its parts.

    0.3 memory + 0.4 time to first token + 0.3 requests, each as the logistic of its distance from the
    healthy level in standard deviations: more of any of them asks for more replicas.
    """
    parts, total = [], 0.0
    for name, roles, weight in _WEIGHTS:
        z = next((v for v in (_sigmas(case, r) for r in roles) if v is not None), None)
        if z is not None:
            parts.append((name, weight, 1 / (1 + math.exp(-z))))
            total += weight
    if len(parts) < 2:
        return None
    score = sum(weight * value for _, weight, value in parts) / total
    return score, [f"{name} {value:.2f}" for name, _, value in parts]


def _sigmas(case: Case, role: str) -> float | None:
    """Distance of a role's mean in the window from the healthy one, in standard deviations."""
    window = case.rows(
        "SELECT start_ns, end_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    known = [s for s in signals.load(case) if s.role == role and s.source == "metrics"]
    if not window or not known:
        return None
    best = max(known, key=lambda s: len(s.baseline.ts_ns))
    healthy, now = best.baseline.values, best.incident.between(*window[0]).values
    if min(len(healthy), len(now)) < _LEAST_POINTS:
        return None
    spread = max(float(np.std(healthy)), 0.05 * abs(float(np.mean(healthy))), 1e-9)
    z = (float(np.mean(now)) - float(np.mean(healthy))) / spread
    return max(-_MOST_SIGMAS, min(z, _MOST_SIGMAS))
