"""Pairs of runs: whole ones are kept, undecided ones get more, short ones refute nothing."""

from __future__ import annotations

import pytest
from noisy_machine import Machine

from rca.models import pairing
from rca.models.conclusion import on_pairs
from rca.models.faults import find
from rca.models.settings import Plan


def test_what_short_runs_do_not_show_refutes_nothing() -> None:
    """A full cache evicts, and a run of two seconds may end before it is full."""
    plan = find("prefix_cache_pollution").plan(Plan(), 1.0, 2.0)
    arms = {
        "healthy": lambda _s: Plan(),
        "control": lambda _s: Plan(),
        "fault": lambda _s: plan,
    }
    paired = pairing.Pairing(Machine(), arms, seed=0)
    assert paired.run(lambda: 20.0, grace_s=1.0) == pairing.PAIRS
    paired.runs["fault"] = paired.runs["healthy"]
    found = on_pairs(find("prefix_cache_pollution"), paired, has_incident=True)
    assert found.status == "inconclusive"
    assert "evictions_per_request" in found.reason


def test_a_pair_that_takes_too_long_is_given_up() -> None:
    """The budget ends a pair in the middle; what is kept are whole pairs."""
    asked = 0

    def left_s() -> float:
        nonlocal asked
        asked += 1
        return 20.0 if asked < 30 else -5.0

    arms = {arm: lambda _s: Plan() for arm in ("healthy", "control", "fault")}
    paired = pairing.Pairing(Machine(), arms, seed=0)
    done = paired.run(left_s, grace_s=1.0)
    assert done < pairing.PAIRS
    assert {len(runs) for runs in paired.runs.values()} <= {done}
    assert {row.pair for row in paired.rows} == set(range(done))
    patient = pairing.Pairing(Machine(), arms, seed=0)
    assert patient.run(lambda: 20.0, grace_s=1.0) == pairing.PAIRS


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_fix_that_is_not_decided_gets_more_runs(is_decided: bool) -> None:
    asked: list[int] = []

    def decided() -> bool:
        asked.append(len(paired.runs["fix"]))
        return is_decided

    plan = Plan().with_traffic(
        rate_per_s=0.2
    )  # hardly any work: the number of runs is what counts
    arms = {arm: lambda _s: plan for arm in ("healthy", "control", "fault", "fix")}
    paired = pairing.Pairing(Machine(), arms, seed=0)
    assert paired.run(lambda: 1e6, 1.0, decided) == pairing.PAIRS
    assert asked == [pairing.ENOUGH_PAIRS]
    runs = pairing.ENOUGH_PAIRS if is_decided else pairing.MOST_PAIRS
    assert len(paired.runs["fix"]) == len(paired.runs["control"]) == runs
    assert len(paired.runs["fault"]) == pairing.PAIRS
