"""GPU counters, scheduling, graph nodes and names of Nsight Systems exports."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gpu_recordings as recordings
import pytest
from test_nsys_sqlite import KERNELS, PID, SESSION, UTC, build

from rca import roles
from rca.answer import captures

GPU = """
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER,
        memoryBandwidth INTEGER);
    INSERT INTO TARGET_INFO_GPU VALUES (1, 'H100', 80, 132, 2000000000000);
"""
GPU_1 = (7 << 32) | 1  # the low byte of a type's number is the GPU
METRICS = f"""
    CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT,
        metricId INTEGER, metricName TEXT);
    INSERT INTO TARGET_INFO_GPU_METRICS VALUES
        ({GPU_1}, 3, 'GPU Metrics [1]', 4, 'DRAM Read Bandwidth [Throughput %]'),
        ({GPU_1}, 3, 'GPU Metrics [1]', 5, 'DRAM Write Bandwidth [Throughput %]'),
        ({GPU_1}, 3, 'GPU Metrics [1]', 6, 'Tensor Active [Throughput %]'),
        ({GPU_1}, 3, 'GPU Metrics [1]', 7, 'GPC Clock Frequency [MHz]');
    CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
        value INTEGER NOT NULL);
    INSERT INTO GPU_METRICS VALUES
        (100, {GPU_1}, 4, 60), (200, {GPU_1}, 4, 40), (100, {GPU_1}, 5, 10), (200, {GPU_1}, 5, 30),
        (100, {GPU_1}, 6, 0), (200, {GPU_1}, 6, 25), (100, {GPU_1}, 7, 1755);
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.sqlite"


def test_counters_give_the_share_of_the_peak_bandwidth(file: Path) -> None:
    case = recordings.read(build(file, SESSION, GPU, METRICS))
    assert case.rows("SELECT metric, unit, count, avg, max FROM gpu_metric ORDER BY metric") == [
        ("DRAM Read Bandwidth [Throughput %]", "%", 2, 50, 60),
        ("DRAM Write Bandwidth [Throughput %]", "%", 2, 20, 30),
        ("GPC Clock Frequency [MHz]", "MHz", 1, 1755, 1755),
        ("Tensor Active [Throughput %]", "%", 2, 12.5, 25),
    ]  # fmt: skip
    found = recordings.row(case, "SELECT * FROM gpu_bandwidth")
    assert found == {
        "source_id": 1, "device": 1, "first_ns": UTC + 100, "last_ns": UTC + 200,
        "dram_read_share": 0.5, "dram_write_share": 0.2, "dram_share": 0.7,
        "peak_bytes_per_s": 2_000_000_000_000, "dram_bytes_per_s": pytest.approx(1.4e12),
        "tensor_share": 0.125, "sm_share": None,
    }  # fmt: skip
    assert (
        "GPU",
        "device 1: memory bandwidth 70 % of its peak (1.4 TB/s of 2 TB/s), tensor cores 12.5 %",
    ) in captures.told(case)


def test_counters_are_no_signal_of_the_service(file: Path) -> None:
    case = recordings.read(build(file, SESSION, METRICS))
    roles.assign(case)
    assert case.scalar("SELECT count(*) FROM series") == 4
    assert case.scalar("SELECT count(*) FROM series_role") == 0
    assert case.scalar("SELECT dram_bytes_per_s FROM gpu_bandwidth") is None


def test_counters_of_older_versions_are_objects(file: Path) -> None:
    generic = f"""
        CREATE TABLE GENERIC_EVENT_TYPES (typeId INTEGER PRIMARY KEY, sourceId INTEGER, data TEXT);
        INSERT INTO GENERIC_EVENT_TYPES VALUES ({GPU_1}, 3, '{{"Name": "GPU Metrics [1]"}}'), (9, 3, '{{"Name": "ftrace"}}');
        CREATE TABLE GENERIC_EVENTS (rawTimestamp INTEGER NOT NULL, timestamp INTEGER, typeId INTEGER, data TEXT);
        INSERT INTO GENERIC_EVENTS VALUES
            (7, 100, {GPU_1}, '{{"SM Active": "80", "DRAM Read Throughput": 5}}'), (200, NULL, {GPU_1}, '{{"SM Active": "60"}}'),
            (300, NULL, {GPU_1}, 'no object'), (300, NULL, 9, '{{"SM Active": "1"}}');"""
    case = recordings.read(build(file, SESSION, generic))
    assert case.rows("SELECT device, metric, count, avg, first_ns FROM gpu_metric ORDER BY metric") == [
        (1, "DRAM Read Throughput", 1, 5, UTC + 100), (1, "SM Active", 2, 70, UTC + 100),
    ]  # fmt: skip


