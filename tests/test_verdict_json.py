"""verdict.json: the contract with programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import case_builder
import pytest

from rca.answer.verdict_json import verdict
from rca.case import Case

KEYS = {
    "incident": {"start_ns", "end_ns", "detected_by", "slo"},
    "verdict": {"status", "cause", "class", "confidence", "contributing", "reason", "judge"},
    "hypotheses": {
        "cause", "class", "score", "confidence", "explained_share", "change", "evidence", "contradicting",
        "competitors", "missing",
    },
    "suspects": {"service", "metric", "score", "role", "reference", "observed", "unit", "spreads"},
    "attribution": {"part", "delta_ns", "share"},
    "fixes": {
        "kind", "phase", "target", "change", "action", "file", "undo", "risk", "reversible",
        "time_to_effect", "gate", "approver", "explained_share", "strict", "gate_passed", "confidence", "revert_when",
        "trial",
    },
    "gaps": {"code", "statement", "would_decide", "record"},
}  # fmt: skip


def test_shape_of_a_diagnosis() -> None:
    found = verdict(case_builder.diagnosed())
    assert list(found) == [
        "schema_version", "incident", "windows", "verdict", "hypotheses", "suspects", "attribution", "fixes",
        "trial", "guard_rails", "gaps", "impact", "causal_graph", "findings", "provenance",
    ]  # fmt: skip
    assert found["schema_version"] == 1
    for section, keys in KEYS.items():
        for row in found[section] if isinstance(found[section], list) else [found[section]]:
            assert set(row) == keys, section
    assert {"status", "device"} <= set(found["trial"])


def test_values_of_a_diagnosis() -> None:
    found = verdict(case_builder.diagnosed())
    assert found["incident"] == {
        "start_ns": case_builder.START, "end_ns": case_builder.END,
        "detected_by": "scan", "slo": "e2e p99 < 2 s",
    }  # fmt: skip
    assert (found["verdict"]["cause"], found["verdict"]["class"]) == (
        "kv_pool_too_small",
        "config",
    )
    assert [h["cause"] for h in found["hypotheses"]][:2] == ["kv_pool_too_small", "overload"]
    assert found["hypotheses"][0]["evidence"] == ["E1", "E2", "E7", "E10"]
    assert found["fixes"][0]["change"] == "c41"
    assert found["fixes"][0]["target"] == "deployment/vllm-llama"
    assert found["attribution"][-1]["part"] == "residual"
    assert sum(p["share"] for p in found["attribution"]) == pytest.approx(1.0)
    assert found["trial"]["status"] == "validated"


@pytest.mark.parametrize(
    ("build", "status"),
    [(case_builder.unknown, "unknown"), (case_builder.no_incident, "no_incident"),
     (case_builder.gpu_only, "unknown")],
)  # fmt: skip
def test_no_cause_unless_diagnosed(build: Callable[[], Case], status: str) -> None:
    found = verdict(build())["verdict"]
    assert (found["status"], found["cause"], found["class"]) == (status, None, None)


def test_incident_and_hypotheses_are_filled_when_unknown() -> None:
    found = verdict(case_builder.unknown())
    assert found["incident"]["start_ns"] == case_builder.START
    assert found["hypotheses"] and found["suspects"]
    assert found["trial"]["status"] == "not_run"


def test_equal_cases_give_equal_bytes(tmp_path: Path) -> None:
    texts = []
    for folder in ("a", "b"):
        with case_builder.diagnosed(tmp_path / folder / "case.duckdb") as case:
            case.execute("UPDATE source SET path = ? || '/' || path", [str(tmp_path / folder)])
            case.execute("UPDATE trial SET spent_ns = ?", [len(texts)])
            texts.append(json.dumps(verdict(case), allow_nan=False))
    assert texts[0] == texts[1]


def test_numbers_that_json_lacks_become_null() -> None:
    case = case_builder.diagnosed()
    case.execute("UPDATE hypothesis SET score = 'nan' WHERE rank = 1")
    case.execute("UPDATE suspect SET score = 'inf' WHERE rank = 1")
    found = json.loads(json.dumps(verdict(case), allow_nan=False))
    assert found["hypotheses"][0]["score"] is None
    assert found["suspects"][0]["score"] is None


def test_last_judge_is_in_force() -> None:
    case = case_builder.diagnosed()
    case.execute(
        "INSERT INTO verdict VALUES ('unknown', NULL, NULL, 0.4, 'The model abstains.', 'a-model')"
    )
    assert verdict(case)["verdict"] == {
        "status": "unknown", "cause": None, "class": None, "confidence": 0.4,
        "contributing": [], "reason": "The model abstains.", "judge": "a-model",
    }  # fmt: skip
