"""Programs are started with few variables, no input, limits of time and memory, and end with their children."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rca import nsys, programs
from rca.nsys import recipe as nsys_recipe
from rca.parsers import torch_profiler_half, tsdb_block
from rca.parsers.torch_profiler_half import SecondHalf

_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such limit")


def _python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a variable that no program is to see."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("TMPDIR", os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 - it stays as it is
    return "OPENAI_API_KEY"


def test_a_program_sees_few_variables_and_no_input(secret: str) -> None:
    told = programs.run(
        _python("import os, sys; print(sorted(os.environ), repr(sys.stdin.read()))"),
        more={"RCA_X": "1"}, timeout_s=60,
    )  # fmt: skip
    said = told.out.decode()
    assert told.code == 0
    assert secret not in said
    assert "'PATH'" in said and "'RCA_X'" in said and "'TMPDIR'" in said
    assert said.rstrip().endswith("''")


def test_no_shell_sees_the_arguments() -> None:
    words = "; rm -rf $HOME `x` \n*"
    said = programs.run(_python("import sys; print(repr(sys.argv[1:]))", words), timeout_s=60)
    assert said.out.decode().strip() == repr([words])


@_LINUX
def test_memory_is_limited_also_for_what_it_starts() -> None:
    grab = (
        "import time\ntime.sleep(0.5)\n"  # the limit is set from outside, just after the start
        "try:\n  bytearray(700 << 20); print('had it')\nexcept MemoryError: print('refused')\n"
    )
    child = f"import subprocess, sys, time\ntime.sleep(0.5)\nsubprocess.run([sys.executable, '-c', {grab!r}])"
    for code in (grab, child):
        told = programs.run(_python(code), timeout_s=60, memory_bytes=300 << 20)
        assert told.out.decode().strip() == "refused"
    free = programs.run(_python(grab), timeout_s=60, memory_bytes=2 << 30)
    assert free.out.decode().strip() == "had it"


@_LINUX
def test_reserved_address_space_is_not_counted() -> None:
    code = "import mmap; m = mmap.mmap(-1, 1 << 36, mmap.MAP_PRIVATE, mmap.PROT_READ); print('reserved')"
    told = programs.run(_python(code), timeout_s=60, memory_bytes=300 << 20)
    assert told.out.decode().strip() == "reserved"


def test_the_group_ends_with_the_time(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    child = f"import time; time.sleep(2); open({str(marker)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(_python(code), timeout_s=1)
    assert time.monotonic() - begun < 20
    time.sleep(3)
    assert not marker.exists()


def _tell(path: Path, then: str = "") -> Path:
    """A program that writes the names of its variables beside itself."""
    path.write_text(
        f"#!{sys.executable}\nimport os, sys, pathlib\n"
        f"pathlib.Path({str(path.parent / 'seen')!r}).write_text(repr(sorted(os.environ)) + sys.stdin.read())\n{then}"
    )
    path.chmod(0o755)
    return path


def test_nsys_recipes_and_promtool_see_no_secret(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(nsys.REPORT_MAGIC)
    seen = tmp_path / "seen"
    program = _tell(tmp_path / "nsys", "print('Nsight Systems version 2023.4.4')")
    assert nsys.version(program) == "2023.4.4"
    assert secret not in seen.read_text() and "PATH" in seen.read_text()
    seen.unlink()
    with nsys_recipe.session([report], program) as lent, pytest.raises(nsys.NsysError):
        lent.run("gpu_gaps")
    assert secret not in seen.read_text()
    seen.unlink()
    block = tmp_path / "block"
    block.mkdir()
    tsdb_block._dump(
        str(_tell(tmp_path / "promtool")), block, tmp_path / "data", tmp_path / "dump", block
    )
    assert secret not in seen.read_text()


def test_a_second_half_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_profiler_half, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(torch_profiler_half.sys, "executable", str(_tell(tmp_path / "python", "import time; time.sleep(60)")))  # fmt: skip
    path = tmp_path / "x.json"
    path.write_bytes(b"[]")
    begun = time.monotonic()
    with SecondHalf(path, 0, 0) as second:
        assert second.result() is None
        process = second._process
    assert time.monotonic() - begun < 20
    assert process.returncode is not None
