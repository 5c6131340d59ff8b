"""Driving the nsys program: stand-ins that behave as badly as the real one does, and the real one."""

from __future__ import annotations

import gzip
import sys
import time
from pathlib import Path

import gpu_recordings as recordings
import pytest

from rca import nsys
from rca.errors import NsysError, ParseError
from rca.nsys import recipe as nsys_recipe
from rca.parsers import recognise
from rca.parsers.stream import read_head

REPORT = nsys.REPORT_MAGIC + b"2023@4@4@54-234433681190v0.\n"
ORACLE = {r["name"]: r for r in recordings.oracle("nsys")}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "bundle" / "run; rm -rf x.nsys-rep"
    path.parent.mkdir()
    path.write_bytes(REPORT)
    return path


def program(tmp_path: Path, script: str) -> Path:
    """A stand-in for nsys: a Python program with `argv` and `output` (what --output says)."""
    path = tmp_path / "nsys"
    path.write_text(
        f"#!{sys.executable}\nimport os, sys, pathlib\nargv = sys.argv[1:]\n"
        "output = pathlib.Path(argv[argv.index('--output') + 1]) if '--output' in argv else None\n"
        + script
    )
    path.chmod(0o755)
    return path


def test_the_program_is_the_argument_the_variable_or_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = program(
        tmp_path, "print('NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0')"
    )
    assert nsys.version(found) == "2023.4.4.54"
    monkeypatch.delenv(nsys.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nsys.find() == found
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(nsys.VARIABLE, str(found))
    assert nsys.find() == found
    with pytest.raises(NsysError, match="is not a program"):
        nsys.find(tmp_path / "nothing")


def test_without_the_program_one_line_says_what_to_do(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(nsys.VARIABLE, raising=False)
    with pytest.raises(NsysError) as error:
        recognise(read_head(report)).read(report, recordings.MemorySink())
    assert "nsys export --type sqlite" in str(error.value)
    assert str(report) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_report_is_exported_away_from_the_bundle_and_read(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
import sqlite3
assert argv[:3] == ['export', '--type', 'sqlite'] and '--force-overwrite' in argv, argv
assert os.getcwd() == str(output.parent) and sys.stdin.read() == ''
link = pathlib.Path(argv[-1])
assert link.parent == output.parent and link.read_bytes().startswith(b'NVIDIA'), argv
link.with_suffix('.extra').write_text('nsys writes beside its input')
db = sqlite3.connect(output)
db.executescript('CREATE TABLE OSRT_API (start INTEGER, "end" INTEGER); INSERT INTO OSRT_API VALUES (1, 2)')
db.close()
"""
    monkeypatch.setenv(nsys.VARIABLE, str(program(tmp_path, script)))
    sink = recordings.MemorySink()
    recognise(read_head(report)).read(report, sink)
    assert [row["kind"] for row in sink.tables["cpu_op"]] == ["osrt"]
    assert "exported" in sink.codes
    assert list(report.parent.iterdir()) == [report]


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("sys.exit(0)", "made nothing of it"),
        (
            "print('Importer error status: An unknown error occurred.')",
            "unknown error occurred",
        ),
        ("output.touch()", "made nothing of it"),
        (
            "print('Report was created in Nsight Systems version (2025.5.2.266-255236693005v0), newer than')",
            r"recorded by Nsight Systems 2025\.5\.2\.266, which is newer .*nsys export --type sqlite",
        ),
        ("os.write(1, b'\\xff\\xfe failed'); sys.exit(1)", "failed"),
    ],
)
def test_the_exit_code_is_not_trusted(
    script: str, match: str, report: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(NsysError, match=match),
        nsys.exported(report, program(tmp_path, script)),
    ):
        pass


def test_a_program_that_hangs_is_ended_with_its_children(report: Path, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"import subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep 2; touch {marker}'])\ntime.sleep(60)"
    begun = time.monotonic()
    with (
        pytest.raises(NsysError, match="did not end within 1 s"),
        nsys.exported(report, program(tmp_path, script), timeout_s=1),
    ):
        pass
    assert time.monotonic() - begun < 10
    time.sleep(2)
    assert not marker.exists()


def test_a_recipe_without_csv_is_tried_without(report: Path, tmp_path: Path) -> None:
    script = """
if '--csv' in argv:
    print('error: unrecognized arguments: --csv')
else:
    output.mkdir()
    (output / 'analysis.parquet').write_text(' '.join(argv))
"""
    made = nsys_recipe.run(
        "nvtx_pace", [report], tmp_path / "out", program=program(tmp_path, script)
    )
    assert made == [tmp_path / "out" / "analysis.parquet"]
    assert made[0].read_text().startswith("recipe nvtx_pace --input")
    assert list(report.parent.iterdir()) == [report]


def test_a_recipe_that_gives_nothing_is_an_error(report: Path, tmp_path: Path) -> None:
    quiet = program(tmp_path, "print('INFO: No output generated.')")
    with pytest.raises(NsysError, match=r"gpu_gaps gave no result.*No output generated"):
        nsys_recipe.run("gpu_gaps", [report], tmp_path / "out", program=quiet)
    with pytest.raises(NsysError, match="no name of a recipe"):
        nsys_recipe.run("../x", [report], tmp_path / "out", program=quiet)
    other = tmp_path / "x.sqlite"
    other.write_bytes(b"SQLite format 3\0")
    with pytest.raises(NsysError, match="is no report"):
        nsys_recipe.run("gpu_gaps", [other], tmp_path / "out", program=quiet)


@pytest.fixture
def real_nsys() -> Path:
    return recordings.need_nsys()


REPORTS = [n for n in ORACLE if not n.endswith(".sqlite")]


@pytest.mark.parametrize("name", REPORTS or ["none"])
def test_the_real_program_exports_the_reports(
    name: str, conformance: Path, real_nsys: Path
) -> None:
    case = recordings.read(conformance / "nsys" / name)
    expected = ORACLE[name]
    found = recordings.row(case, """
        SELECT n_kernel, n_memcpy, n_memset, kernel_sum_ns, b.first_ns - s.base_ns AS first_op_ns,
            b.last_ns - s.base_ns AS last_op_ns, s.base_ns AS utc_start_ns
        FROM gpu_breakdown AS b JOIN source AS s ON s.id = b.source_id WHERE device IS NULL""")  # fmt: skip
    assert {k: recordings.cell(v) for k, v in found.items()} == {
        k: "0" if expected[k] == "-" else expected[k] for k in found
    }
    assert real_nsys.exists()


def test_a_report_of_a_newer_version_is_said_to_be_so(
    conformance: Path, real_nsys: Path
) -> None:
    path = conformance / "nsys" / "rtx3060_report1.nsys-rep"
    if not nsys.version(real_nsys).startswith(("2022", "2023", "2024")):
        pytest.skip("this nsys may read it")
    with (
        pytest.raises(NsysError, match=r"recorded by Nsight Systems 2025\.5\.2\.266"),
        nsys.exported(path),
    ):
        pass


@pytest.mark.slow
def test_the_real_program_runs_a_recipe(
    conformance: Path, real_nsys: Path, tmp_path: Path
) -> None:
    try:
        python = nsys_recipe.find_python()
    except NsysError as error:
        pytest.skip(str(error))
    made = nsys_recipe.run(
        "cuda_gpu_kern_sum", [conformance / "nsys" / "a100_llm_report1.nsys-rep"], tmp_path / "out",
        program=real_nsys, python=python, arguments=["--mode", "none"],
    )  # fmt: skip
    assert "all_stats.csv" in [p.name for p in made]


def test_a_compressed_report_that_is_cut_is_given_to_nsys(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end may be all that is missing; else both reasons are told."""
    packed = gzip.compress(REPORT)
    report.write_bytes(packed[:-4])
    script = """
import sqlite3
db = sqlite3.connect(output)
db.executescript('CREATE TABLE OSRT_API (start INTEGER, "end" INTEGER); INSERT INTO OSRT_API VALUES (1, 2)')
db.close()
"""
    monkeypatch.setenv(nsys.VARIABLE, str(program(tmp_path, script)))
    sink = recordings.MemorySink()
    recognise(read_head(report)).read(report, sink)
    assert sink.lost and sink.codes["truncated"] == 1
    monkeypatch.setenv(nsys.VARIABLE, str(program(tmp_path, "print('magic number mismatch')")))
    with pytest.raises(
        ParseError, match="gzip data is cut short; nsys made nothing of it: magic"
    ):
        recognise(read_head(report)).read(report, recordings.MemorySink())
