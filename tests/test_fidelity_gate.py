"""A trial proves no more than the likeness of its healthy service to the recorded one allows."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rca import trial
from rca.cli import app
from rca.commands import reproducer
from rca.models import experiment
from rca.models.experiment import Experiment
from rca.models.infer import Facts, FidelityRow, Workload, infer
from rca.models.reproduce import Lengths, reproduce
from rca.models.sizes import DecoderConfig
from rca.pipeline import Options, analyze
from rca.trial.fidelity import gate, held_to

LOAD = "share of time with work"


def _row(off: float, quantity: str = LOAD, kept: bool = False) -> FidelityRow:
    return FidelityRow(quantity, "0.9", "0.4", kept, "spans", "", off)


@pytest.mark.parametrize(
    ("status", "off", "held"),
    [
        ("validated", 1.9, "validated"),
        ("validated", 2.0, "mechanism_only"),
        ("partial_fix", 2.0, "mechanism_only"),
        ("refuted", 9.0, "refuted"),
        ("inconclusive", 9.0, "inconclusive"),
    ],
)
def test_what_is_far_off_caps_the_status(status: str, off: float, held: str) -> None:
    found, reason = held_to(status, "because", [_row(1.1, kept=True), _row(off)])
    assert found == held
    assert reason.startswith(f"because; the model does not keep: {LOAD} 0.9 → 0.4")
    assert ("too far off" in reason) == (found != status)


def test_what_is_kept_or_does_not_count_is_not_told() -> None:
    rows = [_row(1.2, kept=True), _row(5.0, "variation of the gaps between arrivals")]
    assert held_to("validated", "because", rows) == ("validated", "because")


def test_the_gate_names_rows_that_there_are() -> None:
    """Facts that no model of this size can keep: the rows are off by what they are off."""
    facts = Facts(prompt_tokens=1000.0, output_tokens=4000.0, prefix_share=0.6, busy_share=0.05)
    rows = {row.quantity: row for row in infer(facts).fidelity}
    assert gate().quantities <= set(rows)
    off = rows["answer tokens for each prompt token"]
    assert off.kept is False
    assert off.off == pytest.approx(4.05 / (float(off.modelled) + 0.05), rel=0.02)


def test_a_trial_is_held_to_its_fidelity_and_names_rivals_that_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = Lengths(baseline_s=30, lead_in_s=20, fault_s=20, profiled_steps=4)
    out = reproduce("overload", tmp_path / "b", engine="twin", seed=4, lengths=lengths)
    asked: dict[str, object] = {}

    def validated(cause: str, **given: object) -> Experiment:
        asked.update(given)
        return Experiment(cause, "validated", "as it is")

    options = Options(trial_budget_s=None)
    with analyze([out], case_path=tmp_path / "c.duckdb", options=options) as case:
        case.execute("UPDATE hypothesis SET score = 0.5")
        ranked = [c for (c,) in case.rows("SELECT cause FROM hypothesis ORDER BY rank")]
        monkeypatch.setattr(experiment, "run", validated)
        trial.run(case, 5.0, "overload")
        assert case.rows("SELECT status, reason FROM trial") == [("validated", "as it is")]
        monkeypatch.setattr(trial, "infer", lambda facts: _far(infer(facts)))
        trial.run(case, 5.0, "overload")
        assert case.rows("SELECT status FROM trial") == [("mechanism_only",)]
        assert f"the model does not keep: {LOAD}" in case.scalar("SELECT reason FROM trial")
        assert case.scalar("SELECT count(*) FROM trial_fidelity WHERE NOT kept") == 1
    others = [cause for cause in ranked if cause != "overload"]
    assert len(others) > 3
    assert asked["rivals"] == others[:3]
    assert asked["not_tried"] == others[3:]


def _far(workload: Workload) -> Workload:
    return replace(workload, fidelity=[_row(3.0)])


def test_a_rival_that_was_not_run_is_in_the_record() -> None:
    found = experiment.run("overload", not_tried=["tiny_batch"], budget_s=0)
    assert found.details["left_out"] == ["tiny_batch: less likely than those tried"]


def test_a_workload_like_a_case_keeps_its_sizes_and_tells_how_true_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, object] = {}
    workload = replace(
        infer(Facts(prompt_tokens=100.0)), sizes=DecoderConfig(layers=1, hidden=80)
    )
    monkeypatch.setattr(reproducer, "_workload", lambda _like: workload)
    monkeypatch.setattr(
        "rca.models.reproduce.reproduce", lambda _cause, out, **given: made.update(given) or out
    )
    asked = ["reproduce", "overload", "--like", "c.duckdb", "--out", str(tmp_path / "b")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert made["sizes"] == workload.sizes
    assert made["healthy"] == workload.plan
    assert "Fidelity" in done.output
    assert "answer tokens" in done.output
    assert "Fidelity" not in CliRunner().invoke(app, [*asked, "--quiet"]).output


def test_the_twins_profile_has_the_sizes_that_it_is_given(tmp_path: Path) -> None:
    lengths = Lengths(baseline_s=15, lead_in_s=15, fault_s=15, profiled_steps=2)
    out = reproduce(
        "healthy", tmp_path / "b", engine="twin", lengths=lengths,
        sizes=DecoderConfig(layers=2, hidden=80),
    )  # fmt: skip
    (path,) = (out / "baseline").glob("*.pt.trace.json.gz")
    widths = {
        event["args"]["Input Dims"][0][-1]
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event["name"] == "aten::layer_norm"
    }
    assert widths == {80}
