"""The command line as a person meets it: exit codes, one line for a failure, nothing else on stdout."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import case_builder
import pytest

from rca.case import Case

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces" / "02_kv_pool_too_small"


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "RCA_NSYS": ""}
    environment["PATH"] = os.pathsep.join(
        p for p in environment["PATH"].split(os.pathsep) if not (Path(p) / "nsys").exists()
    )
    return subprocess.run(
        [sys.executable, "-m", "rca.cli", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env=environment, check=False, timeout=120,
    )  # fmt: skip


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an expected failure."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("rca: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def analysed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("out")
    return out, run("analyze", SAMPLE, "--no-trial", "--out", out)


def test_analyze_prints_the_answer_and_where_it_is(
    analysed: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = analysed
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "kv_pool_too_small" in done.stdout
    assert "\x1b" not in done.stdout
    names = {p.name for p in out.iterdir()}
    assert {
        "postmortem.md",
        "report.html",
        "verdict.json",
        "case.duckdb",
        "charts",
        "fixes",
    } <= names


def test_json_is_what_verdict_json_says(
    analysed: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run("analyze", SAMPLE, "--no-trial", "--json", "--out", tmp_path)
    told, kept = json.loads(done.stdout), json.loads((analysed[0] / "verdict.json").read_text())
    assert told["verdict"] == kept["verdict"]
    assert told == json.loads((tmp_path / "verdict.json").read_text())


def test_quiet_is_silent_and_only_an_analysed_case_can_be_judged(tmp_path: Path) -> None:
    case = tmp_path / "c.duckdb"
    done = run("ingest", SAMPLE, "--quiet", "--out", case)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for command in ("judge", "report", "trial"):
        assert "run: rca analyze" in failed(run(command, case))


def test_report_judge_timeline_and_query_read_a_case(
    analysed: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    case = analysed[0] / "case.duckdb"
    again = run("report", case, "--out", tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "postmortem.md").read_text() == (
        analysed[0] / "postmortem.md"
    ).read_text()
    judged = run("judge", case, "--json")
    assert json.loads(judged.stdout)["verdict"]["cause"] == "kv_pool_too_small"
    drawn = run("timeline", case, "--out", tmp_path / "t.json.gz")
    assert drawn.returncode == 0, drawn.stderr
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    rows = run("query", case, "SELECT count(*) AS n FROM span", "--format", "json")
    assert json.loads(rows.stdout)[0]["n"] > 100
    assert run("query", case, "SELECT 1 AS a", "--format", "csv").stdout == "a\n1\n"


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE span",
        "COPY span TO 'x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SET enable_external_access = true",
        "ATTACH 'other.duckdb'",
        "INSTALL httpfs",
        "SELECT no_such_column FROM span",
    ],
)
def test_a_query_can_neither_write_nor_leave_the_case(
    analysed: tuple[Path, subprocess.CompletedProcess[str]], sql: str, tmp_path: Path
) -> None:
    failed(run("query", analysed[0] / "case.duckdb", sql, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_one_line_and_exit_code_1(tmp_path: Path, kineto_half: Path) -> None:
    (tmp_path / "empty").mkdir()
    text = tmp_path / "notes.txt"
    text.write_text("The pool was full again on Tuesday.\nNobody knows why.\n")
    out = ("--no-trial", "--out", tmp_path / "o")
    assert "no such file or folder" in failed(run("analyze", tmp_path / "missing", *out))
    assert "nothing to read" in failed(run("analyze", tmp_path / "empty", *out))
    assert "notes.txt" in failed(run("analyze", text, *out))
    half = tmp_path / "half.json"
    half.write_text('{"some": ["thing"')
    assert "half.json" in failed(run("analyze", half, *out))
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(NSYS_REPORT)
    assert "nsys export" in failed(run("analyze", report, *out))
    assert "is no amount" in failed(
        run("analyze", SAMPLE, "--trial-budget", "soon", "--out", tmp_path / "o")
    )


NSYS_REPORT = b"NVIDIA Tegra Profiler Report 1.\n" + bytes(4096)


@pytest.fixture
def kineto_half(tmp_path: Path) -> Path:
    path = tmp_path / "half.pt.trace.json"
    event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d.000,"dur":1.000,"args":{"stream":7,"device":0}}'
    events = ",\n".join(event % (1000 + i) for i in range(100))
    path.write_text('{"schemaVersion":1,"traceEvents":[\n' + events + ",\n" + event[:40])
    return path


def test_half_a_trace_keeps_what_was_readable(tmp_path: Path, kineto_half: Path) -> None:
    done = run("ingest", kineto_half, "--out", tmp_path / "c.duckdb", "--json")
    assert done.returncode == 0, done.stderr
    (source,) = json.loads(done.stdout)
    assert source["status"] == "salvaged"
    counted = run(
        "query", tmp_path / "c.duckdb", "SELECT count(*) AS n FROM gpu_op", "--format", "json"
    )
    assert json.loads(counted.stdout) == [{"n": 100}]


def test_usage_errors_exit_with_2() -> None:
    assert run("analyze").returncode == 2
    assert run("analize", "x").returncode == 2
    assert run("query", "a", "b", "--format", "xml").returncode == 2


def test_ending_does_not_look_for_garbage() -> None:
    """What lives to the end of a command is not looked through again by the interpreter's last collection."""
    code = (
        "import atexit, gc, sys; from rca.cli import main; sys.argv = ['rca', 'causes', 'no_such']\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True True\n", 1)


def test_a_case_in_use_is_said(analysed: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    import duckdb

    path = analysed[0] / "case.duckdb"
    with duckdb.connect(str(path)):
        assert "in use" in failed(run("query", path, "SELECT 1"))


def test_a_trial_of_no_known_cause_leaves_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    case_builder.diagnosed(path).close()
    assert "no cause is called" in failed(run("trial", path, "--cause", "nonsense"))
    with Case.open(path, read_only=True) as case:
        assert case.scalar("SELECT cause FROM trial") == "kv_pool_too_small"


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    failed(run("analyze", SAMPLE, "--no-trial", "--out", blocked / "below"))
    failed(run("analyze", SAMPLE, "--no-trial", "--out", "/proc/below"))
