"""What is released can be built, installed into an environment of its own, and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from test_house import ROOT, tracked


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_release_builds_installs_and_answers(tmp_path: Path) -> None:
    """From the source distribution, whose wheel is what users get."""
    source, dist, venv = (tmp_path / n for n in ("source", "dist", "venv"))
    for name in tracked("rca", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    # Without the wheel's own environment: building needs no network.
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist)
    run(*build, "--sdist", source, cwd=tmp_path)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    run(*build, "--wheel", unpacked, cwd=tmp_path)
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", venv, cwd=tmp_path)
    python, rca = venv / "bin" / "python", venv / "bin" / "rca"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())  # fmt: skip
    # The dependencies are those of this environment, after the packages that were installed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import rca; print(rca.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(venv)
    assert "analyze" in run(rca, "--help", cwd=tmp_path)
    assert "kv_pool_too_small" in run(rca, "causes", cwd=tmp_path)
    sample = ROOT / "sample_traces" / "03_batch_window_mismatch"
    run(rca, "analyze", sample, "--out", "out", "--no-trial", "--quiet", cwd=tmp_path)
    run(rca, "query", "out/case.duckdb", "SELECT * FROM verdict", cwd=tmp_path)
    assert (tmp_path / "out" / "verdict.json").is_file()


def test_licences_of_all_dependencies_are_listed_and_compatible() -> None:
    script = ROOT / "scripts" / "licences.py"
    run(sys.executable, script, "--check", cwd=ROOT)
    listed = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        assert f"| {name} | {version} |" in listed, name
