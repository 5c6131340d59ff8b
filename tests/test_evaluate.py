"""Scores of the diagnosis: checked on outcomes whose scores can be counted by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rca import evaluate as evaluating
from rca.commands import evaluate as eval_command
from rca.errors import BundleError, TemplateError
from rca.evaluate import AS_RECORDED, LEFT_OUT, ablate, evaluate
from rca.evaluate.scores import Outcome, scores, wilson

SAMPLES = Path(__file__).parent.parent / "sample_traces"


def outcome(right: str, *answers: str, confidence: float = 0.9, **more: object) -> Outcome:
    fields: dict[str, object] = {
        "case": "c", "kind": "fault", "right": (right,), "true_class": "config",
        "answers": answers, "status": "diagnosed", "said_class": "config",
        "confidence": confidence, "iou": 0.5,
    }  # fmt: skip
    return Outcome(**(fields | more))  # type: ignore[arg-type]


def test_shares_are_counted_and_bounded() -> None:
    told = scores(
        [
            outcome("a", "a", "b"),
            outcome("a", "b", "c", "a"),
            outcome("a", "b", "c", "d", "a", said_class="infra"),
            outcome("a", "unknown", "a", status="unknown", confidence=0.2, said_class=None),
        ]
    )["fault"]
    assert (told["n"], told["ac1"][0], told["ac3"][0]) == (4, 0.25, 0.75)
    assert told["class"][0] == 0.5
    assert told["unknown"][0] == 0.25
    assert told["precision_when_sure"][0] == pytest.approx(1 / 3, abs=1e-4)
    assert told["coverage_when_sure"][0] == 0.75
    assert told["ece"] == pytest.approx(abs(2.7 - 1) / 3, abs=1e-4)
    assert told["iou"] == 0.5


def test_healthy_and_unmodelled_have_their_own_rules() -> None:
    told = scores(
        [
            outcome("", "no_incident", kind="healthy", status="no_incident"),
            outcome("", "a", kind="healthy"),
            outcome("unknown", "unknown", kind="unmodelled", status="unknown"),
            outcome("unknown", "a", kind="unmodelled", confidence=0.4),
            outcome("unknown", "a", kind="unmodelled", confidence=0.95),
        ]
    )
    assert told["healthy"]["no_incident"][0] == 0.5
    assert told["unmodelled"]["careful"][0] == pytest.approx(2 / 3, abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)],
)
def test_wilson_intervals_match_published_values(
    hits: int, n: int, low: float, high: float
) -> None:
    share, below, above = wilson(hits, n)
    assert share == hits / n
    assert (below, above) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_a_folder_of_bundles_is_scored_and_a_broken_one_counts_as_wrong(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "02_kv_pool_too_small", tmp_path / "good")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "truth.toml").write_text(
        'cause = "overload"\nclass = "traffic-spike"\nkind = "fault"\n'
    )
    (broken / "notes.txt").write_text("nothing to read here\n")
    found = evaluate(tmp_path, workers=1)
    assert found["cases"] == 2
    assert found["scores"]["fault"]["ac1"][0] == 0.5
    assert [o["status"] for o in found["outcomes"]] == ["failed", "diagnosed"]
    json.dumps(found)


def test_a_folder_without_truth_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"truth\.toml"):
        evaluate(tmp_path)


def test_a_healthy_bundle_that_nothing_can_be_said_of_is_no_false_alarm() -> None:
    told = scores(
        [
            outcome("", "a", kind="healthy"),
            outcome("", "unknown", kind="healthy", status="unknown"),
            outcome("", "unknown", kind="healthy", status="unknown", found=False),
            outcome("", "no_incident", kind="healthy", status="no_incident", found=False),
        ]
    )["healthy"]
    assert (told["no_incident"][0], told["false_alarms"][0]) == (0.25, 0.5)


def test_ablations_go_over_faults_and_healthy_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("02_kv_pool_too_small", "04_healthy"):
        shutil.copytree(SAMPLES / name, tmp_path / name)
    monkeypatch.setattr(evaluating, "ABLATIONS", (AS_RECORDED, "profiles only"))
    found = ablate(tmp_path, sample=1, workers=1)
    assert list(found) == [AS_RECORDED, "profiles only", LEFT_OUT]
    assert found[AS_RECORDED]["fault"]["ac1"][0] == 1.0
    assert found[AS_RECORDED]["healthy"]["no_incident"][0] == 1.0
    # Two captures alone show no incident, and no alarm is raised on them.
    assert found["profiles only"]["fault"]["ac1"][0] == 0.0
    assert found["profiles only"]["healthy"]["false_alarms"][0] == 0.0
    assert list(found[LEFT_OUT]) == ["unmodelled"]


def test_the_table_of_ablations_is_put_between_its_two_lines(tmp_path: Path) -> None:
    fault = scores([outcome("a", "a"), outcome("a", "b")])
    healthy = scores([outcome("", "no_incident", kind="healthy", status="no_incident")])
    document = tmp_path / "evaluation.md"
    document.write_text(f"before\n{eval_command.BEGIN}\nold\n{eval_command.END}\nafter\n")
    text = eval_command.ablation_text({AS_RECORDED: fault | healthy})
    eval_command.put(text, document, eval_command.command(Path("x/twin"), True, 40))
    lines = document.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert "rca eval twin --ablations --told-window --sample 40" in lines
    (row,) = [line for line in lines if line.startswith("| as recorded")]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[1:4] == ["as recorded", "2", "0.00"]
    assert cells[5] == "0.50 [0.09, 0.91]"
    assert cells[-3:-1] == ["1", "0.00 [0.00, 0.79]"]


def test_a_document_without_a_place_for_the_table_is_one_line(tmp_path: Path) -> None:
    document = tmp_path / "notes.md"
    document.write_text("nothing here\n")
    with pytest.raises(TemplateError, match="ablations: begin"):
        eval_command.put("table", document, "rca eval x")
    assert document.read_text() == "nothing here\n"
