"""PyTorch Profiler (Kineto) recordings, in every spelling since torch 1.8, whole or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.stream import Blocks, compression
from rca.parsers.torch_profiler_events import EventTables
from rca.parsers.torch_profiler_half import SecondHalf, place, read_blocks, take
from rca.parsers.torch_profiler_reader import Reader

MAX_HEAD_BYTES = 268_435_456
READ_BYTES = 2_097_152
TAIL_BYTES = 4_194_304
_YEAR_2001_NS = 1_000_000_000_000_000_000
_YEAR_2096_NS = 4_000_000_000_000_000_000
_BOM = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
_ARRAY = re.compile(rb'\s*\[\s*\{[^{}]*"ph"\s*:')
_OBJECT = re.compile(
    rb'\s*\{.*"(?:traceEvents|deviceProperties|baseTimeNanoseconds)"\s*:', re.DOTALL
)
_TIMELINE = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*\d+\s*,\s*-?\d+\s*,\s*-?\d+\s*\]")


def recognise(head: Head) -> bool:
    """Whether it is a Chrome trace of the profiler, or the profiler's memory timeline."""
    data = head.data.removeprefix(_BOM)
    return any(pattern.match(data) for pattern in (_ARRAY, _OBJECT, _TIMELINE))


def read(path: Path, sink: Sink) -> None:
    """Write the recording to the sink.

    Raises:
        ParseError: It is a memory timeline, or there are no events in it, not even damaged ones.
    """
    blocks = Blocks(path, READ_BYTES)
    stream = iter(blocks)
    begun = _split_head(path, stream)
    if _TIMELINE.match(begun.first):
        raise ParseError(
            "is a memory timeline (export_memory_timeline), not a trace",
            path=str(path),
            hint="record with profile_memory=True and export_chrome_trace",
        )
    base_ns = _find_base(path, begun.head)
    tables = EventTables(sink, base_ns or 0)
    tail = _read_events(path, begun, stream, tables, sink)
    tables.close()
    if blocks.damage:
        sink.note(
            "error",
            "damaged_compression",
            f"{blocks.damage}; what came before was kept",
            lost=True,
        )
    _describe(
        sink,
        _json_object(begun.head + b'"traceEvents":[]}')
        | _json_object(b"{" + tail.strip().lstrip(b",")),
        base_ns,
    )
    _note_content(sink, tables, base_ns)


def _read_events(
    path: Path, begun: _Beginning, stream: Iterator[bytes], tables: EventTables, sink: Sink
) -> bytes:
    """All events; returns what follows them."""
    reader = Reader(tables, sink)
    if _is_compressed(path):
        reader.feed(chain([begun.first], stream))
        return reader.finish()
    middle = place(path, begun.at)
    with path.open("rb") as file:
        file.seek(begun.at)
        if middle is not None:
            with SecondHalf(path, middle, tables.base_ns) as second:
                reader.feed(read_blocks(file, middle - begun.at))
                half = second.result() if reader.ends_here() else None
                if half:
                    return take(half, tables, sink)
        reader.feed(read_blocks(file))
    return reader.finish()


class _Beginning(NamedTuple):
    """What was read to find the events.

    Attributes:
        head: What stands before them.
        first: Their beginning.
        at: Where in the text of the file they begin.
    """

    head: bytes
    first: bytes
    at: int


def _split_head(path: Path, stream: Iterator[bytes]) -> _Beginning:
    data, size = b"", 0
    for block in stream:
        size += len(block)
        data = (data + block) if data else block.removeprefix(_BOM)
        if data.lstrip()[:1] == b"[":
            first = data.lstrip() if _TIMELINE.match(data) else data.lstrip()[1:]
            return _Beginning(b"{", first, size - len(first))
        if found := _EVENTS.search(data):
            first = data[found.end() :]
            return _Beginning(data[: found.start()], first, size - len(first))
        if len(data) > MAX_HEAD_BYTES:
            break
    raise ParseError(
        "has no traceEvents", path=str(path), hint="it was cut before the first event"
    )


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return compression(file.read(8)) is not None


