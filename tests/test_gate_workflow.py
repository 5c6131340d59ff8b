"""The workflow in the documents: valid, and its step that compares does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jaeger_builder import traced

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def steps() -> dict[str, dict[str, Any]]:
    text = (ROOT / "docs" / "gate-workflow.yml").read_text(encoding="utf-8")
    table = yaml.safe_load(text)
    assert "pull_request" in table[True]  # YAML reads the word on as true
    assert table["permissions"] == {"contents": "read"}
    return {s.get("name", s.get("uses")): s for s in table["jobs"]["gate"]["steps"]}


def test_every_script_is_one_that_its_shell_takes(steps: dict[str, dict[str, Any]]) -> None:
    scripts = [step["run"] for step in steps.values() if "run" in step]
    assert len(scripts) == 4
    for script in scripts:
        done = subprocess.run(
            ["bash", "-n"], input=script, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        # What others wrote must not become part of a script.
        assert "${{" not in script


@pytest.mark.parametrize(
    ("e2e_ms", "code", "word"), [(100.0, 0, "passed"), (400.0, 3, "failed")]
)
def test_the_gate_decides_on_the_recordings(
    steps: dict[str, dict[str, Any]], tmp_path: Path, e2e_ms: float, code: int, word: str
) -> None:
    traced(tmp_path / "recording" / "base")
    traced(tmp_path / "recording" / "candidate", e2e_ms=e2e_ms, seed=1)
    tree = tmp_path / "tree" / "candidate"
    tree.mkdir(parents=True)
    (tree / "gate.toml").write_text((ROOT / "rca" / "compare" / "gate.toml").read_text())
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rca").write_text(f'#!/bin/sh\nexec {sys.executable} -m rca.cli "$@"\n')
    (programs / "rca").chmod(0o755)
    shown = tmp_path / "shown.md"
    environment = {
        **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(shown),
    }  # fmt: skip
    done = {}
    for name in ("Compare", "Show"):
        done[name] = subprocess.run(
            ["bash", "-e", "-c", steps[name]["run"]], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False, timeout=120,
        ).returncode  # fmt: skip
    assert done == {"Compare": code, "Show": 0}
    assert shown.read_text().startswith(f"## Performance gate: {word}")
