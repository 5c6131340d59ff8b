"""A disk that is full or read-only: one line, nothing half-written under its name, and a rerun completes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from measured import rca
from test_faults import SAMPLE

from rca.case import Case

Remount = Callable[[str], None]
COMMANDS = {  # and a size in kB that is too small
    "ingest": (("ingest", "{bundle}", "--out", "{disk}/case.duckdb", "-q"), 600),
    "analyze": (("analyze", "{bundle}", "--out", "{disk}/out", "--no-trial", "-q"), 3500),
    "fleet": (
        ("fleet", "ingest", "{bundle}", "--out", "{disk}/shards", "--workers", "1", "--no-dask", "-q"),
        64,
    ),
    "report": (("report", "{case}", "--out", "{disk}/out"), 64),
    "timeline": (("timeline", "{case}", "--out", "{disk}/trace.json.gz"), 8),
}  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Remount]]:
    """A small disk, and a way to mount it with other options."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("needs root, to mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)

    yield place, remount
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metrics, changes and configuration of an incident, without profiles and traces."""
    folder = tmp_path_factory.mktemp("light") / "bundle"
    return Path(shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("*trace*")))


@pytest.fixture(scope="module")
def case(bundle: Path) -> Path:
    done = rca("analyze", bundle, "--out", bundle.parent / "out", "--no-trial", "-q")
    assert done.code == 0, done.err
    return bundle.parent / "out" / "case.duckdb"


def given(name: str, **places: Path) -> list[str]:
    return [argument.format(**places) for argument in COMMANDS[name][0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full(
    name: str, disk: tuple[Path, Remount], bundle: Path, case: Path
) -> None:
    place, remount = disk
    command = given(name, disk=place, bundle=bundle, case=case)
    remount(f"size={COMMANDS[name][1]}k")
    done = rca(*command)
    assert done.code == 1, done.out
    (line,) = done.err.strip().splitlines()
    assert "No space left" in line, line
    written = {p.name for p in place.rglob("*") if p.is_file()}
    assert not written & {"verdict.json", "report.html", "trace.json.gz"}
    assert not [n for n in written if n.endswith(".half")]
    remount("size=100m")
    resumed = rca(*command, *(["--resume"] if name == "analyze" else []))
    assert resumed.code == 0, resumed.err
    if name in ("ingest", "analyze"):
        (made,) = place.rglob("case.duckdb")
        with Case.open(made) as read, Case.open(case) as whole:
            for table in ("source", "series", "sample", "change", "config"):
                n = f"SELECT count(*) FROM {table}"
                assert read.scalar(n) == whole.scalar(n), table


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_read_only(
    name: str, disk: tuple[Path, Remount], bundle: Path, case: Path
) -> None:
    place, remount = disk
    remount("ro")
    done = rca(*given(name, disk=place, bundle=bundle, case=case))
    assert done.code == 1, done.out
    (line,) = done.err.strip().splitlines()
    assert str(place) in line
    assert "read-only" in line.lower(), line
