"""The answer in the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import case_builder
import pytest
from rich.console import Console

from rca.answer.summary import render
from rca.case import Case
from rca.errors import CaseError
from rca.plain import duration, factor, moment, number, percent, printable, quantity, size


def shown(case: Case, *, width: int = 100, terminal: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=terminal, no_color=True, legacy_windows=False
    )
    render(case, console)
    return out.getvalue()


def test_diagnosis_names_cause_evidence_and_what_to_do() -> None:
    lines = shown(case_builder.diagnosed()).splitlines()
    text = "\n".join(lines)
    cause = next(line for line in lines if line.startswith("  CAUSE"))
    assert cause.split() == ["CAUSE", "kv_pool_too_small", "config", "confidence", "0.93"]
    assert "vllm e2e latency 1.29 s → 6.09 s (×4.72 [4.27–5.22])   E7" in text
    assert "vllm waiting 1 → 24 (×24 [21.7–26.5])   E1" in text
    assert (
        "explains 81 % of the added latency by itself (queue 55.2 %, decode 38.3 %); residual 6.53 %   E7"
        in text
    )
    assert (
        "overload: would raise running; here vllm running 14 → 9 (×0.643 [0.582–0.71])   E3"
        in text
    )
    assert "TRIAL      validated (cpu model, 6 pairs)" in text
    assert "fixes/01-rollback.sh · undo fixes/01-undo.sh" in text
    assert "02:17:15 – 02:31:00 UTC (±15 s)" in text
    assert "lasting 13 min 45 s, SLO e2e p99 < 2 s broken" in text


@pytest.mark.parametrize(
    ("after_s", "told"), [(10, True), (31, False)], ids=["recording-ends", "goes-on"]
)
def test_an_incident_without_recovery_is_told_so(after_s: int, told: bool) -> None:
    case = case_builder.diagnosed()
    case.execute(
        "UPDATE source SET shift_ns = 0, last_ns = (SELECT end_ns FROM incident_window) + ? "
        "WHERE part = 'incident' AND kind = 'metrics'",
        [after_s * 1_000_000_000],
    )
    window = next(line for line in shown(case).splitlines() if "window" in line)
    assert ("no recovery is shown, the recordings end" in window) is told


def test_cause_stands_before_reasons_and_fixes() -> None:
    text = shown(case_builder.diagnosed())
    order = [
        text.index(f"  {label}") for label in ("CAUSE", "WHY", "NOT", "MISSING", "TRIAL", "DO")
    ]
    assert order == sorted(order)


def test_a_second_cause_is_not_told_as_ruled_out() -> None:
    case = case_builder.diagnosed()
    assert "overload: would raise running" in shown(case)
    case.execute(
        "UPDATE hypothesis SET contributing = TRUE, evidence = '[\"E3\"]' WHERE rank = 2"
    )
    case.execute("UPDATE hypothesis SET contributing = TRUE WHERE rank = 1")
    text = shown(case)
    assert "overload:" not in text
    assert "ALSO       overload   traffic-spike   confidence 0.04\n" in text
    assert text.count("running 14 → 9") == 1


def test_the_change_that_fits_is_named_or_that_none_does() -> None:
    case = case_builder.diagnosed()
    assert "SINCE      c41, 3 min 10 s before the window began (±15 s): deploy of" in shown(
        case
    )
    case.execute("UPDATE hypothesis SET change_id = NULL")
    assert "SINCE      no change fits in kind, target and time (2 recorded)" in shown(case)


def test_how_to_undo_is_told_of_every_proposal() -> None:
    case = case_builder.diagnosed()
    count = case.scalar("SELECT count(*) FROM fix")
    for undo, reversible, said in (
        (None, True, "undo: take it back by hand"),
        (None, False, "CANNOT be undone"),
        ("x.sh", True, "undo fixes/x.sh"),
    ):
        case.execute("UPDATE fix SET undo = ?, reversible = ?", [undo, reversible])
        assert shown(case).count(said) == count


def test_unknown_says_what_moved_and_what_to_record() -> None:
    text = shown(case_builder.unknown())
    assert "UNKNOWN    not diagnosed   best guess 0.31" in text
    assert "CAUSE" not in text
    assert "MOVED      vllm waiting 1 → 24" in text
    assert "NEAREST    kv_pool_too_small 0.31" in text
    assert "record it: curl -X POST http://HOST:8000/start_profile" in text


def test_healthy_says_how_far_from_an_incident() -> None:
    text = shown(case_builder.no_incident())
    assert "HEALTHY    no incident   confidence 0.96" in text
    assert "scan score 3.1 of the 9.5 needed" in text
    assert "MOVED" not in text


def test_lone_gpu_capture_says_what_the_gpu_did() -> None:
    case = case_builder.gpu_only()
    text = shown(case)
    assert "UNKNOWN    not diagnosed" in text
    # gemm 0-400 and 700-800, all-reduce 300-600, a third kernel 900-1000 us
    assert (
        "device 0: busy 80 % of 1 ms in 4 kernels: compute 60 %, communication 30 % (10 % under compute)"
        in text
    )
    assert "idle: its launch is not in the capture 20 %" in text
    assert "KERNELS    gemm  2 times, 500 µs together" in text
    assert "healthy part" not in text  # without a window there is none


@pytest.mark.parametrize("width", [20, 40, 72])
def test_terminal_lines_keep_to_the_width(width: int) -> None:
    lines = shown(case_builder.diagnosed(), width=width, terminal=True).splitlines()
    widest = max(len(case_builder.without_style(line)) for line in lines)
    assert widest <= max(width, 33)  # below that the label column alone needs the room


def test_pipe_has_one_line_an_item_and_no_escape_codes() -> None:
    text = shown(case_builder.diagnosed(), width=40)
    assert "\x1b" not in text
    assert any(len(line) > 150 for line in text.splitlines())


@pytest.mark.parametrize(
    "build", [case_builder.diagnosed, lambda name: case_builder.gpu_only()]
)
def test_hostile_names_are_data(build: Callable[..., Case]) -> None:
    text = shown(build(name=case_builder.HOSTILE), terminal=True, width=300)
    bare = case_builder.without_style(text)
    assert "\x1b" not in bare
    assert "\u202e" not in bare
    assert "\n#" not in bare


def test_very_long_name_is_cut() -> None:
    text = shown(case_builder.diagnosed(name="x" * 10_000))
    assert "x" * 20 in text
    assert max(len(line) for line in text.splitlines()) < 600


def test_files_are_named_when_they_exist(tmp_path: Path) -> None:
    with case_builder.diagnosed(tmp_path / "case.duckdb") as case:
        (tmp_path / "postmortem.md").write_text("x")
        text = shown(case)
    assert f"postmortem {tmp_path / 'postmortem.md'}" in text
    assert "report.html" not in text


def test_case_without_verdict_is_an_expected_failure() -> None:
    with pytest.raises(CaseError, match="holds no verdict yet; run: rca analyze"):
        shown(Case.create())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("plain", "plain"),
        ("a\x1b[31mb\x07", "a\\e[31mb\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202eabc\u2066\u200b\ufeff", "\\u202eabc\\u2066\\u200b\\ufeff"),
        ("\u2028line", "\\u2028line"),
        ("\ud800", "\\ud800"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("naïve 漢字 ×5", "naïve 漢字 ×5"),
        ("x" * 20, "xxxxxxxxx…"),
    ],
)
def test_printable(raw: str, expected: str) -> None:
    limit = 10 if raw.startswith("xx") else 160
    assert printable(raw, limit) == expected


def test_numbers_and_times() -> None:
    assert [number(v) for v in (0, 0.0123, 5.236, 99.96, 1234567, float("nan"))] == [
        "0", "0.0123", "5.24", "100", "1,234,567", "unknown",
    ]  # fmt: skip
    assert [duration(v) for v in (250, 8_400_000, 6_840_000_000, 825 * 10**9, 7_322 * 10**9)] == [
        "250 ns", "8.4 ms", "6.84 s", "13 min 45 s", "2 h 2 min",
    ]  # fmt: skip
    assert duration(-1_500_000) == "−1.5 ms"
    assert size(1_900_000_000) == "1.9 GB"
    assert quantity(6.84, "s") == "6.84 s"
    assert quantity(3.4, "1/s") == "3.4 /s"
    assert quantity(2.5e6, "bytes/s") == "2.5 MB/s"
    assert quantity(0.58, "ratio") == "0.58"
    assert [percent(v) for v in (0.813, 1e-16, None)] == ["81.3 %", "0 %", "unknown"]
    assert factor(1.6487, 1.5, 1.8) == "×5.2 [4.48–6.05]"
    assert factor(None) == ""
    assert moment(case_builder.START) == "2026-01-31 02:17:15"
    assert moment(10**30) == f"{10**30} ns"
