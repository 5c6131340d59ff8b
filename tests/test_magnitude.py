"""A latency that grew by no more than demand did is that of a busier service, and no incident."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rca.signals import EMPTY, Points, Signal
from rca.window.magnitude import growth_alone, matters

S = 1_000_000_000
START, END = 600 * S, 900 * S


def signal(role: str, healthy: float, inside: float, den: float = 1.0) -> Signal:
    """A value every 15 s for 20 minutes of baseline and of incident, another one in the stretch."""
    times = np.arange(15, 1200, 15, dtype=np.int64) * S
    level = np.where((times > START) & (times <= END), inside, healthy)
    ones = np.full(len(times), den)
    return Signal(
        "metrics", role, "gateway", "",
        Points(times, level * ones, ones), Points(times - 10**13, healthy * ones, ones),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("latency", "demand", "is_incident"),
    [
        (1.3, 1.4, False),
        (1.6, 1.4, True),
        (1.2, 1.0, True),
        (1.1, 1.0, False),
        (1.3, 0.5, True),
    ],
)
def test_a_latency_must_outgrow_demand(
    latency: float, demand: float, is_incident: bool
) -> None:
    symptoms = [signal("e2e_latency", 2.0, 2.0 * latency)]
    rates = [signal("arrival_rate", 5.0, 5.0 * demand)]
    assert matters(symptoms, rates, START, END) is is_incident


def test_what_demand_leaves_must_be_more_where_demand_is_beyond_the_healthy_range() -> None:
    left = [signal("itl|demand", 0.0, 0.15)]
    assert matters(left, [signal("arrival_rate", 5.0, 5.0)], START, END)
    assert not matters(left, [signal("arrival_rate", 5.0, 7.5)], START, END)


def test_errors_need_no_excuse_of_demand() -> None:
    errors = [signal("error_share", 0.0, 0.1)]
    assert matters(errors, [signal("arrival_rate", 5.0, 10.0)], START, END)


def test_the_busiest_service_tells_how_demand_grew() -> None:
    symptoms = [signal("e2e_latency", 2.0, 2.6)]
    side = signal("arrival_rate", 0.1, 0.5)
    assert matters(symptoms, [signal("arrival_rate", 5.0, 5.0), side], START, END)
    assert matters(symptoms, [], START, END)


def test_without_a_baseline_growth_is_told_against_the_median_of_the_rest() -> None:
    latency = signal("ttft", 0.2, 1.2)
    alone = replace(latency, baseline=EMPTY)
    assert growth_alone([alone], START, END) == (pytest.approx(6.0), "ttft")
    assert growth_alone([signal("arrival_rate", 1.0, 9.0)], START, END) is None
