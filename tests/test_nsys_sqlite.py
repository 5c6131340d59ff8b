"""Nsight Systems exports made by hand: what the conformance files do not have, and damage."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import gpu_recordings as recordings
import pytest

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.errors import BundleError
from rca.ingest import ingest
from rca.parsers import recognise
from rca.parsers.stream import read_head

UTC = 1_755_753_377_038_569_519
PID = 4321 << 24
SESSION = f"""
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({UTC});
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000'), (3, 'worker'), (4, 'step');
"""
KERNELS = f"""
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER,
        streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1500, 0, 7, 5, {PID}, 1);
"""


def build(path: Path, *scripts: str) -> Path:
    """A database with these statements run."""
    with sqlite3.connect(path) as db:
        for script in scripts:
            db.executescript(script)
    db.close()
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.sqlite"


def test_times_count_from_the_start_of_the_session(file: Path) -> None:
    case = recordings.read(build(file, SESSION, KERNELS))
    assert case.rows("SELECT start_ns, dur_ns, name, pid, grid FROM gpu_op") == [
        (UTC + 1000, 500, "gemm", 4321, None)
    ]
    assert case.rows("SELECT base_ns, kind, format, status FROM source") == [
        (UTC, "nsys", "nsys_sqlite", "ok")
    ]


def test_normalised_times_are_not_moved_twice(file: Path) -> None:
    moved = (
        f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + {UTC}, "end" = "end" + {UTC};'
    )
    case = recordings.read(build(file, SESSION, KERNELS, moved))
    assert case.rows("SELECT start_ns, dur_ns FROM gpu_op") == [(UTC + 1000, 500)]
    assert case.scalar("SELECT base_ns FROM source") is None
    assert "normalised_time" in recordings.notes(case)


def test_without_a_session_times_are_relative_and_that_is_said(file: Path) -> None:
    case = recordings.read(
        build(file, SESSION, KERNELS, "DROP TABLE TARGET_INFO_SESSION_START_TIME;")
    )
    assert case.rows("SELECT start_ns FROM gpu_op") == [(1000,)]
    assert "relative_time" in recordings.notes(case)


def test_columns_that_are_missing_give_null_and_a_note(file: Path) -> None:
    bare = """CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2);"""
    case = recordings.read(build(file, bare))
    assert case.rows("SELECT name, device, pid, correlation FROM gpu_op") == [
        ("", None, None, None)
    ]
    assert {"missing_columns", "relative_time"} <= set(recordings.notes(case))


def test_sizes_of_launches_up_to_what_cuda_allows(file: Path) -> None:
    sizes = [(2**31 - 1, 65535, 65535), (128, 1, 1), (0, 0, 0), (1, 65536, 1), (2**31, 1, 1),
             (-1, 1, 1), (1, 1, -1), (None, 1, 1)]  # fmt: skip
    build(
        file, SESSION, KERNELS,
        *(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN grid{axis} INTEGER;" for axis in "XYZ"),
    )  # fmt: skip
    with sqlite3.connect(file) as db:
        row = f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, 9999, 0, 7, 6, {PID}, 1, ?, ?, ?)"
        db.executemany(row, [(2000 + n, *size) for n, size in enumerate(sizes)])
    db.close()
    case = recordings.read(file)
    told = [text for (text,) in case.rows("SELECT grid FROM gpu_op ORDER BY start_ns")]
    assert told == [None, "2147483647,65535,65535", "128,1,1", "0,0,0", *[None] * 5]


def test_names_are_found_whatever_their_numbers(file: Path) -> None:
    odd = (
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 2500, 0, 7, 6, {PID}, 99),"
        f" (3000, 3500, 0, 7, 7, {PID}, {2**62}), (4000, 4500, 0, 7, 8, {PID}, NULL),"
        f" (5000, 5500, 0, 7, 9, {PID}, 8);"
        f"INSERT INTO StringIds VALUES ({2**62}, 'far'), (8, ''), (9, NULL);"
    )
    case = recordings.read(build(file, SESSION, KERNELS, odd))
    told = [name for (name,) in case.rows("SELECT name FROM gpu_op ORDER BY start_ns")]
    assert told == ["gemm", "", "far", "", ""]


def test_kernels_of_graph_nodes_keep_their_graph(file: Path) -> None:
    nodes = """ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphId INTEGER;
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphId = 12;"""
    assert recordings.read(build(file, SESSION, KERNELS, nodes)).rows(
        "SELECT graph_id FROM gpu_op"
    ) == [(12,)]


def test_a_graph_traced_as_a_whole_counts_as_busy_and_is_said(file: Path) -> None:
    graph = f"""CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER,
            deviceId INTEGER, graphId INTEGER, correlationId INTEGER, globalPid INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (2000, 2600, 0, 12, 6, {PID});"""
    case = recordings.read(build(file, SESSION, KERNELS, graph))
    assert case.rows("SELECT id, name, graph_id FROM gpu_op ORDER BY id") == [
        (0, "gemm", None), (1, "[CUDA graph 12]", 12),
    ]  # fmt: skip
    assert case.scalar("SELECT busy_ns FROM gpu_breakdown WHERE device = 0") == 1100
    assert recordings.notes(case)["graph_level"] == 1


def test_memory_usage_becomes_memory_events(file: Path) -> None:
    usage = """CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, deviceId INTEGER,
            address INTEGER, bytes INTEGER, memoryOperationType INTEGER);
        INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (10, 0, 99, 512, 0), (20, 0, 99, 512, 1);"""
    case = recordings.read(build(file, SESSION, usage))
    assert case.rows("SELECT ts_ns, device, delta_bytes, address FROM memory_event ORDER BY 1") == [
        (UTC + 10, 0, 512, 99), (UTC + 20, 0, -512, 99),
    ]  # fmt: skip


def test_nvtx_ranges_marks_and_domains(file: Path) -> None:
    tid = PID + 77
    nvtx = f"""CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER,
            text TEXT, textId INTEGER, domainId INTEGER, globalTid INTEGER);
        INSERT INTO NVTX_EVENTS VALUES
            (0, NULL, 75, 'NCCL', NULL, 3, {tid}), (5, 9, 59, 'push', NULL, 3, {tid}),
            (6, 8, 60, NULL, 4, 0, {tid}), (7, NULL, 34, 'mark', NULL, 0, {tid}),
            (8, NULL, 59, 'open', NULL, 0, {tid});"""
    case = recordings.read(build(file, SESSION, nvtx))
    assert case.rows("SELECT name, domain, start_ns, dur_ns, pid, tid FROM cpu_op ORDER BY id") == [
        ("push", "NCCL", UTC + 5, 4, 4321, 77), ("step", None, UTC + 6, 2, 4321, 77),
        ("mark", None, UTC + 7, 0, 4321, 77), ("open", None, UTC + 8, 0, 4321, 77),
    ]  # fmt: skip
    assert recordings.notes(case)["bad_duration"] == 1


def test_a_table_may_carry_a_version(file: Path) -> None:
    renamed = "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_V3;"
    assert (
        recordings.read(build(file, SESSION, KERNELS, renamed)).scalar(
            "SELECT name FROM gpu_op"
        )
        == "gemm"
    )


def test_calls_are_told_by_class_and_matched_by_process(file: Path) -> None:
    calls = f"""CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER,
            eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
            (900, 950, 0, {PID + 1}, 5, 2), (910, 950, 1, {PID + (1 << 24)}, 5, 2);"""
    case = recordings.read(build(file, SESSION, KERNELS, calls))
    assert case.rows("SELECT kind FROM cpu_op ORDER BY id") == [("runtime",), ("driver",)]
    assert case.rows("SELECT gpu_op_id, cpu_op_id, delay_ns FROM launch") == [(0, 0, 100)]
    assert case.rows("SELECT name, total_ns FROM api_summary") == [("cudaLaunchKernel", 90)]


def test_bad_rows_are_kept_marked(file: Path) -> None:
    bad = """UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = 900;
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 50, NULL, 0, 7, 6, NULL, 1;
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT NULL, 5, 0, 7, 6, NULL, 1;
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 'x', 'y', 0, 7, 6, NULL, 'z';"""
    case = recordings.read(build(file, SESSION, KERNELS, bad))
    assert case.rows("SELECT flaw, dur_ns FROM gpu_op WHERE flaw IS NOT NULL ORDER BY id") == [
        ("negative_duration", -100), ("no_duration", 0),
    ]  # fmt: skip
    assert recordings.notes(case)["no_time"] == 1
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_numbers_that_do_not_fit_break_nothing(file: Path) -> None:
    huge = 2**62
    large = f"""UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = {huge}, streamId = 5e300;
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({huge * 2 - 1}, 5, 0, 7, 6, NULL, 1);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, {huge}, 0, 7, 6, NULL, 1);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES (1, 'H100', {huge}), ({huge}, 'odd', 1);"""
    case = recordings.read(build(file, SESSION, KERNELS, large))
    assert case.rows("SELECT device, flaw FROM gpu_op ORDER BY id") == [
        (None, None),
        (0, "absurd_duration"),
    ]
    assert case.rows("SELECT id, sm_count FROM device") == [(1, None)]
    assert recordings.notes(case)["no_time"] == 1
    assert case.scalar("SELECT busy_ns FROM gpu_breakdown WHERE device IS NULL") == 500


def test_text_that_is_not_utf8_is_replaced(file: Path) -> None:
    broken = "UPDATE StringIds SET value = CAST(x'67ff6d' AS TEXT) WHERE id = 1;"
    assert (
        recordings.read(build(file, SESSION, KERNELS, broken)).scalar("SELECT name FROM gpu_op")
        == "g\ufffdm"
    )


def test_names_of_threads_take_the_highest_priority(file: Path) -> None:
    names = f"""CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
        INSERT INTO ThreadNames VALUES (3, 20, {PID + 9}), (4, 10, {PID + 9});
        CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
        INSERT INTO PROCESSES VALUES ({PID}, 4321, 'python');
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'H100', 80, 132);"""
    case = recordings.read(build(file, SESSION, KERNELS, names))
    assert case.rows("SELECT pid, tid, name FROM thread") == [(4321, 9, "worker")]
    assert case.rows("SELECT pid, name FROM process") == [(4321, "python")]
    assert case.rows("SELECT id, name, memory_bytes, sm_count FROM device") == [
        (0, "H100", 80, 132)
    ]


def test_a_compressed_export_is_read(file: Path) -> None:
    build(file, SESSION, KERNELS)
    packed = file.with_suffix(".sqlite.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert recordings.read(packed).scalar("SELECT name FROM gpu_op") == "gemm"


def test_a_name_that_sqlite_would_take_for_more(tmp_path: Path) -> None:
    odd = tmp_path / "a?mode=rwc#%20 b.sqlite"
    build(tmp_path / "plain.sqlite", SESSION, KERNELS).rename(odd)
    assert recordings.read(odd).scalar("SELECT name FROM gpu_op") == "gemm"
    assert sorted(p.name for p in tmp_path.iterdir()) == [odd.name]


def _refused(path: Path, match: str) -> None:
    assert recognise(read_head(path)).name == "nsys_sqlite"
    with pytest.raises(BundleError, match=match) as error:
        recordings.read(path)
    assert "\n" not in str(error.value)


def test_another_program_s_database_is_refused(file: Path) -> None:
    _refused(build(file, "CREATE TABLE history (url TEXT);"), "no export of Nsight Systems")


def test_an_export_that_is_being_written_is_refused(file: Path) -> None:
    build(file, SESSION, KERNELS)
    file.with_name(file.name + "-journal").write_bytes(b"x")
    _refused(file, "is being written")


MANY = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT k.* FROM CUPTI_ACTIVITY_KIND_KERNEL k, (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i FROM n);"
CALLS = """CREATE TABLE OSRT_API (start INTEGER, "end" INTEGER);
    INSERT INTO OSRT_API WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i, i + 1 FROM n;"""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.95])
def test_a_cut_database_keeps_what_is_before_the_cut(
    share: float, packed: bool, file: Path
) -> None:
    data = build(file, SESSION, KERNELS, MANY, CALLS).read_bytes()
    cut = data[: int(len(data) * share)]
    file.write_bytes(gzip.compress(cut)[:-9] if packed else cut)
    case = recordings.read(file)
    kernels, calls = (case.scalar(f"SELECT count(*) FROM {t}") for t in ("gpu_op", "cpu_op"))
    assert 0 < kernels <= 3001
    assert (calls > 0) == (share > 0.9) and calls < 5000
    assert case.scalar("SELECT count(*) FROM gpu_op WHERE name = 'gemm'") == kernels
    assert case.rows("SELECT status FROM source") == [("salvaged",)]
    assert recordings.notes(case)["truncated"] == 1
    assert recordings.notes(case)["damaged_table"] in (1, 2)


@pytest.mark.parametrize("size", [50, 4096])
def test_a_database_without_its_tables_is_refused(size: int, file: Path) -> None:
    data = build(file, SESSION, KERNELS, MANY).read_bytes()
    file.write_bytes(data[:size])
    _refused(file, "cannot be read as SQLite.*nsys export --type sqlite")


def test_a_damaged_table_costs_itself(file: Path) -> None:
    build(file, SESSION, KERNELS, CALLS)
    with sqlite3.connect(file) as db:
        page = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'OSRT_API'"
        ).fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    db.close()
    data = bytearray(file.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(data)
    case = recordings.read(file)
    assert case.rows("SELECT name FROM gpu_op") == [("gemm",)]
    assert case.rows(
        "SELECT code, level, count, example FROM ingest_note WHERE level = 'error'"
    ) == [("damaged_table", "error", 1, "OSRT_API")]


def test_rows_of_a_refused_file_do_not_stay(file: Path) -> None:
    sound = build(file.with_name("sound.sqlite"), SESSION)
    build(file, "CREATE TABLE history (url TEXT);")
    case = Case.create()
    files = [BundleFile(path, path.name, "incident") for path in (sound, file)]
    (failure,) = ingest(case, Bundle(files))
    assert "no export of Nsight Systems" in failure
    assert case.rows("SELECT path FROM source") == [("sound.sqlite",)]


def test_the_sample_of_a_leak_was_also_recorded_by_nsys() -> None:
    folder = (
        Path(__file__).parent.parent / "sample_traces" / "01_logits_processor_leak" / "incident"
    )
    (export,) = folder.glob("*.sqlite")
    assert export.stat().st_size < 1_000_000
    case = recordings.read(export)
    assert case.scalar("SELECT producer FROM source") == "NVIDIA Nsight Systems 2023.4.4.54"
    assert case.scalar("SELECT count FROM nvtx_summary WHERE name = 'engine_step'") == 60
    steps = case.rows("SELECT name FROM nvtx_summary WHERE name <> 'engine_step'")
    assert steps and all(name.startswith("execute_context_") for (name,) in steps)
    assert case.rows("SELECT name FROM process") == [("python",)]
