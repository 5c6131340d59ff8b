"""Alerts as the only sign of an incident."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from telemetry_builder import add_series, add_source, at

from rca.case import Case
from rca.roles import assign
from rca.window import locate


@pytest.fixture
def case() -> Iterator[Case]:
    """An hour of GPU metrics, in which users' latencies are not."""
    with Case.create() as made:
        source = add_source(made, "metrics", last_ns=at(3600))
        add_series(
            made,
            source,
            "DCGM_FI_DEV_GPU_TEMP",
            {"gpu": "0"},
            [(t, 60) for t in range(0, 3600, 15)],
        )
        yield made


def fires(case: Case, name: str, start: float, end: float | None, severity: str | None) -> None:
    source = add_source(case, "alert", first_ns=at(start), last_ns=at(end or start))
    row = {
        "source_id": source, "name": name, "start_ns": at(start), "end_ns": end and at(end), "severity": severity,
        "labels": "{}", "annotations": "{}",
    }  # fmt: skip
    schema = {"end_ns": pl.Int64, "severity": pl.String}
    case.insert("alert", pl.DataFrame([row], schema_overrides=schema))


def window(case: Case) -> tuple[object, ...]:
    assign(case)
    locate(case)
    return case.rows("SELECT status, detected_by, start_ns, end_ns FROM incident_window")[0]


@pytest.mark.parametrize("severity", ["page", "critical", "Warning", None])
def test_an_alert_gives_the_window_where_no_symptom_is_recorded(
    case: Case, severity: str | None
) -> None:
    assert window(case)[0] == "unknown"
    fires(case, "GpuTooHot", 2400, 3000, severity)
    assert window(case) == ("incident", "alert", at(2400), at(3000))
    margin, note = case.rows("SELECT margin_ns, note FROM incident_window")[0]
    assert margin == 900 * 10**9
    assert note.startswith("the time of alert GpuTooHot: it fires some time after")
    assert "up to 15 min earlier" in note


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("Watchdog", "critical"),
        ("InfoInhibitor", None),
        ("DeadMansSwitch", "page"),
        ("Busy", "info"),
        ("X", "none"),
    ],
)
def test_alerts_that_always_fire_or_only_inform_give_none(
    case: Case, name: str, severity: str | None
) -> None:
    fires(case, name, 2400, 3000, severity)
    assert window(case)[0] == "unknown"


def test_an_alert_that_still_fires_lasts_as_long_as_the_recordings(case: Case) -> None:
    fires(case, "GpuTooHot", 2400, None, "page")
    assert window(case) == ("incident", "alert", at(2400), at(3600))


def test_an_alert_that_fires_all_the_time_gives_none(case: Case) -> None:
    fires(case, "TargetDown", -100, None, "warning")
    assert window(case)[0] == "unknown"


def test_the_gravest_comes_first_and_what_fired_with_it_belongs_to_it(case: Case) -> None:
    fires(case, "Early", 600, 700, "warning")
    fires(case, "Grave", 2400, 2700, "critical")
    fires(case, "Late", 2600, 3300, "warning")
    assert window(case) == ("incident", "alert", at(2400), at(3300))


def test_latency_that_was_well_meanwhile_is_no_incident(case: Case) -> None:
    source = add_source(case, "metrics", last_ns=at(3600))
    for ending, gain in (("sum", 5.0), ("count", 10.0)):
        points = [(t, gain * t) for t in range(0, 3600, 15)]
        add_series(
            case,
            source,
            f"vllm:e2e_request_latency_seconds_{ending}",
            {"pod": "e-0"},
            points,
            "counter",
        )
    fires(case, "GpuTooHot", 2400, 3000, "critical")
    assert window(case)[0] == "none"


def test_the_same_alert_on_the_healthy_day_gives_none(case: Case) -> None:
    fires(case, "GpuTooHot", 2400, 3000, "critical")
    case.execute("UPDATE source SET part = 'baseline' WHERE kind = 'alert'")
    fires(case, "GpuTooHot", 2500, 3000, "critical")
    assert window(case)[0] == "unknown"
