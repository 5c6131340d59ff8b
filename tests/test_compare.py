"""`rca compare`: two recordings side by side, and a gate that fails closed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaeger_builder import START_US, traced

from rca import pipeline
from rca.compare import compare, gate, quality, text
from rca.errors import RcaError

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces" / "02_kv_pool_too_small"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    return lambda name, **how: traced(tmp_path / name, **how)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rca.cli", "compare", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def figures(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["figure"]: row for row in found["figures"]}


def checks(found: dict[str, Any]) -> dict[str, bool]:
    return {row["check"]: row["passed"] for row in found["gate"]["checks"]}


def test_figures_are_those_of_the_recorded_requests(make: Callable[..., Path]) -> None:
    found = compare(make("a"), make("b", e2e_ms=120.0, failed=50))
    row = figures(found)["e2e_p95"]
    spans = json.loads((make("a") / "traces.json").read_text())["data"]
    lengths = sorted(t["spans"][0]["duration"] / 1000 for t in spans)
    assert row["base"] == pytest.approx(lengths[949])
    assert row["n_candidate"] == 950
    assert row["low"] < math.log(1.2) < row["high"]
    assert figures(found)["ttft_p50"]["base"] == pytest.approx(lengths[499] / 3, rel=1e-4)
    assert figures(found)["itl_p50"]["base"] == pytest.approx(lengths[499] / 2 / 19, rel=1e-4)
    assert found["errors"]["candidate"]["share"] == 0.05
    assert figures(found)["throughput"]["log_ratio"] == pytest.approx(math.log(0.95), abs=0.01)
    assert figures(found)["input_tokens"]["candidate"] == 100
    assert found["ttft_spread"]["log_ratio"] == pytest.approx(math.log(1.2), abs=0.15)
    assert found["ops"] is None


def test_a_folder_called_baseline_is_a_side_like_any_other(make: Callable[..., Path]) -> None:
    found = compare(make("baseline"), make("candidate"))
    assert found["base"]["requests"] == found["candidate"]["requests"] == 1000


def test_cases_and_bundles_give_the_same(make: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        pipeline.read([make(name, seed=ord(name))], None, tmp_path / f"{name}.duckdb").close()
    told = compare(tmp_path / "a.duckdb", tmp_path / "b.duckdb")
    again = compare(tmp_path / "a", tmp_path / "b")
    assert told["figures"] == again["figures"]


def test_two_arms_of_one_recording_are_compared(make: Callable[..., Path]) -> None:
    both = make("both", n=400, arm="control")
    make("both", n=300, arm="hotfix", first=400, e2e_ms=70.0, seed=1)
    found = compare(both, both, base_where="ab/arm=control", candidate_where="ab/arm=hotfix")
    assert (found["base"]["requests"], found["candidate"]["requests"]) == (400, 300)
    row = figures(found)["e2e_p50"]
    assert row["low"] < math.log(0.7) < row["high"]
    assert any("share of the traffic" in note for note in found["notes"])
    assert compare(both, both, base_where="service.name=none")["base"]["requests"] == 0
    with pytest.raises(RcaError, match="no KEY=VALUE"):
        compare(both, both, base_where="control")


def test_a_good_candidate_passes_the_shipped_gate(make: Callable[..., Path]) -> None:
    done = run(make("a"), make("b", seed=1), "--gate", "default")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gate: passed" in done.stdout


@pytest.mark.parametrize(
    ("how", "broken"),
    [
        ({"e2e_ms": 400.0}, {"p95_ms"}),
        ({"failed": 8}, {"error_share"}),
        ({"failed": 100}, {"error_share", "throughput_loss"}),
        ({"n": 150}, {"requests of candidate", "error_share", "throughput_loss"}),
    ],
)
def test_what_breaks_a_limit_is_named(
    make: Callable[..., Path], how: dict[str, Any], broken: set[str]
) -> None:
    found = compare(make("a"), make("b", **how), gate=Path("default"))
    assert not found["gate"]["passed"]
    assert {name for name, passed in checks(found).items() if not passed} == broken


def test_a_p95_below_the_limit_whose_upper_end_is_above_it_fails(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    a, b = make("a"), make("b", n=300)
    row = figures(compare(a, b))["e2e_p95"]
    assert row["candidate"] < row["candidate_high"]
    limit = tmp_path / "gate.toml"
    for value, passes in ((row["candidate"] + 0.01, False), (row["candidate_high"], True)):
        limit.write_text(f"[limits]\np95_ms = {value}\n")
        assert checks(compare(a, b, gate=limit))["p95_ms"] is passes


def test_without_requests_every_limit_fails(make: Callable[..., Path], tmp_path: Path) -> None:
    other = tmp_path / "metrics"
    other.mkdir()
    (other / "m.txt").write_text("# TYPE up gauge\nup 1 1770000000000\n")
    found = compare(make("a"), other, gate=Path("default"))
    assert not any(checks(found)[c] for c in ("p95_ms", "error_share", "throughput_loss"))
    assert any("holds no requests" in note for note in found["notes"])


def test_damaged_traces_fail_the_gate(make: Callable[..., Path]) -> None:
    damaged = make("b", n=2000)
    file = damaged / "traces.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 3 // 4])
    found = compare(make("a"), damaged, gate=Path("default"))
    assert found["candidate"]["requests"] > 1000
    assert checks(found)["recording of candidate"] is False


def test_sampled_traces_fail_the_gate(make: Callable[..., Path]) -> None:
    sampled = make("b")
    lines = ["# TYPE vllm:e2e_request_latency_seconds histogram"]
    for step in range(11):
        ms, count = START_US // 1000 + step * 10_000, step * 400
        lines += [
            f'vllm:e2e_request_latency_seconds_bucket{{le="+Inf"}} {count} {ms}',
            f"vllm:e2e_request_latency_seconds_sum {count / 10} {ms}",
            f"vllm:e2e_request_latency_seconds_count {count} {ms}",
        ]
    (sampled / "metrics.txt").write_text("\n".join(lines) + "\n")
    found = compare(make("a"), sampled, gate=Path("default"))
    assert "of the 4,000 requests" in found["candidate"]["sampled"]
    assert checks(found)["recording of candidate"] is False


def test_operators_are_compared_by_name() -> None:
    found = compare(SAMPLE / "baseline", SAMPLE / "incident")["ops"]
    assert found["kind"] == "op"
    row = next(r for r in found["kept"] if r["name"] == "aten::scaled_dot_product_attention")
    case = pipeline.read([SAMPLE])
    sql = "SELECT part, count(*), avg(dur_ns) FROM cpu_op JOIN source ON source.id = source_id WHERE cpu_op.kind = 'op' AND cpu_op.name = ? GROUP BY part"
    told = {part: (n, mean) for part, n, mean in case.rows(sql, [row["name"]])}
    assert (row["n_base"], row["n_candidate"]) == (told["baseline"][0], told["incident"][0])
    assert row["mean_ratio"] == pytest.approx(told["incident"][1] / told["baseline"][1])
    assert found["counts"]["kept"] + found["counts"]["gone"] == case.scalar(
        "SELECT count(DISTINCT cpu_op.name) FROM cpu_op JOIN source ON source.id = source_id "
        "WHERE cpu_op.kind = 'op' AND part = 'baseline'"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[limits]\np95 = 300\n", "'p95' is no limit"),
        ("[limits]\np95_ms = 'fast'\n", "p95_ms must be a number"),
        ("[limits]\np95_ms = nan\n", "p95_ms must be a number"),
        ("min_requests = 200\n", "has no"),
        ("[limit]\np95_ms = 300\n", "'limit' is not known"),
        ("[limits]\np95_ms = 3\n[quality.bleu]\nbetter = 'up'\nstep = 1\n", "needs better"),
        ("[limits\n", "not valid TOML"),
    ],
)
def test_a_gate_that_is_mistyped_never_passes(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(content)
    with pytest.raises(RcaError, match=problem):
        gate.read(path)
    with pytest.raises(RcaError, match="no such file"):
        gate.read(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("rows", "p99", "joint"),
    [
        (["bleu,28.7,29.3", "toxicity,0.112,0.096"], (-0.1, 0.04), "better"),
        (["bleu,28.7,28.8"], (-0.1, 0.04), "same"),
        (["bleu,28.7,28.2"], (-0.1, 0.04), "worse"),
        (["bleu,28.7,29.3", "toxicity,0.1,0.13"], (-0.1, 0.04), "worse"),
        (["bleu,28.7,29.3"], (-0.1, 0.06), "undecided"),
        (["bleu,28.7,29.3"], (0.06, 0.2), "worse"),
        (["bleu,28.7,29.3"], (None, None), "undecided"),
        (["rouge,1,2"], (-0.1, 0.04), "undecided"),
        ([f"bleu,{20 + i},{20.6 + i + (i % 2) / 10}" for i in range(30)], (-1, 0), "better"),
        ([f"bleu,{20 + i},{20 + i + (-3) ** (i % 2)}" for i in range(30)], (-1, 0), "undecided"),
    ],
)  # fmt: skip
def test_quality_and_latency_are_judged_together(
    tmp_path: Path, rows: list[str], p99: tuple[float | None, float | None], joint: str
) -> None:
    path = tmp_path / "q.csv"
    path.write_text("\n".join(["metric,base,candidate", *rows]) + "\n")
    found = quality.judge(
        quality.read(path), gate.read(None).rules, {"low": p99[0], "high": p99[1]}
    )
    assert found["joint"] == joint


@pytest.mark.parametrize(
    "content", ["", "a,b\n1,2\n", "metric,base,candidate\n", "metric,base,candidate\nx,1,nan\n"]
)
def test_a_quality_table_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "q.csv"
    path.write_text(content)
    with pytest.raises(RcaError):
        quality.read(path)


def test_worse_quality_fails_the_gate_with_code_3(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    table = tmp_path / "q.csv"
    table.write_text("metric,base,candidate\nbleu,28.7,20.0\n")
    done = run(make("a"), make("b"), "--gate", "default", "--quality", table, "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert checks(found)["quality"] is False
    assert sum(not p for p in checks(found).values()) == 1


def test_markdown_tells_the_gate_first_and_names_stay_text(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    hostile = "b|<img src=x>`@me"
    done = run(
        make("a"),
        make(hostile, e2e_ms=400.0),
        "--gate",
        "default",
        "--markdown",
    )
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "## Performance gate: failed"
    assert any(line.startswith("| ✗ | `p95_ms` | ≤ 300 ms |") for line in lines)
    (named,) = [line for line in lines if line.startswith("- candidate:")]
    assert "``" in named
    assert any(line.startswith("| end to end, P95 | ") and " % [+" in line for line in lines)
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_text_of_a_comparison_without_anything_to_compare(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.txt").write_text("# TYPE up gauge\nup 1 1770000000000\n")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert "nan" not in text.terminal(found) + text.markdown(found)
    assert found["gate"] is None


def test_failures_are_one_line(make: Callable[..., Path], tmp_path: Path) -> None:
    for arguments in (
        (tmp_path / "none", make("a")),
        (make("a"), make("b"), "--gate", tmp_path / "none.toml"),
        (make("a"), make("b"), "--quality", tmp_path / "none.csv"),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("rca: ")
        assert done.stderr.count("\n") == 1
