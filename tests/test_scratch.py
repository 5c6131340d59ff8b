"""Folders for the time of a run: gone in the end, and after a kill with the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rca import scratch

_WORKS = """
import sys, time
from rca import scratch
with scratch.folder() as folder:
    (folder / "part").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._remove_abandoned.cache_clear()
    return tmp_path


@contextmanager
def _at_work(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process in a folder of its own, which is as old as an hour."""
    running = subprocess.Popen(
        [sys.executable, "-c", _WORKS], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip())
        _age(folder)
        yield running, folder
    finally:
        running.kill()
        running.communicate()


def _age(path: Path) -> None:
    os.utime(path, (1e9, 1e9), follow_symlinks=False)


def test_a_folder_goes_with_its_block(place: Path) -> None:
    with scratch.folder() as folder:
        (folder / "a" / "b").mkdir(parents=True)
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_run(place: Path) -> None:
    with _at_work(place) as (running, left):
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert (left / "part").exists()
        with scratch.folder() as folder:
            assert list(place.iterdir()) == [folder]


def test_the_folder_of_a_process_at_work_stays(place: Path) -> None:
    with _at_work(place) as (_, other):
        with scratch.folder():
            pass
        assert (other / "part").exists()


def test_what_is_new_or_not_ours_stays(place: Path) -> None:
    new, file, other = (place / f"{scratch.PREFIX}{name}" for name in ("new", "file", "link"))
    target, foreign = place / "target", place / "rca-other"
    for folder in (new, target, foreign):
        folder.mkdir()
    file.write_text("")
    other.symlink_to(target)
    for path in (file, other, target, foreign):
        _age(path)
    with scratch.folder():
        pass
    assert {p.name for p in place.iterdir()} == {
        p.name for p in (new, file, other, target, foreign)
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_stays(place: Path) -> None:
    other = place / f"{scratch.PREFIX}other"
    other.mkdir()
    os.chown(other, 12345, -1)
    _age(other)
    with scratch.folder():
        pass
    assert other.exists()
