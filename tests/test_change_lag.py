"""How long before the window a change was made, and how surely."""

from __future__ import annotations

import case_builder
import pytest
from test_summary import shown

from rca.answer import read
from rca.answer.wording import lag


def test_a_change_says_how_surely_it_came_before_the_window() -> None:
    case = case_builder.diagnosed()
    ((lag_s, error_s, checked),) = case.rows(
        "SELECT lag_s, lag_error_s, is_checked FROM change_lag ORDER BY ts_ns LIMIT 1"
    )
    start, margin = case.rows("SELECT start_ns, margin_ns FROM incident_window")[0]
    made = case.scalar(
        "SELECT ts_ns + shift_ns FROM change JOIN source ON source.id = source_id ORDER BY 1"
    )
    assert lag_s == pytest.approx((start - made) / 1e9)
    assert error_s == margin / 1e9
    assert not checked
    case.execute("UPDATE source SET shift_error_ns = 5000000000 WHERE kind = 'trace'")
    assert case.scalar("SELECT max(lag_error_s) FROM change_lag") == margin / 1e9 + 5


def test_the_statement_carries_the_error() -> None:
    case = case_builder.diagnosed()
    case.execute("UPDATE source SET shift_error_ns = 5000000000 WHERE kind = 'trace'")
    answer = read(case)
    assert answer.leading is not None
    (change,) = [c for c in answer.changes.values() if c.id == answer.leading.change_id]
    assert lag(answer, change).endswith("(±20 s)")
    since = next(line for line in shown(case, width=300).splitlines() if "SINCE" in line)
    assert "(±20 s)" in since
