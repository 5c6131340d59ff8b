"""What is measured: our way into a case, the usual way beside it, and how fast it could be at best."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path


def rca_case(path: Path) -> int:
    """The whole way: recognised, hashed, read, written to a case on disk."""
    from rca.bundle import Bundle, BundleFile  # noqa: PLC0415
    from rca.case import Case  # noqa: PLC0415
    from rca.ingest import ingest  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as folder,
        Case.create(Path(folder) / "case.duckdb") as case,
    ):
        assert ingest(case, Bundle([BundleFile(path, path.name, "incident")])) == []
        return int(case.scalar("SELECT n_rows FROM source"))


def scan(path: Path) -> int:
    """The limit: the JSON values are found and not looked into, the lines are counted, or SQLite
    goes over the columns that we keep."""
    import msgspec  # noqa: PLC0415

    data = path.read_bytes()
    if data.startswith(b"SQLite"):
        return _scan_nsys(path)
    if data.lstrip()[:1] != b"{":
        return data.count(b"\n")
    if data.find(b"\n{") > 0 and data.startswith(b'{"resourceSpans'):
        return sum(
            len(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
            for line in data.splitlines()
        )
    return len(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))


_NSYS_COLUMNS = {
    "KERNEL": ("start", '"end"', "deviceId", "contextId", "streamId", "correlationId", "globalPid",
               "demangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
               "registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
    "RUNTIME": ("start", '"end"', "globalTid", "correlationId", "nameId"),
}  # fmt: skip


def _scan_nsys(path: Path) -> int:
    rows = 0
    with sqlite3.connect(path) as database:
        for table, columns in _NSYS_COLUMNS.items():
            sums = ", ".join(f"total({c})" for c in columns)
            query = f"SELECT count(*), {sums} FROM CUPTI_ACTIVITY_KIND_{table}"
            rows += database.execute(query).fetchone()[0]
    return rows


def _rows_nsys(path: Path) -> int:
    found = []
    with sqlite3.connect(path) as database:
        names = dict(database.execute("SELECT id, value FROM StringIds"))
        for table, columns in _NSYS_COLUMNS.items():
            query = f"SELECT {', '.join(columns)} FROM CUPTI_ACTIVITY_KIND_{table}"
            name = 7 if table == "KERNEL" else 4
            found += [(*row, names[row[name]]) for row in database.execute(query)]
    return len(found)


def _frame_trace(path: Path) -> int:
    import polars as pl  # noqa: PLC0415

    with path.open() as file:
        events = json.load(file)["traceEvents"]
    keys = (
        "External id", "correlation", "device", "context", "stream", "bytes", "kind", "grid",
        "block", "registers per thread", "shared memory", "graph id", "Input Dims", "Input type",
        "Bytes", "Total Allocated", "Total Reserved", "Addr", "Device Id", "Device Type",
    )  # fmt: skip
    columns = {
        k: [e.get(k) for e in events] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")
    }
    arguments = [e.get("args") or {} for e in events]
    columns |= {k: [a.get(k) for a in arguments] for k in keys}
    columns |= {
        k: [None if v is None else str(v) for v in columns[k]]
        for k in ("grid", "block", "Input Dims", "Input type")
    }
    return pl.DataFrame(columns, strict=False).height


def _loop_jaeger(path: Path) -> int:
    rows = []
    for trace in json.loads(path.read_bytes())["data"]:
        for span in trace["spans"]:
            process = trace["processes"][span["processID"]]
            tags = {t["key"]: t["value"] for t in span["tags"]}
            tags |= {"resource." + t["key"]: t["value"] for t in process["tags"]}
            parent = next((r["spanID"] for r in span["references"]), None)
            rows.append((
                span["traceID"], span["spanID"], parent, process["serviceName"], span["operationName"],
                tags.get("span.kind"), span["startTime"] * 1000, span["duration"] * 1000, json.dumps(tags),
            ))  # fmt: skip
    return len(rows)


def _loop_otlp(path: Path) -> int:
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            for group in json.loads(line)["resourceSpans"]:
                resource = {
                    "resource." + a["key"]: next(iter(a["value"].values()))
                    for a in group["resource"]["attributes"]
                }
                for scope in group["scopeSpans"]:
                    for span in scope["spans"]:
                        tags = {
                            a["key"]: next(iter(a["value"].values()))
                            for a in span["attributes"]
                        }
                        start, end = (
                            int(span["startTimeUnixNano"]),
                            int(span["endTimeUnixNano"]),
                        )
                        rows.append(
                            (
                                span["traceId"],
                                span["spanId"],
                                start,
                                end - start,
                                json.dumps(tags | resource),
                            )
                        )
    return len(rows)


def _loop_query_range(path: Path) -> int:
    rows = [
        (number, round(ts * 1000) * 1_000_000, float(value))
        for number, series in enumerate(json.loads(path.read_bytes())["data"]["result"])
        for ts, value in series["values"]
    ]
    return len(rows)


_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+) (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _loop_exposition(path: Path) -> int:
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            found = _LINE.match(line)
            if found:
                labels = tuple(_LABEL.findall(found[2]))
                rows.append(
                    (
                        found[1],
                        labels,
                        round(float(found[4]) * 1000) * 1_000_000,
                        float(found[3]),
                    )
                )
    return len(rows)


def hta(path: Path) -> int:
    """Holistic Trace Analysis' own loader; run with a Python that has it."""
    from hta.common.trace_parser import (  # type: ignore[import-not-found]  # noqa: PLC0415
        parse_trace_dataframe,
    )
    from hta.configs.parser_config import ParserConfig  # type: ignore[import-not-found]  # noqa: PLC0415

    return len(parse_trace_dataframe(str(path), ParserConfig.get_default_cfg())[1])


USUAL: dict[str, Callable[[Path], int]] = {
    "PyTorch Profiler JSON": _frame_trace,
    "Jaeger JSON": _loop_jaeger,
    "OTLP JSON lines": _loop_otlp,
    "Prometheus query_range": _loop_query_range,
    "OpenMetrics text": _loop_exposition,
    "Nsight Systems SQLite": _rows_nsys,
}
