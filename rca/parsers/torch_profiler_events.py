"""Blocks of profiler events on their way to rows: DuckDB reads the JSON, in a private database."""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from typing import Any

import duckdb
import polars as pl

from rca.parsers.format import Sink
from rca.parsers.torch_profiler_rows import (
    census,
    collectives,
    cpu_ops,
    events_of,
    gpu_ops,
    hardware_counters,
    memory_events,
    names,
)
from rca.parsers.torch_profiler_salvage import plain

_TIME = re.compile(rb'"(ts|dur)"(\s*:\s*)(-?[0-9][0-9.eE+-]*)')
_FRACTION = re.compile(rb'"(?:ts|dur)"\s*:\s*"?-?[0-9]+[.eE]')
_COLLECTIVE = re.compile(rb'"Collective name"')
_OLD = ((b'"external id":', b'"External id":'), (b'"Input dims":', b'"Input Dims":'))
_MEMORY = (b'"Bytes":', b'"delta":')
_NOTES = {  # what `census` counts: (level, code, message, lost)
    "unknown": ("warning", "unknown_category", "events of a category that is not known were left out", True),
    "untimed": ("warning", "no_time", "events without a usable time were left out", True),
    "flawed": ("warning", "bad_duration", "durations that are missing, negative or absurd; no sum counts them", False),
    "counters": ("info", "counters", "counter events are not read", False),
    "pairs": ("warning", "begin_end_events", "begin and end events are not read, only complete ones", True),
    "no_phase": ("warning", "no_phase", "elements without a phase are no events and were left out", True),
    "large": ("info", "large_number", "numbers beyond 64 bits became NULL", False),
}  # fmt: skip


class EventTables:
    """Writes the events of one recording, block by block, to a sink.

    How the recording spells things (`is_old`, `is_memory`), whether its times need every digit
    (`is_quoted`), and whether it has collectives (`is_collective`), is found in the first block that
    shows it; that block is read again.
    """

    def __init__(self, sink: Sink, base_ns: int) -> None:
        self._sink, self.base_ns = sink, base_ns
        self.n_events = self.n_gpu = self.n_accelerator = 0
        self.last_ns: int | None = None
        self._is_old = self._is_memory = self._is_quoted = self._is_collective = False
        self._processes: dict[int, dict[str, Any]] = {}
        self._threads: dict[tuple[int, int | None], str | None] = {}
        # One file in memory is written over and over: its pages are there already.
        self._file = os.memfd_create("block")
        self._con = duckdb.connect(":memory:", config={"threads": 1})
        self._con.execute("SET enable_external_file_cache = false")
        self._con.execute(files("rca.parsers").joinpath("torch_profiler.sql").read_text())

    def add(self, *parts: bytes | memoryview) -> bool:
        """Write the events of a text in parts, commas between them; False when it is not sound JSON."""
        while True:
            columns = self._load(parts)
            if columns is None:
                return False
            events = events_of(columns, self.base_ns, self.n_events)
            found = self._census(events, parts)
            if not self._spelling_is_new(found):
                break
        self._write(events, found)
        return True

    def add_events(self, events: list[dict[str, Any]]) -> None:
        """Write events that were read one by one."""
        rows = [plain(event) for event in events]
        dropped = sum(n for _, n in rows)
        if dropped:
            self._note("large", dropped, None)
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

    def _load(self, parts: tuple[bytes | memoryview, ...]) -> pl.DataFrame | None:
        """The columns of a text; None when it is refused, also with its times read as text."""
        for is_quoted in (False, True)[self._is_quoted :]:
            spelled = self._respelled(parts, is_quoted)
            os.ftruncate(self._file, os.pwritev(self._file, (b"[", *spelled, b"]"), 0))
            form = "texts" if is_quoted else "doubles"
            keys = "collective_arguments" if self._is_collective else "arguments"
            try:
                columns = self._con.sql(
                    f"FROM from_{form}('/proc/self/fd/{self._file}', {keys}())"
                )
                return pl.DataFrame(pl.from_arrow(columns.to_arrow_table()))
            except duckdb.Error:
                continue
        return None

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

    def _census(
        self, events: pl.DataFrame, parts: tuple[bytes | memoryview, ...]
    ) -> dict[str, Any]:
        found = census(events)
        if found["is_far"] and any(_FRACTION.search(part) for part in parts):
            found["is_rough"] = True
        if (
            found["is_collective"] and not self._is_collective
        ):  # more keys take more time to read
            found["is_collective"] = any(_COLLECTIVE.search(part) for part in parts)
        return found

    def _spelling_is_new(self, found: dict[str, Any]) -> bool:
        before = (self._is_old, self._is_memory, self._is_quoted, self._is_collective)
        self._is_old |= found["is_old"]
        self._is_memory |= found["is_memory"]
        self._is_quoted |= found["is_rough"]
        self._is_collective |= found["is_collective"]
        now = (self._is_old, self._is_memory, self._is_quoted, self._is_collective)
        return before != now

    def _write(self, events: pl.DataFrame, found: dict[str, Any]) -> None:
        for table, rows in (
            ("gpu_op", gpu_ops(events)),
            ("cpu_op", cpu_ops(events)),
            ("memory_event", memory_events(events)),
            ("collective", collectives(events)),
        ):
            if rows.height:
                self._sink.insert(table, rows.to_arrow())
        if found["has_counters"]:
            told = self._con.sql(
                f"FROM counters('/proc/self/fd/{self._file}')"
            ).to_arrow_table()
            rows = hardware_counters(events, pl.DataFrame(pl.from_arrow(told)))
            self._sink.insert("hardware_counter", rows.to_arrow())
        for named in names(events):
            what, tid = named.pop("what"), named.pop("tid")
            if what == "thread_name":
                self._threads[named["pid"], tid] = named["name"]
            else:
                self._name_process(**named)
        self.n_events += events.height
        self.n_gpu += found.get("gpu", 0)
        self.n_accelerator += found["accelerator"]
        if found["last_ns"] is not None:
            self.last_ns = max(self.last_ns or 0, found["last_ns"])
        self._sink.count_elements(events.height)
        for what in _NOTES:
            if found.get(what):
                self._note(what, found[what], found["examples"].get(what))

    def _note(self, what: str, count: int, example: str | None) -> None:
        level, code, message, lost = _NOTES[what]
        self._sink.note(level, code, message, count=count, example=example, lost=lost)
