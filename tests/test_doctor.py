"""`rca doctor`: what is here, what is not, nothing secret, and an exit code only for the core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rca import doctor
from rca.commands import setup as setup_commands
from rca.errors import RcaError


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH has one folder, and no variables that rca reads."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (
        "RCA_NSYS",
        "RCA_VLLM",
        "RCA_RECIPE_PYTHON",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def examined() -> dict[str, doctor.Finding]:
    return {f.name: f for f in doctor.examine()}


def test_on_a_bare_machine_the_core_is_sound_and_the_rest_says_how_to_get_it(
    alone: Path,
) -> None:
    found = examined()
    assert doctor.broken_core(list(found.values())) == []
    assert {n for n, f in found.items() if f.core} == {"Python", "packages", "case"}
    missing = (
        "nsys",
        "promtool",
        "recipe environment",
        "vllm",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
    )
    for name in missing:
        assert found[name].status == "missing"
        assert found[name].hint
    assert "duckdb" in found["packages"].detail
    assert "free for results" in found["disk"].detail


def test_programs_are_asked_for_their_version(alone: Path) -> None:
    program(alone, "nsys", "echo 'NVIDIA Nsight Systems version 2024.1.1.59-24113'")
    program(alone, "promtool", "echo 'promtool, version 2.42.0 (branch: debian)' >&2")
    program(alone, "python", f'exec {sys.executable} "$@"')
    vllm = program(alone, "vllm", "exit 1")
    found = examined()
    assert found["vllm"].detail == str(vllm)
    assert found["nsys"].detail.startswith("2024.1.1.59 at ")
    assert found["promtool"].detail.startswith("2.42.0 at ")
    assert str(alone / "python") in found["recipe environment"].detail


def test_the_environment_of_recipes_is_found_where_a_variable_says(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = program(
        tmp_path,
        "python3.11",
        'case "$*" in *find_spec*) echo lacks;; *) echo Python 3.11.9;; esac',
    )
    monkeypatch.setenv("RCA_RECIPE_PYTHON", str(other))
    found = examined()["recipe environment"]
    assert (found.status, found.detail) == ("found", f"Python 3.11.9 at {other}")
    program(tmp_path, "python3.11", "echo lacks pandas asyncore")
    found = examined()["recipe environment"]
    assert (found.status, found.detail) == (
        "missing", f"{other}: lacks pandas, asyncore, which recipes need"
    )  # fmt: skip
    assert "pip install" in (found.hint or "")


def test_programs_that_do_not_work_are_broken(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(alone, "nsys", "echo 'error while loading shared libraries'; exit 127")
    program(alone, "promtool", "exit 1")
    program(alone, "python", "exit 1")
    found = examined()
    for name in ("nsys", "promtool", "recipe environment"):
        assert found[name].status == "broken"
    monkeypatch.setenv("RCA_NSYS", "/no/such/nsys")
    assert "/no/such/nsys" in examined()["nsys"].detail


def test_secrets_are_never_shown(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:hidden@example.com:8443/v1?token=hushed")
    told = repr(doctor.examine())
    assert "https://example.com:8443/v1" in told
    for secret in ("sk-very-secret", "hidden", "hushed"):
        assert secret not in told
    monkeypatch.setenv("OPENAI_BASE_URL", "hidden-words")
    found = examined()["OPENAI_BASE_URL"]
    assert found.status == "broken"
    assert "hidden" not in repr(found)


def test_a_missing_package_of_the_core_is_the_only_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_CORE", ("duckdb", "no-such-package-here"))
    with pytest.raises(RcaError, match="nothing works without: packages"):
        setup_commands.doctor()
    assert "without no-such-package-here" in capsys.readouterr().out


def test_little_space_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LITTLE_DISK", 10**18)
    monkeypatch.setattr(doctor, "_LITTLE_MEMORY", 10**18)
    found = examined()
    assert (found["disk"].status, found["memory"].status) == ("low", "low")
    assert found["disk"].hint
    assert found["memory"].hint


def test_json_is_what_python_returns() -> None:
    environment = {**os.environ, "OPENAI_API_KEY": "sk-very-secret"}
    done = subprocess.run(
        [sys.executable, "-m", "rca.cli", "doctor", "--json"],
        capture_output=True, text=True, env=environment, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {r["name"]: r["status"] for r in rows}["OPENAI_API_KEY"] == "found"
    assert set(rows[0]) == set(doctor.Finding._fields)
    assert "sk-very-secret" not in done.stdout
