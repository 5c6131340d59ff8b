"""Alerts that the metrics tell of."""

from __future__ import annotations

import polars as pl
from telemetry_builder import T0, add_series, add_source, at

from rca.alerts import collect
from rca.case import Case


def firing(name: str, **labels: str) -> dict[str, str]:
    return {"alertname": name, "alertstate": "firing", **labels}


def alerts(case: Case) -> list[tuple[object, ...]]:
    return case.rows(
        "SELECT name, (start_ns - $1) / 1e9, (end_ns - $1) / 1e9, severity FROM alert ORDER BY ALL",
        [T0],
    )


def test_stretches_in_which_a_series_fires_are_alerts() -> None:
    with Case.create() as case:
        metrics = add_source(case, "metrics", last_ns=at(300))
        twice = [(t, 1.0) for t in (15, 30, 45, 60, 200, 215)]
        add_series(case, metrics, "ALERTS", firing("SlowFirstToken", severity="page"), twice)
        pending = {"alertname": "Queue", "alertstate": "pending"}
        add_series(case, metrics, "ALERTS", pending, [(t, 1.0) for t in (15, 30)])
        add_series(case, metrics, "ALERTS", firing("Queue"), [(285, 1.0), (300, 1.0)])
        assert collect(case) == 3
        assert alerts(case) == [
            ("Queue", 285.0, None, None),
            ("SlowFirstToken", 15.0, 75.0, "page"),
            ("SlowFirstToken", 200.0, 215.0 + 15.0, "page"),
        ]
        assert collect(case) == 3


def test_an_alert_that_a_file_tells_of_is_not_written_again() -> None:
    with Case.create() as case:
        file = add_source(case, "alert")
        known = {"name": "Queue", "start_ns": at(20), "labels": "{}", "annotations": "{}"}
        case.insert("alert", pl.DataFrame([known]), source_id=file)
        metrics = add_source(case, "metrics", last_ns=at(600))
        points = [(t, 1.0) for t in (30, 45)]
        add_series(case, metrics, "ALERTS", firing("Queue"), points)
        assert collect(case) == 0
        assert alerts(case) == [("Queue", 20.0, None, None)]
