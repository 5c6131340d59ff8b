"""`rca init`: a bundle.toml that rca reads, and what a folder has and lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from jaeger_builder import traced

from rca import bundle_init, pipeline
from rca.answer import summary
from rca.catalogue import load
from rca.errors import BundleError
from rca.window import objective

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "02_kv_pool_too_small"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    target = tmp_path / "bundle"
    shutil.copytree(SAMPLE, target)
    return target


def missing(folder: Path) -> dict[str, list[str]]:
    return {row["name"]: row["causes"] for row in bundle_init.look(folder)["missing"]}


def test_what_is_there_and_what_is_not(bundle: Path) -> None:
    found = bundle_init.look(bundle)
    assert found["service"] == "llm-engine"
    kinds = {(r["part"], r["kind"]) for r in found["recorded"]}
    assert {("incident", "trace"), ("baseline", "metrics"), ("incident", "change")} <= kinds
    assert set(missing(bundle)) == {"metrics of GPUs", "logs"}


def test_a_recording_taken_away_is_missing_and_says_what_it_would_decide(bundle: Path) -> None:
    for path in (*bundle.glob("*/metrics.json.gz"), *bundle.glob("incident/changes.jsonl")):
        path.unlink()
    shutil.rmtree(bundle / "baseline")
    found = missing(bundle)
    assert {"metrics of the engine", "changes", "baseline"} <= set(found)
    assert "kv_pool_too_small" in found["metrics of the engine"]
    with pipeline.read([bundle]) as case:
        seen = {r for (r,) in case.rows("SELECT DISTINCT role FROM signal_value")}
    causes = load()
    for one in bundle_init.recordings():
        for cause in found.get(one.name, []):
            assert causes[cause].requires & one.roles
            assert not causes[cause].requires & seen


def test_metrics_alone_lack_traces_although_they_share_roles(
    bundle: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(bundle / "incident" / "metrics.json.gz", alone)
    found = missing(alone)
    assert {"request traces", "profile", "logs", "configuration"} <= set(found)
    assert "metrics of the engine" not in found


def test_roles_are_listed_with_the_recordings_that_carry_them() -> None:
    named = {
        "metrics": ("metrics of the engine", "metrics of containers and hosts", "metrics of GPUs"),
        "trace": ("request traces",),
        "torch_profiler": ("profile",),
    }  # fmt: skip
    carried = {one.name: one.roles for one in bundle_init.recordings()}
    known = frozenset().union(*(c.requires for c in load().values()))
    with pipeline.read([SAMPLE]) as case:
        rows = case.rows("SELECT DISTINCT source, role FROM signal_value")
    seen = {(source, role) for source, role in rows if role in known}
    assert len(seen) > 15
    gateway = {"gateway_latency", "arrival_rate", "error_rate", "process_cpu", "process_age"}
    gateway |= {"cache_hit_rate", "response_bytes"}
    gateway |= {r for _, r in seen if r.startswith(("downstream_", "gc_", "pool_"))}
    for source, role in seen - {("metrics", role) for role in gateway}:
        assert any(role in carried[name] for name in named[source]), (source, role)


def test_the_file_is_read_by_analyze_and_its_examples_are_valid(tmp_path: Path) -> None:
    bundle = traced(tmp_path, n=50)
    bundle_init.write(bundle)
    text = (bundle / "bundle.toml").read_text()
    assert '\n# service = "vllm"\n' in text, "a guess: analyze goes by what moved"
    lines = [
        line.removeprefix("# ") if line.startswith(("# [", "# service", "# start", "# end", "# e2e", "# ttft", "# error")) else line
        for line in text.splitlines()
    ]  # fmt: skip
    lines = ['servise = "vllm"', *lines]
    (bundle / "bundle.toml").write_text("\n".join(lines) + "\n")
    assert objective.read(tomllib.loads("\n".join(lines))["slo"])[1] == []
    options = pipeline.Options(trial_budget_s=None)
    with pipeline.analyze([bundle], options=options) as case:
        by, slo = case.rows("SELECT detected_by, slo FROM incident_window")[0]
        assert by == "hint"
        assert slo is None, "objectives that were kept are not called broken"
        assert case.scalar("SELECT value FROM provenance WHERE key = 'service'") == "vllm"
        assert "bundle.toml: servise is not read: is it service?" in [
            str(line).strip() for line in summary.lines(case, None)
        ]


def test_nothing_is_overwritten(bundle: Path) -> None:
    (bundle / "bundle.toml").write_text("title = 'mine'\n")
    with pytest.raises(BundleError, match="is there already"):
        bundle_init.write(bundle)
    assert (bundle / "bundle.toml").read_text() == "title = 'mine'\n"


def test_an_empty_folder_lacks_everything(tmp_path: Path) -> None:
    found = bundle_init.write(tmp_path)
    assert found["recorded"] == []
    assert len(found["missing"]) == len(bundle_init.recordings()) + 3
    assert tomllib.loads((tmp_path / "bundle.toml").read_text()) == {"title": ""}


def test_a_hostile_service_stays_a_string(tmp_path: Path) -> None:
    name = 'x"\n[incident]\nstart = 1\x1b\u202e\U0001f600\x7f\\'
    spans = {
        "resourceSpans": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": name}}]},
            "scopeSpans": [{"spans": [{
                "traceId": "1" * 32, "spanId": "2" * 16, "name": "llm_request", "kind": 2,
                "startTimeUnixNano": "1770000000000000000", "endTimeUnixNano": "1770000001000000000",
            }]}],
        }]
    }  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps(spans))
    bundle_init.write(tmp_path)
    text = (tmp_path / "bundle.toml").read_text()
    assert tomllib.loads(text) == {"title": ""}
    table = tomllib.loads(text.replace("# service", "service"))
    assert set(table) == {"title", "service"}
    assert table["service"].startswith('x"\\n[incident]')
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_command(tmp_path: Path) -> None:
    bundle = traced(tmp_path / "bundle", n=50)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rca.cli", "init", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    done = run(bundle)
    assert done.returncode == 0, done.stderr
    assert "missing  metrics of GPUs" in done.stdout
    assert "would decide on" in done.stdout
    (bundle / "bundle.toml").unlink()
    assert json.loads(run(bundle, "--json").stdout)["service"] == "vllm"
    (tmp_path / "f").write_text("")
    for wrong in (bundle, tmp_path / "none", tmp_path / "f"):
        done = run(wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