def _find_base(path: Path, head: bytes) -> int | None:
    """What times count from; many writers put it after the events, so the end is looked at first."""
    if found := _BASE.search(head):
        return _plausible(int(found[1]))
    end = b""
    if not _is_compressed(path) and path.stat().st_size > TAIL_BYTES:
        with path.open("rb") as file:
            file.seek(-TAIL_BYTES, 2)
            end = file.read()
    else:
        for block in Blocks(path, READ_BYTES):
            end = (end + block)[-TAIL_BYTES:]
    matches = _BASE.findall(end)
    return _plausible(int(matches[-1])) if matches else None


def _plausible(base_ns: int) -> int | None:
    return base_ns if base_ns < _YEAR_2096_NS else None


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _describe(sink: Sink, facts: dict[str, Any], base_ns: int | None) -> None:
    job = facts.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    versions = [f"{k.removesuffix('_version')} {facts[k]}" for k in (
        "cupti_version", "cuda_runtime_version", "roctracer_version", "hip_runtime_version") if k in facts]  # fmt: skip
    host = facts.get("host_name", facts.get("hostname"))
    sink.describe(
        host=host.strip('"') if isinstance(host, str) else None,
        producer=" ".join(
            ["PyTorch Profiler", f"({', '.join(versions)})" if versions else ""]
        ).strip(),
        rank=_number(job.get("rank")),
        world_size=_number(job.get("world_size")),
        base_ns=base_ns,
    )
    _write_groups(sink, job.get("pg_config"))
    devices = facts.get("deviceProperties")
    rows = (
        [_device(d) for d in devices if isinstance(d, dict)]
        if isinstance(devices, list)
        else []
    )
    rows = [row for row in rows if row["id"] is not None]
    if rows:
        import pyarrow as pa

        sink.insert("device", pa.Table.from_pylist(rows))


def _write_groups(sink: Sink, groups: Any) -> None:
    """The groups of ranks that the job declared, those without a name left out."""
    listed = groups if isinstance(groups, list) else []
    rows = [_group(g) for g in listed if isinstance(g, dict) and "pg_name" in g]
    if rows:
        import pyarrow as pa

        kinds = [pa.string(), pa.string(), pa.string(), pa.int32(), pa.string()]
        sink.insert(
            "process_group",
            pa.Table.from_pylist(rows, pa.schema(zip(rows[0], kinds, strict=True))),
        )


def _group(group: dict[str, Any]) -> dict[str, Any]:
    """A row of process_group. Some writers give the ranks as text."""
    ranks = group.get("ranks")
    told = ranks if isinstance(ranks, str) else json.dumps(ranks) if ranks else None
    return {
        "name": str(group["pg_name"]),
        "description": _word(group.get("pg_desc")),
        "backend": _word(group.get("backend_config")),
        "size": _number(group.get("pg_size")),
        "ranks": told.replace(" ", "") if told else None,
    }


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _device(device: dict[str, Any]) -> dict[str, Any]:
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    name = device.get("name")
    return {
        "id": _number(device.get("id")),
        "name": name if isinstance(name, str) and name else None,
        "memory_bytes": _number(device.get("totalGlobalMem"), 63),
        "sm_count": _number(device.get("numSms")),
        "compute_capability": f"{major}.{minor}"
        if major is not None and minor is not None
        else None,
    }


def _number(value: Any, bits: int = 31) -> int | None:
    """A whole number that fits, also when it is written as text; else None."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**bits
    return value if fits else None


def _note_content(sink: Sink, tables: EventTables, base_ns: int | None) -> None:
    if not tables.n_events:
        sink.note("warning", "no_events", "there are no events in it, nothing to analyse")
    elif not tables.n_gpu:
        sink.note("warning", "no_gpu_events", "no GPU work was recorded in it")
    if base_ns is None and tables.last_ns is not None and tables.last_ns < _YEAR_2001_NS:
        sink.note(
            "warning", "relative_time",
            "what the times count from is not in it; they are relative, not times of day",
        )  # fmt: skip
    if tables.n_accelerator:
        sink.note(
            "info", "accelerator", "device work of an accelerator that is no GPU is kept as such",
            count=tables.n_accelerator,
        )  # fmt: skip


FORMAT = Format(name="torch_profiler", kind="torch_profiler", recognise=recognise, read=read)
