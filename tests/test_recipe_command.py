"""`rca recipe` as a person meets it: what reaches nsys, what is printed, how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rca import nsys

_SCRIPT = f"""#!{sys.executable}
import pathlib, sys
output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
output.mkdir()
(output / "stats.parquet").write_text("\\n".join(sys.argv[1:]))
(output / "stats.csv").write_text("a")
"""


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "RCA_NSYS": "",
        "RCA_RECIPE_PYTHON": "",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "rca.cli", "recipe", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=120, cwd=cwd, env=environment,
    )  # fmt: skip


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(nsys.REPORT_MAGIC + b"2023@4@4@54-234433681190v0.\n")
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "nsys"
    path.write_text(_SCRIPT)
    path.chmod(0o755)
    return path


def test_files_are_printed_and_words_after_dashes_reach_the_recipe(
    report: Path, program: Path, tmp_path: Path
) -> None:
    done = run(
        "cuda_gpu_kern_sum", report, "--nsys", program, "--out", "o", "--", "--mangled", "--out",
        "x", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["o/stats.csv", "o/stats.parquet"]
    told = (tmp_path / "o" / "stats.parquet").read_text().splitlines()
    assert told[:2] == ["recipe", "cuda_gpu_kern_sum"]
    assert told[4:7] == ["--mangled", "--out", "x"]


def test_the_mode_reaches_the_recipe(report: Path, program: Path, tmp_path: Path) -> None:
    given = ("gpu_gaps", report, "--nsys", program, "--out", "o", "--mode")
    assert run(*given, "dask-futures", cwd=tmp_path).returncode == 0
    told = (tmp_path / "o" / "stats.parquet").read_text().splitlines()
    assert told[4:6] == ["--mode", "dask-futures"]
    assert run(*given, "threads", cwd=tmp_path).returncode == 2


def test_json_lists_the_files_below_a_folder_of_the_recipes_name(
    report: Path, program: Path, tmp_path: Path
) -> None:
    done = run("gpu_gaps", report, report, "--nsys", program, "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == ["gpu_gaps/stats.csv", "gpu_gaps/stats.parquet"]


def test_failures_are_one_line(report: Path, program: Path, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking"
    lacking.write_text("#!/bin/sh\necho \"ERROR: No module named 'pandas'\"\n")
    lacking.chmod(0o755)
    for arguments, words in (
        (("gpu_gaps", report, "--nsys", tmp_path / "none"), "is not a program"),
        (("gpu_gaps", tmp_path / "none", "--nsys", program), "cannot be read"),
        (("../gaps", report, "--nsys", program), "no name of a recipe"),
        (("gpu_gaps", report, "--nsys", lacking), "'pandas'; see: rca doctor"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert run("gpu_gaps", cwd=tmp_path).returncode == 2