def test_samples_that_are_none_are_counted(file: Path) -> None:
    bad = f"""CREATE TABLE bad AS SELECT * FROM GPU_METRICS;
        UPDATE bad SET value = -1 WHERE metricId = 7;
        INSERT INTO bad VALUES (NULL, {GPU_1}, 4, 1), (300, {GPU_1}, 99, 3);
        DROP TABLE GPU_METRICS; ALTER TABLE bad RENAME TO GPU_METRICS;"""
    case = recordings.read(build(file, SESSION, METRICS, bad))
    assert recordings.notes(case)["bad_gpu_metric"] == 1
    assert case.scalar("SELECT count(*) FROM gpu_metric WHERE metric = '99'") == 1
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_threads_on_and_off_the_cpu(file: Path) -> None:
    tid = PID + 77
    sched = f"""CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER,
            globalTid INTEGER, threadState INTEGER);
        INSERT INTO SCHED_EVENTS VALUES (5, 2, 0, {tid}, 2), (10, 2, 1, {tid}, 0), (30, 2, 0, {tid}, 1),
            (30, 3, 1, {tid}, 0), (90, 3, 0, {tid}, 2), (95, 3, 1, {tid}, 0);
        CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
        INSERT INTO ThreadNames VALUES (3, 20, {tid});"""
    case = recordings.read(build(file, SESSION, sched))
    assert case.rows(f"SELECT start_ns - {UTC}, dur_ns, cpu, left_in FROM thread_run ORDER BY 1") == [
        (10, 20, 2, "running"), (30, 60, 3, "interruptible"), (95, None, 3, None),
    ]  # fmt: skip
    assert case.rows("SELECT pid, tid, name, n_runs, on_cpu_ns, span_ns, n_cpus, n_preempted FROM thread_cpu") == [
        (4321, 77, "worker", 3, 80, 85, 2, 1),
    ]  # fmt: skip
    assert case.rows("SELECT first_ns, last_ns FROM source") == [(UTC + 5, UTC + 95)]


@pytest.mark.parametrize("table", ["CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"])
def test_kernels_are_runs_of_graph_nodes(table: str, file: Path) -> None:
    node = (5 << 32) | 1  # graph and node in one number
    nodes = f"""ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN graphNodeId INTEGER;
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = {node};
        CREATE TABLE {table} (start INTEGER, "end" INTEGER, eventClass INTEGER, globalTid INTEGER,
            nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
        INSERT INTO {table} VALUES (7, 7, 0, {PID + 1}, 4, {node}, 3);"""
    case = recordings.read(build(file, SESSION, KERNELS, nodes))
    assert case.rows("""
        SELECT o.name, n.name, n.original_id, n.pid, n.tid, n.ts_ns
        FROM gpu_op AS o JOIN graph_node AS n ON n.id = o.graph_node_id""") == [
        ("gemm", "step", 3, 4321, 1, UTC + 7)
    ]  # fmt: skip


def test_memory_of_the_host_is_no_device_s(file: Path) -> None:
    usage = """CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, deviceId INTEGER,
            address INTEGER, bytes INTEGER, memKind INTEGER, memoryOperationType INTEGER);
        INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (10, 0, 99, 512, 2, 0), (20, 0, 98, 64, 1, 0);"""
    case = recordings.read(build(file, SESSION, usage))
    assert case.rows("SELECT device, delta_bytes FROM memory_event ORDER BY ts_ns") == [
        (0, 512), (-1, 64),
    ]  # fmt: skip


EXPORTS = [r["name"] for r in recordings.oracle("nsys") if r["name"].endswith(".sqlite")]


@pytest.fixture(params=EXPORTS or ["none"])
def export(request: pytest.FixtureRequest, conformance: Path) -> Iterator[tuple[Path, Any]]:
    path = conformance / "nsys" / request.param
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        yield path, db


def test_names_and_scheduling_of_real_exports(export: tuple[Path, sqlite3.Connection]) -> None:
    path, db = export
    case = recordings.read(path)
    tables = {t for (t,) in db.execute("SELECT name FROM sqlite_master")}
    assert dict(case.rows("SELECT pid, name FROM process")) == {
        pid: name or None for pid, name in db.execute("SELECT pid, name FROM PROCESSES")
    }
    named: dict[int, str] = {}
    if "ThreadNames" in tables:
        query = "SELECT globalTid, value FROM ThreadNames JOIN StringIds ON id = nameId ORDER BY priority"
        named = dict(db.execute(query))
    assert {(p, t): n for p, t, n in case.rows("SELECT pid, tid, name FROM thread")} == {
        ((g >> 24) & 0xFFFFFF, g & 0xFFFFFF): name or None for g, name in named.items()
    }
    on_cpu = _on_cpu(db) if "SCHED_EVENTS" in tables else {}
    assert {
        (p, t): ns for p, t, ns in case.rows("SELECT pid, tid, on_cpu_ns FROM thread_cpu")
    } == on_cpu


def _on_cpu(db: sqlite3.Connection) -> dict[tuple[int, int], int]:
    """Time on a CPU by process and thread, event by event."""
    total: dict[tuple[int, int], int] = {}
    since: dict[int, int] = {}
    query = "SELECT start, isSchedIn, globalTid FROM SCHED_EVENTS ORDER BY start, isSchedIn"
    for start, is_in, thread in db.execute(query):
        key = (thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF
        if is_in:
            since[thread] = start
            total.setdefault(key, 0)
        elif thread in since:
            total[key] += start - since.pop(thread)
    return total
