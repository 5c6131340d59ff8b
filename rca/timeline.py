"""Everything recorded of an incident on one clock, for the Perfetto or Chrome trace viewer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rca.case import Case, sql_files
from rca.durable import whole
from rca.plain import printable

_FIRST_TIME = "SELECT min(first_ns + shift_ns) FROM source WHERE part = 'incident' AND first_ns IS NOT NULL"
_NEEDS = {"40_counter.sql": "signal_value"}
_NAME_LIMIT = 512


def write(case: Case, out: Path) -> Path:
    """Write OUT as a gzipped JSON trace, rows streamed; open it at ui.perfetto.dev.

    Times count from the first recorded moment, which stands in `otherData.origin_ns`, because
    viewers read them as floating point and would lose nanoseconds of absolute times.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    origin_ns = int(case.scalar(_FIRST_TIME) or _first_event(case))
    tracks = _Tracks()
    with whole(out) as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        head = {"origin_ns": str(origin_ns), "clock": "UTC, sources corrected by their shift"}
        file.write(f'{{"otherData":{json.dumps(head)},"traceEvents":[\n'.encode())
        before = ""
        for event in _events(case, tracks, origin_ns):
            file.write(
                (before + json.dumps(event, allow_nan=False, separators=(",", ":"))).encode()
            )
            before = ",\n"
        file.write(b"\n]}\n")
    return out


class _Tracks:
    """Numbers for processes and threads, with the events that name them."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self.fresh: list[dict[str, Any]] = []

    def find(self, process: str, thread: str) -> tuple[int, int]:
        pid = self._processes.get(process)
        if pid is None:
            pid = self._processes[process] = len(self._processes) + 1
            self._name("process_name", pid, 0, process)
        tid = self._threads.get((pid, thread))
        if tid is None:
            tid = self._threads[pid, thread] = len(self._threads) + 1
            self._name("thread_name", pid, tid, thread)
        return pid, tid

    def _name(self, kind: str, pid: int, tid: int, name: str) -> None:
        args = {"name": printable(name, _NAME_LIMIT)}
        self.fresh.append({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _events(case: Case, tracks: _Tracks, origin_ns: int) -> Iterator[dict[str, Any]]:
    for file, query in sql_files("timeline"):
        if file in _NEEDS and not case.has(_NEEDS[file]):
            continue
        for process, thread, shape, ts_ns, dur_ns, name, track, args in case.stream(query):
            pid, tid = tracks.find(process, thread)
            yield from tracks.fresh
            tracks.fresh.clear()
            event = {
                "name": printable(name, _NAME_LIMIT), "cat": file[3:-4], "pid": pid, "tid": tid,
                "ts": _micros(ts_ns - origin_ns),
                "args": {
                    printable(k, _NAME_LIMIT): _told(v)
                    for k, v in json.loads(args).items()
                    if v is not None
                },
            }  # fmt: skip
            yield from _shaped(event, shape, dur_ns, track)


def _shaped(
    event: dict[str, Any], shape: str, dur_ns: int | None, track: str | None
) -> Iterator[dict[str, Any]]:
    if shape == "slice":
        yield {**event, "ph": "X", "dur": _micros(dur_ns or 0)}
    elif shape == "async":
        # Requests overlap on one track; only asynchronous events may.
        ident = {"id": printable(track, _NAME_LIMIT)}
        yield {**event, **ident, "ph": "b"}
        ended = event["ts"] + _micros(dur_ns or 0)
        yield {**event, **ident, "ph": "e", "ts": round(ended, 3), "args": {}}
    elif shape == "counter":
        yield {**event, "ph": "C"}
    else:
        yield {**event, "ph": "i", "s": "g"}


def _told(value: Any) -> Any:
    """An argument as a viewer may show it: numbers as they are, all else as short, visible text."""
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text, _NAME_LIMIT)


def _micros(ns: int) -> float:
    """Microseconds with the nanoseconds as decimals: exact for months of nanoseconds."""
    return ns / 1000


def _first_event(case: Case) -> int:
    starts = [
        case.scalar(f"SELECT min({column}) FROM {table}")
        for table, column in (
            ("(SELECT start_ns FROM span WHERE flaw IS NULL)", "start_ns"),
            ("gpu_op", "start_ns"),
            ("cpu_op", "start_ns"),
            ("sample", "ts_ns"),
        )
    ]
    return min((s for s in starts if s is not None), default=0)
