"""Bombs stop early, and an ingest that is killed leaves each source whole or absent."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from gpu_recordings import event, trace

from rca import ingest as ingest_module
from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.errors import BundleError
from rca.ingest import ingest
from rca.parsers import stream
from rca.parsers.format import Format, Head

_READ = """
import sys
from pathlib import Path
from rca import pipeline
print("begins", flush=True)
pipeline.read([Path(sys.argv[1])], case_path=Path(sys.argv[2])).close()
"""
_CONTENTS = (
    "SELECT format, path, sha256, n_rows, n_elements, first_ns, last_ns, status FROM source ORDER BY path",
    "SELECT s.path, count(*), sum(g.id), sum(start_ns), sum(dur_ns) FROM gpu_op g JOIN source s ON s.id = source_id GROUP BY 1",
    "SELECT s.path, count(*), sum(c.id), sum(start_ns), sum(dur_ns) FROM cpu_op c JOIN source s ON s.id = source_id GROUP BY 1",
    "SELECT r.path, s.name, count(*), sum(ts_ns), sum(value) FROM sample JOIN series s ON s.id = series_id JOIN source r ON r.id = s.source_id GROUP BY 1, 2",
)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_that_is_a_bomb_is_refused(
    compress: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json.packed"
    path.write_bytes(compress(b'{"traceEvents": [' + b" " * 40_000_000))
    monkeypatch.setattr(stream, "RATIO_FLOOR", 1_000_000)
    with Case.create() as case:
        with pytest.raises(BundleError, match="1,000 times its size; unpack it yourself"):
            ingest(case, Bundle([BundleFile(path, path.name, "incident")]))
        assert case.rows("SELECT code FROM ingest_note") == [("unreadable",)]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_blocks_stay_small_whatever_they_were_packed_to(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "packed"
    content = random.Random(1).randbytes(30_000) + b"x" * 3_000_000
    path.write_bytes(compress(content) + compress(b"a second member"))
    blocks = stream.Blocks(path, 65_536)
    read = list(blocks)
    assert b"".join(read) == content + b"a second member"
    assert max(map(len, read)) <= 2 * 65_536
    assert blocks.damage is None


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Two recordings of a profiler and one of metrics, long enough to be killed in."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    for rank in range(2):
        made = [
            event(f"k{i}", f"{1000 + i}.125", "1", ("kernel", "cpu_op")[i % 2], correlation=i)
            for i in range(20_000)
        ]
        (folder / f"rank{rank}.json").write_text(trace(*made, head=f'"schemaVersion": {rank}'))
    lines = [f'load{{pod="p{i % 50}"}} {i / 7} {1700000000 + i}.5\n' for i in range(50_000)]
    (folder / "metrics.txt").write_text("# TYPE load gauge\n" + "".join(lines) + "# EOF\n")
    return folder


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a case holds of each source."""
    found: dict[str, list[tuple[object, ...]]] = {}
    with Case.open(path) as case:
        for query in _CONTENTS:
            for row in case.rows(query):
                found.setdefault(str(next(v for v in row if "." in str(v))), []).append(row)
    return found


