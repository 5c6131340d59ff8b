"""Several incidents in one recording: one is explained, the others are listed with the command that does."""

from __future__ import annotations

import re
from pathlib import Path

import case_builder
import polars as pl
import pytest
from test_summary import shown

from rca.answer.verdict_json import verdict
from rca.case import Case
from rca.commands.window_option import parse_window
from rca.errors import RcaError
from rca.pipeline import Options, analyze
from rca.postmortem.html import write_html
from rca.postmortem.markdown import write

START, END = 1_780_000_000_500_000_000, 1_780_000_060_000_000_000
COMMAND = "rca analyze BUNDLE --window 2026-05-28T20:26:40.500000Z 2026-05-28T20:27:40Z"


@pytest.fixture
def two() -> Case:
    case = case_builder.diagnosed()
    row = {
        "id": 2, "status": "incident", "start_ns": START, "end_ns": END, "margin_ns": 3_000_000_000,
        "detected_by": "scan", "score": 7.5,
    }  # fmt: skip
    case.insert("incident_window", pl.DataFrame([row]))
    return case


def test_the_terminal_lists_them(two: Case) -> None:
    (line,) = [one for one in shown(two, width=300).splitlines() if "another" in one]
    assert line.strip() == (
        "another: 2026-05-28 20:26:40 – 20:27:40 UTC (±3 s), found by scan, lasting 59.5 s · "
        f"look at it: {COMMAND}"
    )
    assert "another" not in shown(case_builder.diagnosed())


def test_the_documents_list_them(two: Case, tmp_path: Path) -> None:
    text = write(two, tmp_path).read_text(encoding="utf-8")
    (line,) = [one for one in text.splitlines() if one.startswith("| Another window")]
    assert COMMAND in line
    assert "found by scan, lasting 59.5 s" in line
    write_html(two, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.search(rf"another window, not explained here: [^<]*<code>{COMMAND}</code>", html)


def test_programs_get_all_of_them(two: Case) -> None:
    first, second = verdict(two)["windows"]
    assert first == {
        **{key: verdict(two)["incident"][key] for key in ("start_ns", "end_ns", "detected_by")},
        "margin_ns": 15_000_000_000, "score": first["score"], "explained": True, "command": None,
    }  # fmt: skip
    assert second == {
        "start_ns": START, "end_ns": END, "margin_ns": 3_000_000_000, "detected_by": "scan", "score": 7.5,
        "explained": False, "command": COMMAND,
    }  # fmt: skip
    assert verdict(case_builder.no_incident())["windows"] == []


def test_the_command_is_understood() -> None:
    start, end = COMMAND.split()[-2:]
    assert parse_window((start, end)) == (START, END)
    assert parse_window(("2026-05-28T22:26:40.5+02:00", end)) == (START, END)
    assert parse_window(None) is None


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("2026-05-28T20:27:40Z", "2026-05-28T20:27:40Z", "ends before it starts"),
        ("yesterday", "2026-05-28T20:27:40Z", "is no time"),
        ("2026-05-28T20:27:40", "2026-05-28T20:28:40Z", "has no zone"),
        ("1960-05-28T20:27:40Z", "2026-05-28T20:28:40Z", "not between 1970 and 2262"),
    ],
)
def test_a_window_that_is_none_is_refused(start: str, end: str, why: str) -> None:
    with pytest.raises(RcaError, match=why):
        parse_window((start, end))


def test_a_window_in_which_nothing_was_recorded_is_refused() -> None:
    sample = Path(__file__).parent.parent / "sample_traces" / "05_dependency_slow"
    told = (START, END)
    with pytest.raises(
        RcaError, match=r"nothing was recorded from 2026-05-28.*they reach from 2026-03-13"
    ):
        analyze([sample], options=Options(trial_budget_s=None, window=told))
