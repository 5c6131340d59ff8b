"""Recordings made worse: what is taken is gone everywhere, the rest stays, and draws repeat."""

from __future__ import annotations

import pytest
from recording_builder import recorded

from rca.case import Case
from rca.evaluate.perturb import PERTURBATIONS, Recording

RECORDING = Recording("bundle-7", 1_770_000_000 * 1_000_000_000)


def made_worse(name: str) -> Case:
    case = recorded(None, slow=True)
    PERTURBATIONS[name](case, RECORDING)
    return case


def kinds(case: Case) -> set[str]:
    return {kind for (kind,) in case.rows("SELECT DISTINCT kind FROM source")}


@pytest.mark.parametrize(
    ("name", "kept", "table", "gone"),
    [("metrics only", "metrics", "sample", "span"), ("traces only", "trace", "span", "sample")],
)
def test_only_one_kind_of_source_is_left(name: str, kept: str, table: str, gone: str) -> None:
    with made_worse(name) as case:
        assert kinds(case) == {kept}
        assert case.scalar(f"SELECT count(*) FROM {table}")
        assert not case.scalar(f"SELECT count(*) FROM {gone}")


def test_without_a_baseline_the_incident_stays_whole() -> None:
    with recorded(None, slow=True) as whole, made_worse("no baseline") as case:
        count = "SELECT count(*) FROM span JOIN source AS s ON s.id = source_id WHERE s.part = 'incident'"
        assert case.scalar(count) == whole.scalar(count)
        assert not case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'")


def test_whole_scrapes_are_lost_the_same_ones_each_time() -> None:
    with (
        recorded(None, slow=True) as whole,
        made_worse("30 % of scrapes lost") as one,
        made_worse("30 % of scrapes lost") as two,
    ):
        rows = "SELECT series_id, ts_ns FROM sample ORDER BY ALL"
        assert one.rows(rows) == two.rows(rows)
        share = len(one.rows(rows)) / len(whole.rows(rows))
        assert 0.5 < share < 0.9


def test_only_the_traces_of_the_incident_are_shifted() -> None:
    with recorded(None, slow=True) as whole, made_worse("trace clocks 5-60 s off") as case:
        first = "SELECT min(start_ns) FROM span JOIN source AS s ON s.id = source_id WHERE s.part = "
        shift = (case.scalar(first + "'incident'") - whole.scalar(first + "'incident'")) / 1e9
        assert 5 <= abs(shift) <= 60
        assert case.scalar(first + "'baseline'") == whole.scalar(first + "'baseline'")
        assert case.scalar("SELECT min(ts_ns) FROM sample") == whole.scalar(
            "SELECT min(ts_ns) FROM sample"
        )
