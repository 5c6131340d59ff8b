"""Fleets: shards hold what one case would, whatever fails, dies or is started again."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fleet_files import BROKEN, contents, make_fleet, make_mixed_fleet

import rca
from rca import query
from rca.case import Case
from rca.errors import BundleError, CaseError, QueryError, RcaError
from rca.fleet import ingest, is_shards, open_shards, spread, stragglers
from rca.fleet.store import Store
from rca.pipeline import read


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("fleet") / "files")


@pytest.fixture(scope="module")
def shards(fleet: Path) -> Path:
    where = fleet.parent / "shards"
    ingest([fleet], str(where), workers=2, dask=False)
    return where


@pytest.fixture(scope="module")
def serial(fleet: Path) -> dict[str, list[tuple[object, ...]]]:
    """What `rca ingest` makes of the same files, one after the other."""
    with read([fleet]) as case:
        return contents(case)


def test_shards_hold_what_a_case_holds_row_for_row(
    shards: Path, serial: dict[str, list[tuple[object, ...]]]
) -> None:
    with rca.open(shards) as case:
        found = contents(case)
    assert found.keys() == serial.keys()
    for table, rows in serial.items():
        assert found[table] == rows, table
    assert sum(map(len, serial.values())) > 450


def test_files_that_fail_are_listed_and_tried_again_next_time(
    fleet: Path, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    shutil.copytree(fleet, files)
    where = str(tmp_path / "shards")
    done = ingest([files], where, workers=2, dask=False)
    assert [Path(m.name).name for m in done.failed] == list(BROKEN)
    assert (done.read, done.known) == (9, 1)
    with open_shards(where) as case:
        noted = case.rows(
            "SELECT example FROM ingest_note WHERE code = 'unreadable' ORDER BY 1"
        )
        assert [Path(name).name for (name,) in noted] == list(BROKEN)
    (files / BROKEN[0]).write_text(
        '{"id": "c2", "time": "2026-03-01T10:00:00Z", "kind": "x", "subject": "b"}\n'
    )
    done = ingest([files], where, workers=1, dask=False)
    assert [Path(m.name).name for m in done.failed] == list(BROKEN[1:])
    assert (done.read, done.known) == (1, 10)
    with open_shards(where) as case:
        assert case.scalar("SELECT count(*) FROM change") == 2
        assert case.scalar("SELECT count(*) FROM ingest_note WHERE code = 'unreadable'") == 2


def test_views_of_a_case_work_on_shards_and_nothing_else_can_be_read(
    shards: Path, tmp_path: Path
) -> None:
    out = io.StringIO()
    sql = "SELECT count(*) AS n, min(n_kernel) AS k FROM gpu_breakdown WHERE device IS NULL"
    query.run(str(shards), sql, "json", out)
    assert json.loads(out.getvalue()) == [{"n": 5, "k": 8}]
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(QueryError, match="disabled by configuration"):
        query.run(str(shards), f"FROM read_csv('{secret}')", "json", out)
    with pytest.raises(QueryError, match="locked"):
        query.run(str(shards), "SET memory_limit = '1GB'", "json", out)
    query.run(str(shards), f"FROM read_csv('{secret}')", "json", out, unsafe=True)


def test_shards_are_partitioned_by_source_host_and_day(shards: Path) -> None:
    found = {str(p.parent.relative_to(shards)) for p in (shards / "gpu_op").rglob("*.parquet")}
    assert found == {
        f"gpu_op/source=torch_profiler/host=node-{n}/day=1970-01-01" for n in range(3)
    }
    assert not list(shards.rglob("*.half"))


def test_the_straggler_is_found_with_what_it_has_more_of(shards: Path) -> None:
    with open_shards(str(shards)) as case:
        found = stragglers(case)
    slow = found["ranks"][0]
    assert (slow["rank"], slow["host"], slow["is_straggler"]) == (3, "node-1", True)
    assert slow["more_of"] == "compute"
    assert slow["compute_ns"] == 800_000
    assert slow["wait_z"] < -3.5  # it comes last, so that it waits least
    assert [r["is_straggler"] for r in found["ranks"][1:]] == [False] * 4
    assert [h["is_straggler"] for h in found["hosts"]] == [None] * 3  # three are too few


def test_an_address_of_fsspec_holds_shards_too(fleet: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    from rca.bundle import BundleFile
    from rca.fleet.reading import Limits, Work, shard

    where = "memory://fleet-test"  # this process only, so that the worker is called here
    try:
        file = BundleFile(fleet / "rank0.json", "rank0.json", "incident")
        limits = Limits(10**9, 10**9)
        assert shard(Work(file, where, limits, {"rank0.json": 1})) == []
        out = io.StringIO()
        query.run(where, "SELECT count(*) AS n FROM gpu_op", "json", out)
        assert json.loads(out.getvalue()) == [{"n": 8}]
        with pytest.raises(QueryError, match="disabled by configuration"):
            query.run(where, f"FROM read_json('{fleet}/rank0.json')", "json", out)
    finally:
        fsspec.filesystem("memory").rm("/fleet-test", recursive=True)


def test_what_no_record_names_does_not_count(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    with open_shards(str(copy)) as case:
        whole = case.scalar("SELECT count(*) FROM source")
    record = sorted((copy / "_records").glob("incident-*.json"))[0]
    record.write_bytes(record.read_bytes()[:50])  # cut short: as if it were not there
    with open_shards(str(copy)) as case:
        assert case.scalar("SELECT count(*) FROM source") == whole - 1


def test_a_run_after_a_killed_one_leaves_what_a_whole_one_leaves(
    fleet: Path, shards: Path, tmp_path: Path
) -> None:
    """Killed when later files had their record and the first ones only some tables."""
    copied = tmp_path / "shards"
    shutil.copytree(shards, copied)
    for record in sorted((copied / "_records").glob("*.json"), key=_number_in)[:2]:
        record.unlink()
    ingest([fleet], str(copied), workers=1, dask=False)
    assert _names(copied) == _names(shards)


def _number_in(record: Path) -> int:
    return int(json.loads(record.read_text()).get("id") or 10**6)


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("file", ["/etc/passwd", "../other/x.parquet"])
def test_a_record_cannot_name_a_file_outside(shards: Path, tmp_path: Path, file: str) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    (copy / "_records" / "incident-0.json").write_text("[]")  # no record at all
    with open_shards(str(copy)) as case:
        assert case.scalar("SELECT count(*) FROM source") == 9
    path = sorted((copy / "_records").glob("incident-*.json"))[1]
    record = json.loads(path.read_bytes())
    record["tables"]["source"]["file"] = file
    path.write_text(json.dumps(record))
    with pytest.raises(CaseError, match="names a file outside of the shards"):
        open_shards(str(copy))


def test_two_ingests_at_once_are_told_apart(fleet: Path, tmp_path: Path) -> None:
    where = str(tmp_path / "shards")
    with Store(where).held(), pytest.raises(CaseError, match="another rca fleet ingest"):
        ingest([fleet], where, workers=1, dask=False)


@pytest.mark.parametrize("host", ["../../etc", "a/b", "", ".", "x" * 300, "\x1b[31m", "ü"])
def test_a_host_is_data_and_never_a_path(host: str, tmp_path: Path) -> None:
    from fleet_files import rank_trace

    rank_trace(tmp_path / "r.json", 0, 500, host=host)
    ingest([tmp_path / "r.json"], str(tmp_path / "s"), workers=1, dask=False)
    (made,) = (tmp_path / "s" / "gpu_op").rglob("*.parquet")
    assert made.relative_to(tmp_path / "s").parts[2].isascii()
    assert len(made.relative_to(tmp_path / "s").parts) == 5


def test_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such file"):
        ingest([tmp_path / "none"], str(tmp_path / "s"))
    with pytest.raises(CaseError, match="no shards there"):
        open_shards(str(tmp_path / "s"))
    assert not is_shards(str(tmp_path))
    (tmp_path / "x.bin").write_bytes(b"\0" * 100)
    with pytest.raises(BundleError, match="none of 1 files could be read"):
        ingest([tmp_path / "x.bin"], str(tmp_path / "s"), workers=1, dask=False)
    said = "cannot be reached" if find_spec("fsspec") else "pip install 'trace-rca\\[fleet\\]'"
    with pytest.raises(RcaError, match=said):
        Store("nosuch://x")


def test_a_pattern_is_expanded(fleet: Path, tmp_path: Path) -> None:
    here = tmp_path / "files"
    (here / "a" / "baseline" / "deep").mkdir(parents=True)
    for name in ("1.json", "[x].json", "a/baseline/deep/2.json"):
        shutil.copy(fleet / BROKEN[0], here / name)
    for pattern, names in {
        "*.json": ["1.json", "[x].json"], "[x].json": ["[x].json"], "?.json": ["1.json"],
        "**": ["1.json", "2.json", "[x].json"], "a/**": ["2.json"],
    }.items():  # fmt: skip
        assert sorted(f.path.name for f in spread._listed([here / pattern])) == names, pattern
    with pytest.raises(BundleError, match="no such file"):
        spread._listed([here / "*.gz"])
    done = ingest([fleet / "rank[01]*"], str(tmp_path / "shards"), workers=1, dask=False)
    assert (done.read, done.failed) == (2, [])


def _die_once(path: str) -> str:
    """Kills its own process, for ever on 'poison', once on anything else."""
    mark = Path(path)
    if mark.name == "poison" or (mark.name.startswith("once") and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def test_a_process_that_dies_takes_nobody_with_it(tmp_path: Path) -> None:
    from rca.fleet.running import Processes

    names = ["a", "once1", "b", "poison", "c", "d"]
    found = dict(Processes(2).run(_die_once, [str(tmp_path / n) for n in names]))
    assert found == {0: "a", 1: "once1", 2: "b", 3: None, 4: "c", 5: "d"}


_STARTS_WORKERS = """
import os, time
from rca.fleet.running import Processes

