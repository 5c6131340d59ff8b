"""Traffic is drawn from a seed; what stands before the engine."""

from __future__ import annotations

import itertools

import pytest

from rca.models.gateway import admit
from rca.models.settings import SECOND, Plan, Traffic
from rca.models.workload import arrivals

MINUTE = 60 * SECOND


def test_a_seed_gives_the_same_requests_whatever_else_is_turned() -> None:
    some = list(arrivals(Traffic(), 3, 0, MINUTE))
    assert some == list(arrivals(Traffic(), 3, 0, MINUTE))
    assert some != list(arrivals(Traffic(), 4, 0, MINUTE))
    longer = list(arrivals(Traffic(unique_tokens=120), 3, 0, MINUTE))
    assert [r.at_ns for r in longer] == [r.at_ns for r in some]
    assert [r.group for r in longer] == [r.group for r in some]


def test_rate_and_burst_mean_what_they_say() -> None:
    even = [r.at_ns for r in arrivals(Traffic(rate_per_s=5), 1, 0, 20 * MINUTE)]
    bursts = [
        r.at_ns for r in arrivals(Traffic(rate_per_s=5, burst_factor=8), 1, 0, 20 * MINUTE)
    ]
    assert len(even) == pytest.approx(6000, rel=0.05)
    assert len(bursts) == pytest.approx(6000, rel=0.15)
    together = [sum(b - a == 0 for a, b in itertools.pairwise(t)) for t in (even, bursts)]
    assert together[0] == 0
    assert together[1] > 0.7 * len(bursts)


def test_the_gateway_cuts_sheds_and_shares() -> None:
    traffic = list(arrivals(Traffic(cold_share=0.5, cold_tokens=300), 1, 0, MINUTE))
    cut = admit(Plan().with_args(max_prompt_tokens=100), traffic)
    assert max(r.prompt_tokens for r in cut.requests) == 100
    quota = admit(Plan().with_args(tenant_token_quota=200.0), traffic)
    assert {a.tenant for a in quota.rejected} >= {"t-bulk"}
    half = admit(Plan().with_args(replicas=2), traffic)
    assert len(half.requests) == -(-len(traffic) // 2)
