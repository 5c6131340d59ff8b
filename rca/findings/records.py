"""The tables of findings as typed records, and as verdict.json has them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from rca.case import Case

T = TypeVar("T")

SURE = 0.05
"""False discovery rate up to which an attribute counts as telling."""


@dataclass(frozen=True)
class Cohort:
    """The row of the table `cohort`."""

    start_ns: int
    end_ns: int
    is_incident: bool
    reference: str | None
    n_window: int
    n_reference: int
    limit_ns: int | None
    limit_by: str | None
    split_ns: int | None
    split_by: str | None
    traced_share: float | None
    is_sampled: bool
    sampled_by: str | None

    @property
    def bias(self) -> str | None:
        """What every count, share and high quantile of its requests must say; None when all were traced."""
        return f"Sampled, biased: {self.sampled_by}" if self.is_sampled else None


@dataclass(frozen=True)
class SlowAttribute:
    """One row of the table `slow_attribute`."""

    rank: int
    attribute: str
    value: str
    share_slow: float
    share_other: float
    share_reference: float | None
    lift: float
    lift_low: float
    lift_high: float
    q_value: float
    n_tested: int
    same_as: list[str]
    statement: str

    @property
    def is_telling(self) -> bool:
        """Whether slow requests have it more often, beyond what many tests bring about."""
        return self.q_value <= SURE and self.lift > 1


@dataclass(frozen=True)
class Radius:
    """One row of the table `blast_radius`."""

    kind: str
    name: str
    requests: int
    slow: int
    failed: int
    share_slow: float
    share_low: float
    share_high: float
    share_reference: float | None
    ratio: float | None
    share_of_slow: float


@dataclass(frozen=True)
class ContextBand:
    """One row of the table `latency_by_context`."""

    side: str
    from_tokens: int
    below_tokens: int
    n: int
    ttft_p50_ns: float | None
    ttft_p95_ns: float | None
    ttft_p95_low_ns: float | None
    ttft_p95_high_ns: float | None
    itl_p50_ns: float | None
    itl_p99_ns: float | None
    itl_p99_low_ns: float | None
    itl_p99_high_ns: float | None
    itl_stddev_ns: float | None
    share_slow: float | None
    share_low: float | None
    share_high: float | None


@dataclass(frozen=True)
class HeatCell:
    """One row of the table `slo_heat_map`."""

    batch_from: int
    batch_below: int
    rate_from: float
    rate_below: float
    n: int
    share_within: float
    within_low: float
    within_high: float
    is_safe: bool | None
    token_rate: float | None


@dataclass(frozen=True)
class Indicator:
    """One row of the table `indicator`."""

    name: str
    subject: str
    unit: str
    reference: float | None
    observed: float | None
    n_reference: int
    n_observed: int
    statement: str
    bound: float | None = None
    common: float | None = None
    common_formula: str | None = None
    is_flagged: bool | None = None
    note: str | None = None


@dataclass(frozen=True)
class CohortPart:
    """One row of the table `cohort_part`."""

    part: str
    service: str
    n_reference: int
    n_window: int
    mean_reference_ns: float | None
    mean_window_ns: float
    added_ns: float | None
    share: float | None
    es95_reference_ns: float | None
    es95_window_ns: float | None
    es95_added_ns: float | None


@dataclass(frozen=True)
class Driver:
    """One row of the table `latency_driver`."""

    driver: str
    direct_ns: float
    queue_ns: float
    added_ns: float
    share: float | None


@dataclass(frozen=True)
class Memory:
    """One row of the table `memory_use`."""

    kind: str
    service: str
    replica: str
    device: str | None
    devices: int | None
    part: str
    n: int
    first_bytes: float
    last_bytes: float
    most_bytes: float
    total_bytes: float | None
    used_share: float | None
    since_ns: int | None
    growth_bytes_per_s: float | None
    r_squared: float | None


@dataclass(frozen=True)
class Storm:
    """One row of the table `invalidation_storm`."""

    reason: str
    start_ns: int
    end_ns: int
    n: int
    n_keys: int
    per_s: float
    usual_per_s: float
    top_key: str


@dataclass(frozen=True)
class Version:
    """One row of the table `version_window`."""

    model: str
    kind: str
    partner: str | None
    is_skewed: bool
    requests: int
    first_ns: int
    last_ns: int
    share_slow: float | None
    share_slow_others: float | None


@dataclass(frozen=True)
class Depth:
    """One row of the table `call_depth`."""

    depth: int
    per_request: float
    per_request_reference: float | None
    mean_ns: float
    mean_reference_ns: float | None
    failed_share: float
    hop_ratio: float | None


@dataclass(frozen=True)
class Edge:
    """One row of the table `causal_edge`."""

    id: int
    hypothesis: str
    cause: str
    cause_label: str
    cause_kind: str
    effect: str
    effect_label: str
    effect_kind: str
    confidence: float
    order_seen: str
    lag_ns: int | None
    lag_low_ns: int | None
    lag_high_ns: int | None


@dataclass(frozen=True)
class Findings:
    """All of them; lists are empty where the recordings do not show the thing."""

    cohort: Cohort | None
    slow_attributes: list[SlowAttribute]
    blast_radius: list[Radius]
    latency_by_context: list[ContextBand]
    slo_heat_map: list[HeatCell]
    indicators: list[Indicator]
    parts: list[CohortPart]
    drivers: list[Driver]
    memory: list[Memory]
    storms: list[Storm]
    versions: list[Version]
    call_depth: list[Depth]
    edges: list[Edge]


def read(case: Case) -> Findings:
    """The findings of a case; none of a case that was made before there were any."""
    if not case.has("causal_edge"):
        return Findings(None, *([] for _ in range(12)))
    cohorts = _rows(case, Cohort, "cohort", "")
    return Findings(
        cohort=cohorts[0] if cohorts else None,
        slow_attributes=_rows(case, SlowAttribute, "slow_attribute", "ORDER BY rank"),
        blast_radius=_rows(case, Radius, "blast_radius", "ORDER BY kind, slow DESC, requests DESC, name"),
        latency_by_context=_rows(case, ContextBand, "latency_by_context", "ORDER BY from_tokens, side"),
        slo_heat_map=_rows(case, HeatCell, "slo_heat_map", "ORDER BY batch_from, rate_from"),
        indicators=_rows(case, Indicator, "indicator", "ORDER BY coalesce(is_flagged, false) DESC, name, subject"),
        parts=_rows(case, CohortPart, "cohort_part", "ORDER BY added_ns DESC NULLS LAST, part, service"),
        drivers=_rows(case, Driver, "latency_driver", "ORDER BY added_ns DESC, driver"),
        memory=_rows(case, Memory, "memory_use", "ORDER BY kind, service, replica, device NULLS FIRST, part"),
        storms=_rows(case, Storm, "invalidation_storm", "ORDER BY start_ns, reason"),
        versions=_rows(case, Version, "version_window", "ORDER BY first_ns, kind, model, partner"),
        call_depth=_rows(case, Depth, "call_depth", "ORDER BY depth"),
        edges=_rows(case, Edge, "causal_edge", "ORDER BY id"),
    )  # fmt: skip


def _rows(case: Case, kind: type[T], table: str, order: str) -> list[T]:
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    rows = case.rows(f"SELECT {', '.join(names)} FROM {table} {order}")
    return [
        kind(
            **{
                n: json.loads(v) if n == "same_as" else v
                for n, v in zip(names, row, strict=True)
            }
        )
        for row in rows
    ]


_MOST_ATTRIBUTES = 20


def document(found: Findings) -> dict[str, Any]:
    """What verdict.json says beyond the verdict: `impact`, `causal_graph` and `findings`."""
    kept = [a for a in found.slow_attributes if a.q_value <= SURE][:_MOST_ATTRIBUTES]
    return {
        "impact": {
            "cohort": _plain(found.cohort) if found.cohort else None,
            "blast_radius": [_plain(r) for r in found.blast_radius],
        },
        "causal_graph": {"edges": [_plain(e) for e in found.edges]},
        "findings": {
            "slow_attributes": [_plain(a) for a in kept],
            "latency_drivers": [_plain(d) for d in found.drivers],
            "cohort_parts": [_plain(p) for p in found.parts],
            "latency_by_context": [_plain(b) for b in found.latency_by_context],
            "slo_heat_map": [_plain(c) for c in found.slo_heat_map],
            "indicators": [_plain(i) for i in found.indicators],
            "memory": [_plain(m) for m in found.memory],
            "invalidation_storms": [_plain(s) for s in found.storms],
            "versions": [_plain(v) for v in found.versions],
            "call_depth": [_plain(d) for d in found.call_depth],
        },
    }


def _plain(record: Any) -> dict[str, Any]:
    """A record as plain values; six digits are what such figures carry."""
    return {name: _rounded(value) for name, value in vars(record).items()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value