def work(seconds):
    print(os.getpid(), flush=True)
    time.sleep(seconds)

if __name__ == "__main__":
    list(Processes(2).run(work, [600, 600]))
"""


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "starts.py"  # spawned processes import it
    program.write_text(_STARTS_WORKERS)
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
        assert process.stdout.read() == ""  # ends when the last of them has closed it
    for pid in workers:
        with contextlib.suppress(FileNotFoundError):
            assert ") Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.slow
def test_dask_reads_forty_files_row_for_row_though_a_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    files, where = make_mixed_fleet(tmp_path / "files"), tmp_path / "shards"
    assert sum(p.is_file() for p in files.rglob("*")) == 40
    program = Path(__file__).with_name("fleet_kill.py")
    done = subprocess.run(
        [sys.executable, str(program), str(files), str(where), "15"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"killed": 1, "read": 39, "failed": list(BROKEN)}
    with open_shards(str(where)) as case, read([files]) as serial:
        found, expected = contents(case), contents(serial)
        assert serial.scalar("SELECT count(DISTINCT format) FROM source") == 9
    assert {t: len(rows) for t, rows in found.items()} == {
        t: len(rows) for t, rows in expected.items()
    }
    assert found == expected


def test_the_command_reads_and_answers(fleet: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from rca.cli import app

    where = str(tmp_path / "shards")
    run = CliRunner().invoke(app, ["fleet", "ingest", str(fleet), "--out", where, "--workers", "1", "--no-dask"])  # fmt: skip
    assert run.exit_code == 0, run.output
    assert "9 sources read by 1 processes, 1 known before, 3 failed" in run.output
    run = CliRunner().invoke(app, ["fleet", "stragglers", where])
    assert "straggler: more compute" in run.output
    Case.create(tmp_path / "empty.duckdb").close()
    run = CliRunner().invoke(app, ["fleet", "stragglers", str(tmp_path / "empty.duckdb")])
    assert "not known" in run.output