def read_and_kill(bundle: Path, case: Path, after_s: float | None) -> None:
    """Read the bundle in a process of its own; kill it so long after it began."""
    with subprocess.Popen(
        [sys.executable, "-c", _READ, str(bundle), str(case)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begins\n"
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.kill()


def killed_at(bundle: Path, tmp_path: Path, moments: list[float]) -> None:
    """Kill an ingest at these moments (s), over and over, then let it end."""
    whole = tmp_path / "whole.duckdb"
    read_and_kill(bundle, whole, None)
    expected = contents(whole)
    assert len(expected) == 3
    case = tmp_path / "case.duckdb"
    for moment in moments:
        read_and_kill(bundle, case, moment)
        if case.exists():
            assert contents(case).items() <= expected.items(), moment
    read_and_kill(bundle, case, None)
    assert contents(case) == expected


def test_killed_at_some_moment(bundle: Path, tmp_path: Path) -> None:
    killed_at(bundle, tmp_path, [0.6])


@pytest.mark.slow
def test_killed_at_many_moments(bundle: Path, tmp_path: Path) -> None:
    draws = random.Random(3)
    for _ in range(4):
        (tmp_path / "case.duckdb").unlink(missing_ok=True)
        killed_at(bundle, tmp_path, sorted(draws.uniform(0, 1.5) for _ in range(6)))


def test_written_rows_do_not_stay_in_memory_until_their_file_is_done(tmp_path: Path) -> None:
    with Case.create(tmp_path / "case.duckdb") as case, case.transaction():
        rows = pa.table({"pid": [1], "name": ["p"]})
        case.insert("process", rows, source_id=1)
        kept = weakref.ref(rows)
        del rows
        assert kept() is None
        assert case.rows("SELECT pid, name FROM process") == [(1, "p")]


def test_rows_of_a_parquet_file_are_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"pid": [1, 2], "name": ["p", None]}).write_parquet(path)
    with Case.create() as case:
        assert case.insert("process", path, source_id=1) == 2
        assert case.rows("SELECT pid, name FROM process") == [(1, "p"), (2, None)]


@pytest.mark.parametrize(
    ("given", "meanwhile"), [(64_000_000, 64_000_000), (10**9, 200_000_000)]
)
def test_reading_takes_less_memory_and_gives_it_back(
    given: int, meanwhile: int, tmp_path: Path
) -> None:
    limit = "SELECT current_setting('memory_limit'), current_setting('threads')"
    with Case.create(tmp_path / "case.duckdb") as case:
        case.limit(memory_bytes=meanwhile, threads=1)
        wanted = case.rows(limit)
        case.limit(memory_bytes=given, threads=3)
        before = case.rows(limit)
        with case.frugal(200_000_000):
            assert case.rows(limit) == wanted
        assert case.rows(limit) == before


def test_a_fault_of_a_reader_costs_its_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, odd = tmp_path / "changes.jsonl", tmp_path / "odd.bin"
    changes.write_text(
        '{"id": "c", "time": 1700000000, "kind": "config", "subject": "a", "after": "b"}\n'
    )
    odd.write_bytes(b"odd")

    def breaks(_path: Path, _sink: object) -> None:
        raise KeyError("[red]x")

    broken = Format("broken", "metrics", lambda _head: True, breaks)
    usual = ingest_module.recognise
    monkeypatch.setattr(
        ingest_module, "recognise", lambda head: broken if head.path == odd else usual(head)
    )
    bundle = Bundle([BundleFile(f, f.name, "incident") for f in (odd, changes)])
    with Case.create() as case, pytest.raises(KeyError):
        ingest(case, bundle)
    monkeypatch.delenv("RCA_RAISE")
    with Case.create() as case:
        (line,) = ingest(case, bundle)
        assert case.rows("SELECT count(*) FROM change") == [(1,)]
    assert line.startswith(
        "odd.bin: cannot be read: the reader of broken has a fault (KeyError"
    )
    assert "\n" not in line


def test_a_file_that_cannot_even_be_recognised_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.bin").write_bytes(b"x")
    changes = tmp_path / "changes.jsonl"
    changes.write_text(
        '{"time": "2026-11-29T14:00:00Z", "subject": "deployment/a", "before": "1", "after": "2"}\n'
    )
    usual = ingest_module.recognise

    def breaks(head: Head) -> Format:
        if head.path.name == "odd.bin":
            raise IndexError("list index out of range")
        return usual(head)

    monkeypatch.setattr(ingest_module, "recognise", breaks)
    monkeypatch.delenv("RCA_RAISE")
    bundle = Bundle([BundleFile(f, f.name, "incident") for f in sorted(tmp_path.iterdir())])
    with Case.create() as case:
        (line,) = ingest(case, bundle)
        assert case.rows("SELECT count(*) FROM change") == [(1,)]
    assert line.startswith("odd.bin: cannot be read: the recognition of formats has a fault (")
