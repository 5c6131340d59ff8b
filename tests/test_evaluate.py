"""Scores of the diagnosis: checked on outcomes whose scores can be counted by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rca.errors import BundleError
from rca.evaluate import evaluate
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
