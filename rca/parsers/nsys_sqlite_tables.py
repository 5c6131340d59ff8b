"""What is read from each table of an Nsight Systems export, by the columns that it has.

Exports of different versions have different columns, and a table without rows is not written at
all. A column that is missing gives NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

CUDA = "CUPTI_ACTIVITY_KIND_"
PID = "({0} >> 24) & 0xFFFFFF"
TID = "{0} & 0xFFFFFF"
_COPY_KIND = (
    "CASE copyKind WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 8 THEN 'DtoD' WHEN 9 THEN 'HtoH'"
    " WHEN 10 THEN 'PtoP' WHEN 11 THEN 'HtoD (unified)' WHEN 12 THEN 'DtoH (unified)'"
    " WHEN 13 THEN 'DtoD (unified)' WHEN 3 THEN 'HtoA' WHEN 4 THEN 'AtoH' WHEN 5 THEN 'AtoA'"
    " WHEN 6 THEN 'AtoD' WHEN 7 THEN 'DtoA' ELSE 'kind ' || copyKind END"
)
_SYNC = (
    "CASE syncType WHEN 1 THEN 'Event sync' WHEN 2 THEN 'Stream wait sync'"
    " WHEN 3 THEN 'Stream sync' WHEN 4 THEN 'Context sync' ELSE 'Sync' END"
)
_THREAD_STATE = (
    "CASE threadState WHEN 1 THEN 'running' WHEN 2 THEN 'interruptible' WHEN 3 THEN 'uninterruptible'"
    " WHEN 4 THEN 'stopped' WHEN 5 THEN 'terminated' WHEN 6 THEN 'unscheduled' WHEN 7 THEN 'waiting' END"
)
_HOST_MEMORY = "(0, 1)"  # pageable, pinned
INTEGER, TEXT = "integer", "text"
ID, SIZE, FIXED = "id", "size", "fixed"  # numbers that stand for texts, see nsys_sqlite_rows


class Column(NamedTuple):
    """One column of the case and where it comes from.

    Attributes:
        name: Column of the case.
        type: 'integer'; 'text'; 'id' of a text in StringIds; 'size', three numbers in one; 'fixed',
            a text that is the same for all rows. To ask SQLite for a text in each row costs more
            than to read the row.
        choices: Columns needed and the expression over them; the first that can be had is taken.
    """

    name: str
    type: str
    choices: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Selection:
    """What is read from one table.

    Attributes:
        table: Table of the export.
        target: Table of the case.
        columns: Columns of the case.
        where: Column that is needed to choose rows, and which are read.
    """

    table: str
    target: str
    columns: tuple[Column, ...]
    where: tuple[str, str] | None = None

    def query(self, table: str, have: set[str], base_ns: int, strings: bool) -> str:
        """The SELECT over the columns that `table` has, and over the first of ours."""
        there = [c for c in self.columns if c is self.columns[0] or _choice(c, have)]
        asked = [c for c in there if c.type != FIXED]
        parts = [f"{_expression(c, have, strings)} AS {c.name}" for c in asked]
        text = f'SELECT {", ".join(parts)} FROM "{table}" AS t'
        if self.where and self.where[0] in have:
            text += f" WHERE {self.where[1]}"
        return text.replace(":base", str(base_ns))

    def missing(self, have: set[str]) -> list[str]:
        """Columns of the case that the export cannot fill."""
        return [c.name for c in self.columns if not _choice(c, have)]


def _choice(column: Column, have: set[str]) -> str | None:
    for needed, expression in column.choices:
        if have.issuperset(needed):
            return expression
    return None


def _expression(column: Column, have: set[str], strings: bool) -> str:
    chosen = _choice(column, have) or "NULL"
    if not strings and (column.type == ID or "StringIds" in chosen):
        chosen = "NULL"
    if column.type == TEXT:  # as bytes: not all of it is UTF-8
        # ADBC takes a column's type from its first rows, NULL or not.
        return f"coalesce(CAST(CAST({chosen} AS TEXT) AS BLOB), x'')"
    return f"CAST({chosen} AS INTEGER)"


def _int(name: str, source: str, *others: str) -> Column:
    return Column(name, INTEGER, tuple(((s,), f't."{s}"') for s in (source, *others)))


def _string(*sources: str) -> Column:
    """The name behind the first of these ids."""
    return Column("name", ID, tuple(((s,), f't."{s}"') for s in sources))


def _fixed(name: str, text: str) -> Column:
    return Column(name, FIXED, (((), text),))


def _size(name: str, letter: str) -> Column:
    """Three numbers in one, 31, 16 and 16 bits, which is what CUDA has for them; NULL beyond."""
    x, y, z = (f"t.{letter}{axis}" for axis in "XYZ")
    fits = f"({y} | {z}) >> 16 = 0 AND {x} >> 31 = 0"
    packed = f"CASE WHEN {fits} THEN ({x} << 32) | ({y} << 16) | {z} END"
    return Column(name, SIZE, (((f"{letter}X", f"{letter}Y", f"{letter}Z"), packed),))


_START = Column("start_ns", INTEGER, ((("start",), "t.start + :base"),))
_DURATION = Column("dur_ns", INTEGER, ((("start", "end"), 't."end" - t.start'),))
_GPU = (
    _START, _DURATION, _int("device", "deviceId"), _int("context", "contextId"),
    _int("stream", "streamId"), _int("correlation", "correlationId"),
    Column("pid", INTEGER, ((("globalPid",), PID.format("t.globalPid")),)),
)  # fmt: skip
_THREAD = (
    _START, _DURATION,
    Column("pid", INTEGER, ((("globalTid",), PID.format("t.globalTid")),)),
    Column("tid", INTEGER, ((("globalTid",), TID.format("t.globalTid")),)),
)  # fmt: skip
_PROCESS_OF_THREAD = _THREAD[2:]
_TIME = Column("ts_ns", INTEGER, _START.choices)
_GRAPH_NODE = Column(
    "graph_node_id", INTEGER, ((("graphNodeId",), "nullif(t.graphNodeId, 0)"),)
)
_IS_DRIVER = Column("is_driver", INTEGER, ((("eventClass",), "t.eventClass = 1"),))

SELECTIONS = (
    Selection(CUDA + "KERNEL", "gpu_op", (
        *_GPU, _fixed("kind", "kernel"), _string("demangledName", "shortName", "mangledName"),
        _size("grid", "grid"), _size("block", "block"), _int("registers", "registersPerThread"),
        Column("shared_bytes", INTEGER, (
            (("staticSharedMemory", "dynamicSharedMemory"), "t.staticSharedMemory + t.dynamicSharedMemory"),
        )),
        Column("graph_id", INTEGER, ((("graphId",), "nullif(t.graphId, 0)"),)), _GRAPH_NODE,
    )),
    Selection(CUDA + "MEMCPY", "gpu_op", (
        *_GPU, _fixed("kind", "memcpy"), _int("bytes", "bytes"),
        Column("name", TEXT, ((("copyKind",), f"'[CUDA memcpy ' || {_COPY_KIND} || ']'"), ((), "'[CUDA memcpy]'"))),
        Column("copy_kind", TEXT, ((("copyKind",), _COPY_KIND),)), _GRAPH_NODE,
    )),
    Selection(CUDA + "MEMSET", "gpu_op", (
        *_GPU, _fixed("kind", "memset"), _fixed("name", "[CUDA memset]"), _int("bytes", "bytes"),
        _GRAPH_NODE,
    )),
    Selection(CUDA + "GRAPH_TRACE", "gpu_op", (
        *_GPU, _fixed("kind", "kernel"),
        Column("name", TEXT, ((("graphId",), "'[CUDA graph ' || t.graphId || ']'"), ((), "'[CUDA graph]'"))),
        _int("graph_id", "graphId"),
    )),
    Selection(CUDA + "RUNTIME", "cpu_op", (
        *_THREAD, _IS_DRIVER, _string("nameId"), _int("correlation", "correlationId"),
    )),
    Selection(CUDA + "SYNCHRONIZATION", "cpu_op", (
        _START, _DURATION, Column("pid", INTEGER, ((("globalPid",), PID.format("t.globalPid")),)),
        _fixed("kind", "sync"), Column("name", TEXT, ((("syncType",), _SYNC), ((), "'Sync'"))),
        _int("correlation", "correlationId"),
    )),
    Selection("NVTX_EVENTS", "cpu_op", (
        _START,
        Column("dur_ns", INTEGER, (
            (("start", "end", "eventType"), "CASE WHEN t.eventType = 34 THEN 0 ELSE t.\"end\" - t.start END"),
            (("start", "end"), 't."end" - t.start'),
        )),
        *_PROCESS_OF_THREAD, _fixed("kind", "nvtx"),
        Column("is_free", INTEGER, ((("eventType",), "CASE WHEN t.eventType IN (60, 71) THEN 1 END"),)),
        Column("name", TEXT, (
            (("text", "textId"), "coalesce(t.text, (SELECT value FROM StringIds WHERE id = t.textId))"),
            (("text",), "t.text"),
            (("textId",), "(SELECT value FROM StringIds WHERE id = t.textId)"),
        )),
        Column("domain", TEXT, ((("domainId", "globalTid"), "t.domainId || ' ' || (t.globalTid >> 24)"),)),
    ), ("eventType", "t.eventType IN (34, 59, 60, 70, 71)")),
    Selection("OSRT_API", "cpu_op", (
        *_THREAD, _fixed("kind", "osrt"), _string("nameId"),
    ), ("eventClass", "t.eventClass = 27")),
    Selection("PROFILER_OVERHEAD", "cpu_op", (*_THREAD, _fixed("kind", "overhead"), _string("nameId"))),
    Selection(CUDA + "OVERHEAD", "cpu_op", (*_THREAD, _fixed("kind", "overhead"), _string("nameId"))),
    Selection("CUDA_GPU_MEMORY_USAGE_EVENTS", "memory_event", (
        _TIME,
        Column("device", INTEGER, (
            (("deviceId", "memKind"), f"CASE WHEN t.memKind IN {_HOST_MEMORY} THEN -1 ELSE t.deviceId END"),
            (("deviceId",), "t.deviceId"),
        )),
        Column("delta_bytes", INTEGER, ((("bytes", "memoryOperationType"),
            "CASE t.memoryOperationType WHEN 0 THEN t.bytes WHEN 1 THEN -t.bytes END"),)),
        _int("address", "address"),
    )),
    *(Selection(table, "graph_node", (
        _TIME, *_PROCESS_OF_THREAD, _string("nameId"), _int("id", "graphNodeId"),
        _int("original_id", "originalGraphNodeId"),
    )) for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")),  # of 2024 and later, and before
    Selection("SCHED_EVENTS", "sched_event", (
        _TIME, *_PROCESS_OF_THREAD, _int("cpu", "cpu"),
        Column("is_in", INTEGER, ((("isSchedIn",), "t.isSchedIn <> 0"),)),
        Column("state", TEXT, ((("isSchedIn", "threadState"), f"CASE WHEN t.isSchedIn = 0 THEN {_THREAD_STATE} END"),)),
    )),
)  # fmt: skip

NAMES = (  # what is read, and the columns of which one row is kept
    (Selection("TARGET_INFO_GPU", "device", (
        _int("number", "id"), Column("name", TEXT, ((("name",), "t.name"),)),
        _int("memory_bytes", "totalMemory"), _int("sm_count", "smCount"),
        _int("memory_bandwidth", "memoryBandwidth"),
        Column("compute_capability", TEXT, (
            (("computeMajor", "computeMinor"), "t.computeMajor || '.' || t.computeMinor"),
        )),
    )), ("number",)),
    (Selection("PROCESSES", "process", (
        _int("pid", "pid"), Column("name", TEXT, ((("name",), "t.name"),)),
    )), ("pid",)),
    (Selection("ThreadNames", "thread", (
        *_PROCESS_OF_THREAD, _string("nameId"), _int("priority", "priority"),
    )), ("pid", "tid")),
)  # fmt: skip
