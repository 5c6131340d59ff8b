"""What documents say of figures whose traces are a sample of the requests."""

from __future__ import annotations

import io

import case_builder
import polars as pl
import pytest
from rich.console import Console
from telemetry_builder import SECOND, add_source, add_span, at
from test_window_counted import counted, tail_sampled

from rca.answer import Window, read
from rca.answer.summary import render
from rca.case import Case
from rca.findings import gather
from rca.postmortem.impact import measure, propose_severity
from rca.postmortem.sections import tell as tell_sections
from rca.postmortem.story import tell
from rca.roles import assign
from rca.window import locate

WHOLE = Window("incident", at(0), at(1800), 1, "scan", "e2e_p99 < 2 s")


def sampled(case: Case) -> None:
    """The traces of a diagnosed case become a sample."""
    cohort = {
        "start_ns": 0, "end_ns": 1, "is_incident": True, "reference": "baseline", "n_window": 9, "n_reference": 9,
        "limit_ns": 2 * SECOND, "limit_by": "objective", "split_ns": None, "split_by": None, "traced_share": 0.14,
        "is_sampled": True, "sampled_by": "traces have 14 % of the requests",
    }  # fmt: skip
    case.clear(["cohort"])
    case.insert("cohort", pl.DataFrame([cohort]))


def in_terminal(case: Case) -> list[str]:
    out = io.StringIO()
    render(case, Console(file=out, width=300, no_color=True))
    lines = out.getvalue().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  HIT"))
    return lines[start : start + 3]


def test_who_was_hit_is_labelled() -> None:
    case = case_builder.diagnosed()
    assert not any("sampled" in line for line in in_terminal(case))
    sampled(case)
    assert all(
        "; sampled, biased   " in line
        for line in in_terminal(case)
        if line[:12].strip() in ("HIT", "")
    )


def test_a_sample_gives_neither_severity_nor_budget() -> None:
    case = case_builder.diagnosed()
    whole = tell(case)
    assert "slow" in {f.name for f in whole.figures}
    assert any("budget of 30 days" in f.text for f in whole.figures)
    assert "of the requests" in whole.severity.because or "latency" in whole.severity.because
    sampled(case)
    figures = tell(case).figures
    assert all(f.is_biased and f.text.endswith("; sampled, biased") for f in figures)
    assert not any("budget of 30 days" in f.text for f in figures)
    assert propose_severity(figures, None).level == "SEV3"
    assert propose_severity(whole.figures, None).level != "SEV3"


def test_the_load_that_kept_the_limit_is_labelled() -> None:
    case = case_builder.diagnosed()
    sampled(case)
    cell = {
        "batch_from": 1, "batch_below": 2, "rate_from": 4.0, "rate_below": 8.0, "n": 200, "share_within": 1.0,
        "within_low": 0.98, "within_high": 1.0, "is_safe": True, "token_rate": None,
    }  # fmt: skip
    case.insert(
        "slo_heat_map", pl.DataFrame([cell], schema_overrides={"token_rate": pl.Float64})
    )
    (section,) = [
        s for s in tell_sections(case, read(case)) if s.title == "Load that kept the limit"
    ]
    assert section.lines[1:] == [
        "Sampled, biased: traces have 14 % of the requests; shares are of those. Rates are of traced requests."
    ]
    case.execute("UPDATE cohort SET is_sampled = false")
    (section,) = [
        s for s in tell_sections(case, read(case)) if s.title == "Load that kept the limit"
    ]
    assert section.lines[1].startswith(
        "The most load that kept the limit with certainty: 4 to 8"
    )


@pytest.fixture
def mixed() -> Case:
    """Tail-sampled traces of which 14 % are slow, and metrics by which 0.8 % are."""
    case = Case.create()
    tail_sampled(case)
    counted(case, {"1": 95, "2": 4.2, "5": 0.8, "+Inf": 0})
    assign(case)
    locate(case)
    gather(case)
    return case


def test_metrics_tell_what_a_sample_cannot(mixed: Case) -> None:
    figures = {f.name: f for f in measure(mixed, WHOLE)}
    assert figures["requests"].text == "12,000 requests were counted in the window"
    assert figures["slow"].text == "0.8 % of the requests took longer than the objective's 2 s"
    assert figures["slow"].observed == pytest.approx(0.008)
    assert not figures["slow"].is_biased
    assert figures["failed"].text == "0 % of the requests failed; sampled, biased"
    for figure in figures.values():
        assert mixed.rows(figure.sql)[0][1] == pytest.approx(figure.observed)


def test_the_bucket_that_holds_the_limit_is_told(mixed: Case) -> None:
    window = Window(**{**vars(WHOLE), "slo": "e2e_p99 < 1.5 s"})
    (slow,) = [f for f in measure(mixed, window) if f.name == "slow"]
    assert slow.text.startswith(
        "2.9 % of the requests took longer than the objective's 1.5 s, 0.8 % to 5 % as the histogram's bucket"
    )


def test_impact_without_traces_is_counted() -> None:
    with Case.create() as case:
        counted(case, {"1": 99, "2": 1, "5": 0}, part="baseline")
        counted(case, {"1": 50, "2": 0, "5": 50}, slow_from=0)
        assign(case)
        figures = {f.name: f for f in measure(case, Window(**{**vars(WHOLE), "slo": None}))}
        assert list(figures) == ["requests", "slow"]
        # 99 of 100 lie in the first bucket, whose end is the quantile.
        assert figures["slow"].text == (
            "50 % of the requests took longer than 1 s, the healthy p99 by the histogram (1 % when healthy)"
        )
        assert propose_severity(list(figures.values()), None).level == "SEV2"


def test_golden_signals_say_what_they_are_of(mixed: Case) -> None:
    rows = mixed.rows(
        "SELECT bias, p99_ns, histogram_p99_ns FROM golden_signals WHERE requests IS NOT NULL ORDER BY ts_ns"
    )
    assert {row[0] for row in rows} == {"sampled, biased"}
    assert {row[1] for row in rows} == {None}
    # 95 % lie below 1 s, 99.2 % below 2 s: the 99th is 4 / 4.2 of the way.
    assert rows[-1][2] == pytest.approx((1 + 4 / 4.2) * SECOND, rel=1e-6)


def test_golden_signals_of_all_requests_carry_no_label() -> None:
    with Case.create() as case:
        source = add_source(case, "trace", last_ns=at(100))
        for i in range(30):
            add_span(case, source, f"t{i}", "gateway", "POST", i)
        gather(case)
        assert case.rows("SELECT DISTINCT bias, histogram_p99_ns FROM golden_signals") == [
            (None, None)
        ]
