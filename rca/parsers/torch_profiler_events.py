"""Blocks of profiler events into rows: DuckDB reads the JSON, in a private database."""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from typing import Any

import duckdb

from rca.parsers.format import Sink
from rca.parsers.torch_profiler_salvage import plain

_TIME = re.compile(rb'"(ts|dur)"(\s*:\s*)(-?[0-9][0-9.eE+-]*)')
_FRACTION = re.compile(rb'"(?:ts|dur)"\s*:\s*"?-?[0-9]+[.eE]')
_OLD = ((b'"external id":', b'"External id":'), (b'"Input dims":', b'"Input Dims":'))
_MEMORY = (b'"Bytes":', b'"delta":')
_NOTES = {  # column of `census`: (level, code, message, lost)
    "n_unknown": ("warning", "unknown_category", "events of a category that is not known were left out", True),
    "n_untimed": ("warning", "no_time", "events without a usable time were left out", True),
    "n_flawed": ("warning", "bad_duration", "durations that are missing, negative or absurd; no sum counts them", False),
    "n_counters": ("info", "counters", "counter events are not read", False),
    "n_pairs": ("warning", "begin_end_events", "begin and end events are not read, only complete ones", True),
    "n_no_phase": ("warning", "no_phase", "elements without a phase are no events and were left out", True),
    "n_large": ("info", "large_number", "numbers beyond 64 bits became NULL", False),
}  # fmt: skip
_EXAMPLES = {"n_unknown": "unknown", "n_untimed": "untimed", "n_flawed": "flawed"}


