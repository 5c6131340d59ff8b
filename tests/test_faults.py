"""Ctrl-C, a full disk, a second process, odd environments: one clear line, and nothing is lost."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from measured import rca
from test_ingest_safety import bundle, contents  # noqa: F401 - the fixture

from rca.case import Case
from rca.durable import write_whole
from rca.errors import CaseError

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces" / "03_batch_window_mismatch"
_INTERRUPTED = """
import os, signal, sys
from rca import ingest
real = ingest.ingest_file
def second(case, file, number=None):
    if case.scalar("SELECT count(*) FROM source"):
        os.kill(os.getpid(), signal.SIGINT)
    real(case, file, number)
ingest.ingest_file = second
from rca.cli import main
main()
"""


@pytest.mark.slow
def test_ctrl_c_leaves_a_case_to_go_on_with(bundle: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    command = ["analyze", str(bundle), "--out", str(out), "--no-trial", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("rca: interrupted;") and "--resume" in line
    with Case.open(out / "case.duckdb") as case:
        first = case.rows("SELECT id, path FROM source")
        assert len(first) == 1
    assert not (out / "verdict.json").exists()
    assert rca(*command, "--resume").code == 0
    with Case.open(out / "case.duckdb") as case:
        assert case.rows("SELECT id, path FROM source WHERE id = 1") == first
    resumed = contents(out / "case.duckdb")
    assert (
        rca("analyze", bundle, "--out", tmp_path / "whole", "--no-trial", "--quiet").code == 0
    )
    assert resumed == contents(tmp_path / "whole" / "case.duckdb")
    assert (out / "verdict.json").read_bytes() == (tmp_path / "whole/verdict.json").read_bytes()


def test_another_bundle_is_not_mixed_in(bundle: Path, tmp_path: Path) -> None:  # noqa: F811
    assert rca("ingest", bundle / "rank0.json", "--out", tmp_path / "case.duckdb").code == 0
    done = rca("analyze", bundle / "metrics.txt", "--out", tmp_path, "--resume", "--no-trial")
    assert done.code == 1
    assert "which this bundle does not; leave out --resume" in done.err


def test_two_processes_on_one_case_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "out" / "case.duckdb"
    hold = "import sys, time; from pathlib import Path; from rca.case import Case\n"
    hold += "case = Case.create(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout and holder.stdout.readline() == b"held\n"
            for command in (
                ("analyze", SAMPLE, "--out", path.parent, "--no-trial"),
                ("ingest", SAMPLE, "--out", path),
                ("query", path, "SELECT 1"),
            ):
                done = rca(*command)
                assert done.code == 1
                assert "is in use by another process" in done.err
                assert len(done.err.strip().splitlines()) == 1
        finally:
            holder.kill()
    with Case.open(path) as case:
        assert case.scalar("SELECT count(*) FROM source") == 0


def test_a_full_disk_is_one_line_and_the_case_still_opens(bundle: Path, tmp_path: Path) -> None:  # noqa: F811
    """The limit on the size of files stands for the disk: writing beyond it fails in the same way."""
    path = tmp_path / "case.duckdb"
    limited = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))\n"
    limited += "from rca.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", limited, "ingest", str(bundle), "--out", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("rca: ")
    with Case.open(path) as case:  # with each source whole or absent
        n = case.scalar("SELECT count(*) FROM source")
        assert n < 3
    assert rca("ingest", bundle, "--out", path).code == 0
    with Case.open(path) as case:
        assert case.scalar("SELECT count(*) FROM source") == 3


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_what_a_killed_process_left_of_a_file_is_removed_and_what_is_written_now_stays(
    tmp_path: Path,
) -> None:
    (tmp_path / ".a.txt.1.half").write_text("by a process that was killed")
    (tmp_path / ".ab.txt.1.half").write_text("of another file")
    with (tmp_path / ".a.txt.2.half").open("w") as written:
        fcntl.flock(written, fcntl.LOCK_SH)
        write_whole(tmp_path / "a.txt", "new")
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == [".a.txt.2.half", ".ab.txt.1.half", "a.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    done = rca("analyze", SAMPLE, "--out", tmp_path / "out" / "x", "--no-trial")
    assert done.code == 1
    assert str(tmp_path / "out") in done.err


def test_an_output_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    done = rca("analyze", SAMPLE, "--out", tmp_path / "out", "--no-trial")
    assert done.code == 1
    assert str(tmp_path / "out") in done.err


@pytest.mark.slow
def test_the_answer_does_not_depend_on_the_environment(tmp_path: Path) -> None:
    """Time zone, language, home and cache folders change no byte."""
    odd = {
        "TZ": "Asia/Kolkata", "LC_ALL": "tr_TR.UTF-8", "LANG": "C", "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/proc/none", "PYTHONHASHSEED": "7", "COLUMNS": "20",
    }  # fmt: skip
    for name, environment in (("usual", {}), ("odd", odd)):
        done = rca(
            "analyze", SAMPLE, "--out", tmp_path / name, "--no-trial", "-q", **environment
        )
        assert done.code == 0, done.err
    for file in ("verdict.json", "postmortem.md"):
        usual, there = tmp_path / "usual" / file, tmp_path / "odd" / file
        assert usual.read_bytes() == there.read_bytes(), file


def test_reading_alone_has_the_limits_of_an_analysis(tmp_path: Path) -> None:
    done = rca("ingest", SAMPLE, "--out", tmp_path / "c.duckdb", "-q", "--memory", "a lot")
    assert done.code == 1
    assert done.err.startswith("rca: 'a lot' is no amount for --memory;")
    done = rca("ingest", SAMPLE, "--out", tmp_path / "c.duckdb", "-q", "--memory", "100MB")
    assert done.code == 0, done.err
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("trace.json", b" " * 2_000_000)
    done = rca("ingest", packed, "--out", tmp_path / "d.duckdb", "-q", "--max-unpacked", "1MB")
    assert done.code == 1
    assert "raise --max-unpacked" in done.err


@pytest.mark.slow
def test_a_little_memory_is_enough(tmp_path: Path) -> None:
    done = rca("analyze", SAMPLE, "--out", tmp_path, "--no-trial", "-q", "--memory", "300MB")
    assert done.code == 0, done.err
    assert not list(tmp_path.glob("*.tmp"))


def test_a_case_held_by_this_process_can_be_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    with Case.create(path):
        pass
    with Case.create(path) as case:
        assert case.scalar("SELECT count(*) FROM source") == 0
    with pytest.raises(CaseError):
        Case.open(tmp_path / "none.duckdb")
