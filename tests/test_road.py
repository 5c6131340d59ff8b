"""The whole road on the bundled incidents: the right answer, reproducible numbers, no peeking."""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rca
from rca import evidence
from rca.case import Case
from rca.hypotheses import rank
from rca.pipeline import Options, analyze
from rca.window import locate

SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("[0-9]*"))
FAULTED = [s for s in SAMPLES if "healthy" not in s.name]
LEAK, POOL, WINDOW = (
    next(s for s in SAMPLES if s.name.endswith(name))
    for name in ("logits_processor_leak", "kv_pool_too_small", "batch_window_mismatch")
)
NO_TRIAL = Options(trial_budget_s=None)


@pytest.fixture(scope="module")
def diagnosed() -> Iterator[dict[str, Case]]:
    """Every sample, analysed once without the experiment."""
    cases = {s.name: analyze([s], options=NO_TRIAL) for s in SAMPLES}
    yield cases
    for case in cases.values():
        case.close()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_samples_give_the_right_answer(sample: Path, diagnosed: dict[str, Case]) -> None:
    truth = tomllib.loads((sample / "truth.toml").read_text())
    found = diagnosed[sample.name].verdict
    if truth["kind"] == "healthy":
        assert found["verdict"]["status"] == "no_incident"
        assert found["verdict"]["cause"] is None
        return
    assert found["verdict"]["status"] == "diagnosed"
    assert found["verdict"]["cause"] == truth["cause"]
    assert found["verdict"]["class"] == truth["class"]
    incident = found["incident"]
    both = min(incident["end_ns"], truth["end_ns"]) - max(
        incident["start_ns"], truth["start_ns"]
    )
    either = max(incident["end_ns"], truth["end_ns"]) - min(
        incident["start_ns"], truth["start_ns"]
    )
    assert both / either > 0.6


SLOW = [pytest.param(s, marks=pytest.mark.slow) if i >= 4 else s for i, s in enumerate(SAMPLES)]


@pytest.mark.parametrize("sample", SLOW, ids=lambda s: s.name)
def test_every_figure_comes_again_from_its_query(
    sample: Path, diagnosed: dict[str, Case]
) -> None:
    case = diagnosed[sample.name]
    rows = case.rows(
        "SELECT id, sql, reference, observed, n_reference, n_observed FROM evidence"
    )
    assert rows
    for key, sql, *stored in rows:
        again = case.rows(sql)[0]
        for before, now in zip(stored, again, strict=True):
            if before is None or now is None:
                assert before is None or math.isnan(before), key
                assert now is None, key
            else:
                assert now == pytest.approx(before, rel=1e-9), key


def test_a_changed_base_row_changes_the_figure() -> None:
    with analyze([POOL], options=NO_TRIAL) as case:
        sql, before = case.rows(
            "SELECT sql, observed FROM evidence WHERE role = 'queue_time' AND source = 'trace'"
        )[0]
        case.execute(
            "UPDATE span SET attributes = replace(attributes, '\"gen_ai.latency.time_in_queue\":', "
            "'\"gen_ai.latency.time_in_queue\":1') WHERE name = 'llm_request'"
        )
        assert case.rows(sql)[0][1] != pytest.approx(before)


def test_queries_of_evidence_never_read_results(diagnosed: dict[str, Case]) -> None:
    results = ("evidence", "hypothesis", "verdict", "attribution", "pattern", "suspect", "fix")
    for case in diagnosed.values():
        for (sql,) in case.rows("SELECT sql FROM evidence"):
            assert not any(f" {name}" in sql.replace("\n", " ") for name in results)


def test_parts_and_residual_add_up(diagnosed: dict[str, Case]) -> None:
    for case in diagnosed.values():
        rows = dict(case.rows("SELECT part, delta_ns FROM attribution"))
        if rows:
            total = case.scalar(
                "SELECT observed - reference FROM evidence WHERE subject = 'latency:end to end'"
            )
            assert sum(rows.values()) == pytest.approx(total, rel=1e-9)


def comparable(verdict: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in verdict.items() if k != "provenance"}, sort_keys=True)


def test_the_truth_is_never_read(tmp_path: Path) -> None:
    """Without truth.toml, and with a lie in it, the verdict is the same to the byte."""
    answers = []
    for kind in ("told", "silent", "lie"):
        bundle = tmp_path / kind / "bundle"
        shutil.copytree(WINDOW, bundle)
        if kind == "silent":
            (bundle / "truth.toml").unlink()
        if kind == "lie":
            (bundle / "truth.toml").write_text('cause = "overload"\nclass = "traffic-spike"\n')
        with analyze([bundle], options=NO_TRIAL) as case:
            answers.append(comparable(case.verdict))
    assert answers[0] == answers[1] == answers[2]


def test_the_same_bundle_gives_the_same_answer(diagnosed: dict[str, Case]) -> None:
    with analyze([LEAK], options=NO_TRIAL) as case:
        assert comparable(case.verdict) == comparable(diagnosed[LEAK.name].verdict)


def test_stages_can_run_again_on_the_same_case() -> None:
    with analyze([POOL], options=NO_TRIAL) as case:
        first = case.rows("SELECT cause, score FROM hypothesis ORDER BY rank")
        locate(case)
        evidence.gather(case)
        from rca.attribution import attribute

        attribute(case)
        rank(case)
        assert case.rows("SELECT cause, score FROM hypothesis ORDER BY rank") == first


@pytest.mark.parametrize("sample", FAULTED[:3], ids=lambda s: s.name)
def test_a_list_of_files_without_baseline_is_enough(sample: Path) -> None:
    files = sorted(p for p in (sample / "incident").rglob("*") if p.is_file())
    with analyze(files, options=NO_TRIAL) as case:
        assert case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'") == 0
        assert case.verdict["verdict"]["status"] in ("diagnosed", "unknown")
        assert "no_baseline" in [g["code"] for g in case.verdict["gaps"]]


def test_python_writes_what_the_command_line_writes(tmp_path: Path) -> None:
    with rca.analyze(POOL, out=tmp_path) as case:
        told = json.loads((tmp_path / "verdict.json").read_text())
        assert told == json.loads(json.dumps(case.verdict))
    with rca.open(tmp_path / "case.duckdb") as kept:
        assert kept.verdict == told
    assert (tmp_path / "postmortem.md").stat().st_size > 1000
    fixes = [f["file"] for f in told["fixes"] if f["file"]]
    assert fixes
    assert all((tmp_path / "fixes" / Path(name).name).is_file() for name in fixes)