class EventTables:
    """Writes the events of one recording, block by block, to a sink.

    How the recording spells things (`is_old`, `is_memory`) and whether its times need every digit
    (`is_quoted`) is found in the first block that shows it; that block is read again.
    """

    def __init__(self, sink: Sink, base_ns: int) -> None:
        self._sink, self.base_ns = sink, base_ns
        self.n_events = self.n_gpu = self.n_accelerator = 0
        self.last_ns: int | None = None
        self._is_old = self._is_memory = self._is_quoted = False
        self._processes: dict[int, dict[str, Any]] = {}
        self._threads: dict[tuple[int, int | None], str | None] = {}
        # One file in memory is written over and over: its pages are there already.
        self._file = os.memfd_create("block")
        self._con = duckdb.connect(":memory:", config={"threads": 1})
        self._con.execute("SET enable_external_file_cache = false")
        self._con.execute("SET VARIABLE base_ns = $1::BIGINT", [base_ns])
        self._con.execute("SET VARIABLE first_id = 0::BIGINT")
        self._con.execute(files("rca.parsers").joinpath("torch_profiler.sql").read_text())

    def add(self, *parts: bytes | memoryview) -> bool:
        """Write the events of a text in parts, commas between them; False when it is not sound JSON."""
        while True:
            if not self._load(parts):
                return False
            census = self._census(parts)
            if not self._spelling_is_new(census):
                break
        self._write(census)
        return True

    def add_events(self, events: list[dict[str, Any]]) -> None:
        """Write events that were read one by one."""
        rows = [plain(event) for event in events]
        dropped = sum(n for _, n in rows)
        if dropped:
            self._note("n_large", dropped, None)
        if not self.add(b",".join(json.dumps(row).encode() for row, _ in rows)):
            self._sink.count_elements(len(rows))
            self._sink.note(
                "error", "lost_event", "damaged events were skipped",
                count=len(rows), example=str(events[0])[:200], lost=True,
            )  # fmt: skip

    def totals(self) -> dict[str, Any]:
        """What was counted and gathered over all blocks, for another EventTables to absorb."""
        return {
            "n_events": self.n_events,
            "n_gpu": self.n_gpu,
            "n_accelerator": self.n_accelerator,
            "last_ns": self.last_ns,
            "processes": list(self._processes.values()),
            "threads": [[pid, tid, name] for (pid, tid), name in self._threads.items()],
        }

    def absorb(self, totals: dict[str, Any]) -> None:
        """Add what another has read of the same recording, after what was read here."""
        self.n_events += totals["n_events"]
        self.n_gpu += totals["n_gpu"]
        self.n_accelerator += totals["n_accelerator"]
        if totals["last_ns"] is not None:
            self.last_ns = max(self.last_ns or 0, totals["last_ns"])
        for process in totals["processes"]:
            self._name_process(**process)
        for pid, tid, name in totals["threads"]:
            self._threads[pid, tid] = name

    def _name_process(self, pid: int, name: str | None, label: str | None) -> None:
        row = self._processes.setdefault(pid, {"pid": pid, "name": None, "label": None})
        row["name"], row["label"] = name or row["name"], label or row["label"]

    def close(self) -> None:
        """Write what was gathered over all blocks."""
        import pyarrow as pa

        if self._processes:
            self._sink.insert("process", pa.Table.from_pylist(list(self._processes.values())))
        if self._threads:
            rows = [{"pid": p, "tid": t, "name": n} for (p, t), n in self._threads.items()]
            self._sink.insert("thread", pa.Table.from_pylist(rows))
        self._con.close()
        os.close(self._file)

    def _load(self, parts: tuple[bytes | memoryview, ...]) -> bool:
        """Fill `event`; False when the text is refused, also with its times read as text."""
        for is_quoted in (False, True)[self._is_quoted :]:
            spelled = self._respelled(parts, is_quoted)
            os.ftruncate(self._file, os.pwritev(self._file, (b"[", *spelled, b"]"), 0))
            form = "texts" if is_quoted else "doubles"
            try:
                self._con.execute(
                    f"CREATE OR REPLACE TABLE event AS"
                    f" FROM from_{form}('/proc/self/fd/{self._file}')"
                )
            except duckdb.Error:
                continue
            return True
        return False

    def _respelled(
        self, parts: tuple[bytes | memoryview, ...], is_quoted: bool
    ) -> tuple[bytes | memoryview, ...]:
        """Keys as `block` expects them; a key in quotes and a colon occur in no JSON string."""
        pairs = (_OLD if self._is_old else ()) + ((_MEMORY,) if self._is_memory else ())
        if not pairs and not is_quoted:
            return parts
        text = b"".join(parts)
        for old, new in pairs:
            text = text.replace(old, new)
        return (_TIME.sub(rb'"\1"\2"\3"', text) if is_quoted else text,)

    def _census(self, parts: tuple[bytes | memoryview, ...]) -> dict[str, Any]:
        result = self._con.execute("FROM census")
        names = [c[0] for c in result.description]
        census = dict(zip(names, result.fetchone() or (), strict=True))
        if census["is_far"] and any(_FRACTION.search(part) for part in parts):
            census["is_rough"] = True
        return census

    def _spelling_is_new(self, census: dict[str, Any]) -> bool:
        before = (self._is_old, self._is_memory, self._is_quoted)
        self._is_old |= census["is_old"]
        self._is_memory |= census["is_memory"]
        self._is_quoted |= census["is_rough"]
        return before != (self._is_old, self._is_memory, self._is_quoted)

    def _write(self, census: dict[str, Any]) -> None:
        first_id = self.n_events - (census["first_row"] or 0)
        self._con.execute("SET VARIABLE first_id = $1::BIGINT", [first_id])
        for table in ("gpu_op", "cpu_op", "memory_event"):
            rows = self._con.sql(f"FROM {table}").to_arrow_table()
            if rows.num_rows:
                self._sink.insert(table, rows)
        for what, pid, tid, name, label in self._con.execute("FROM metadata").fetchall():
            if what == "thread_name":
                self._threads[pid, tid] = name
            else:
                self._name_process(pid, name, label)
        self.n_events += census["n_events"]
        self.n_gpu += census["n_gpu"]
        self.n_accelerator += census["n_accelerator"]
        if census["last_ns"] is not None:
            self.last_ns = max(self.last_ns or 0, census["last_ns"])
        self._sink.count_elements(census["n_events"])
        for column in _NOTES:
            if census[column]:
                self._note(column, census[column], census.get(_EXAMPLES.get(column, "")))

    def _note(self, column: str, count: int, example: str | None) -> None:
        level, code, message, lost = _NOTES[column]
        self._sink.note(level, code, message, count=count, example=example, lost=lost)
