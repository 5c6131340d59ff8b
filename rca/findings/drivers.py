"""Added latency by what it comes from: lengths apart from rates, the queue put down to its makers.

The mean time of decode is tokens times time a token: Δ(out × t) = Δout × t_reference + out_window × Δt.
The first is the mix of requests, the second the rate at which they are served; prefill alike.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from rca.case import Case
from rca.findings.queueing import TRUSTED, Replayed

_PHASES = (
    ("prefill", "prefill_ns", "input_tokens", "longer prompts", "slower prefill"),
    ("decode", "decode_ns", "output_tokens", "longer answers", "slower decode"),
)
_UNEXPLAINED = "queue, not explained"


class _Driver(NamedTuple):
    name: str
    direct_ns: float
    queue_ns: float


def trace_back(case: Case, replayed: Replayed | None) -> None:
    """Write latency_driver, out of cohort_part and the replays."""
    case.clear(["latency_driver"])
    parts: dict[str, float] = {}
    for part, service, added in case.rows(
        "SELECT part, service, added_ns FROM cohort_part WHERE added_ns IS NOT NULL ORDER BY ALL"
    ):
        joined = part in ("queue", "prefill", "decode", "residual")
        name = part if joined or not service else f"{part} of {service}"
        parts[name] = parts.get(name, 0.0) + added
    if not parts:
        return
    queue = parts.pop("queue", 0.0)
    direct = _by_length(case, parts)
    drivers = _with_queue(direct, queue, replayed)
    total = sum(d.direct_ns + d.queue_ns for d in drivers)
    rows = [
        {"driver": d.name, "direct_ns": d.direct_ns, "queue_ns": d.queue_ns,
         "added_ns": d.direct_ns + d.queue_ns,
         "share": (d.direct_ns + d.queue_ns) / total if total > 0 else None}
        for d in sorted(drivers, key=lambda d: (-(d.direct_ns + d.queue_ns), d.name))
    ]  # fmt: skip
    case.insert("latency_driver", pl.DataFrame(rows, infer_schema_length=None))


def _by_length(case: Case, parts: dict[str, float]) -> dict[str, float]:
    """Parts with prefill and decode split in lengths and rates where tokens are known."""
    found = dict(parts)
    for part, time, tokens, longer, slower in _PHASES:
        sides = {
            side: (n, ns)
            for side, n, ns in case.rows(
                f"SELECT side, avg({tokens}), sum({time}) / nullif(sum({tokens}), 0) "
                f"FROM cohort_request WHERE {time} IS NOT NULL AND {tokens} > 0 GROUP BY side"
            )
        }
        before, after = sides.get("reference"), sides.get("window")
        if part not in found or not before or not after or None in (*before, *after):
            continue
        added = found.pop(part)
        mix = (after[0] - before[0]) * before[1]
        found[longer], found[slower] = mix, added - mix
    return found


def _with_queue(
    direct: dict[str, float], queue: float, replayed: Replayed | None
) -> list[_Driver]:
    shares = dict.fromkeys(direct, 0.0)
    modelled = sum(replayed.shares.values()) if replayed else 0.0
    trusted = replayed is not None and TRUSTED[0] <= replayed.ratio <= TRUSTED[1]
    if replayed is None or not trusted or modelled <= 0 or queue <= 0:
        return [
            *(_Driver(n, ns, 0.0) for n, ns in direct.items()),
            _Driver(_UNEXPLAINED, 0.0, queue),
        ]
    scale = queue / modelled
    made = {name: share * scale for name, share in replayed.shares.items()}
    slower = made.pop("slower service")
    served = {n: max(ns, 0.0) for n, ns in direct.items() if _is_service(n)}
    whole = sum(served.values())
    for name, ns in served.items():
        shares[name] += slower * ns / whole if whole > 0 else 0.0
    left = slower if whole <= 0 else 0.0
    drivers = [_Driver(n, ns, shares[n]) for n, ns in direct.items()]
    drivers += [_Driver(name, 0.0, ns) for name, ns in made.items()]
    return [*drivers, _Driver(_UNEXPLAINED, 0.0, left)] if left else drivers


def _is_service(name: str) -> bool:
    """Whether a driver takes up a slot of the engine."""
    known = {driver for phase in _PHASES for driver in phase[3:]} | {"prefill", "decode"}
    return name in known or name.startswith("engine, rest")
