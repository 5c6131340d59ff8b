"""PyTorch Profiler (Kineto) recordings, in every spelling since torch 1.8, whole or damaged.

The file streams through in blocks that end between two events. A block goes to DuckDB as it is;
one that is refused is read in smaller pieces, and a piece that is refused event by event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.stream import Blocks
from rca.parsers.torch_profiler_events import EventTables
from rca.parsers.torch_profiler_salvage import walk

BLOCK_BYTES = 8_388_608
PIECE_BYTES = 524_288
READ_BYTES = 2_097_152
MAX_HEAD_BYTES = 268_435_456
TAIL_BYTES = 4_194_304
_YEAR_2001_NS = 1_000_000_000_000_000_000
_LEADING = b" \r\n\t,"
_STARTS = (b" ", b"\r", b"\n", b"\t", b",")
_BOM = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATOR = re.compile(rb"\}\s*,\s*(?=\{)")
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
    head, first = _split_head(path, stream)
    if _TIMELINE.match(first):
        raise ParseError(
            "is a memory timeline (export_memory_timeline), not a trace",
            path=str(path),
            hint="record with profile_memory=True and export_chrome_trace",
        )
    base_ns = _find_base(path, head)
    tables = EventTables(sink, base_ns or 0)
    reader = _Reader(tables, sink)
    tail = reader.read(first, stream)
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
        _json_object(head + b'"traceEvents":[]}')
        | _json_object(b"{" + tail.strip().lstrip(b",")),
        base_ns,
    )
    _note_content(sink, tables, base_ns)


def _split_head(path: Path, stream: Iterator[bytes]) -> tuple[bytes, bytes]:
    """What stands before the events, and the beginning of the events."""
    data = b""
    for block in stream:
        data = (data + block) if data else block.removeprefix(_BOM)
        if data.lstrip()[:1] == b"[":
            return b"{", data.lstrip() if _TIMELINE.match(data) else data.lstrip()[1:]
        if found := _EVENTS.search(data):
            return data[: found.start()], data[found.end() :]
        if len(data) > MAX_HEAD_BYTES:
            break
    raise ParseError(
        "has no traceEvents", path=str(path), hint="it was cut before the first event"
    )


def _find_base(path: Path, head: bytes) -> int | None:
    """What times count from; many writers put it after the events, so the end is looked at first."""
    if found := _BASE.search(head):
        return int(found[1])
    end = b""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b" and path.stat().st_size > TAIL_BYTES:
            file.seek(-TAIL_BYTES, 2)
            end = file.read()
    if not end:
        for block in Blocks(path, READ_BYTES):
            end = (end + block)[-TAIL_BYTES:]
    matches = _BASE.findall(end)
    return int(matches[-1]) if matches else None


class _Reader:
    """Takes the events out of the text as it comes."""

    def __init__(self, tables: EventTables, sink: Sink) -> None:
        self._tables, self._sink = tables, sink
        self._separator: bytes | None = None
        self._tail: bytes | None = None

    def read(self, first: bytes, stream: Iterator[bytes]) -> bytes:
        """All events; returns what follows them."""
        buffer = b""
        for block in _gathered(first, stream):
            if self._tail is None:
                buffer = self._take(buffer, block)
            else:
                self._tail = (self._tail + block)[:MAX_HEAD_BYTES]
        if self._tail is None:
            self._walk(buffer, final=True)
        if self._tail is None:
            self._sink.note(
                "error",
                "truncated",
                "the file is cut; the complete events before the cut were kept",
                lost=True,
            )
        return self._tail or b""

    def _take(self, rest: bytes, block: bytes) -> bytes:
        """Write the events that end in `block`; returns what is left, which may be all."""
        rest = rest.lstrip(_LEADING)
        if not rest and block[:1] in _STARTS:
            block = block.lstrip(_LEADING)
        cut = self._cut(block)
        if cut and self._tables.add(rest, memoryview(block)[:cut]):
            return block[cut:]
        if len(rest) + len(block) < PIECE_BYTES:
            return rest + block
        return self._take_pieces(rest + block)

    def _take_pieces(self, buffer: bytes) -> bytes:
        at = 0
        rest = b""
        while at < len(buffer) and self._tail is None:
            cut = self._cut(buffer[at : at + PIECE_BYTES])
            end = at + (cut or PIECE_BYTES)
            piece = (rest + buffer[at:end]).lstrip(_LEADING)
            at, rest = end, b""
            if piece and not self._tables.add(piece):
                rest = self._walk(piece, final=False)
        if self._tail is not None:
            self._tail += buffer[at:]
            return b""
        return rest

    def _walk(self, piece: bytes, *, final: bool) -> bytes:
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            text = piece.decode("utf-8", "replace")
            self._sink.note("warning", "not_utf8", "bytes that are not UTF-8 were replaced")
        found = walk(text, final=final)
        if found.events:
            self._tables.add_events(found.events)
        if found.lost:
            self._sink.count_elements(found.lost)
            self._sink.note(
                "warning", "lost_event", "damaged events were skipped",
                count=found.lost, example=found.example, lost=True,
            )  # fmt: skip
        if found.repaired:
            self._sink.note(
                "warning", "repaired_event", "events with unescaped text were mended",
                count=found.repaired, example=found.example,
            )  # fmt: skip
        rest = found.rest.encode("utf-8", "replace")
        if found.closed:
            self._tail = rest
            return b""
        return rest

    def _cut(self, text: bytes) -> int:
        """Where the last event that is complete ends, as far as one can tell; 0 when none does."""
        if self._separator is None:
            found = _SEPARATOR.search(text)
            self._separator = found[0] + b"{" if found else None
        if self._separator and (at := text.rfind(self._separator)) >= 0:
            return at + 1
        last = 0
        for found in _SEPARATOR.finditer(text, max(0, len(text) - PIECE_BYTES)):
            last = found.start() + 1
        return last


def _gathered(first: bytes, stream: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of at least BLOCK_BYTES, then a smaller one before the end.

    The last block ends in what follows the events, so it is made small: it is read piece by piece.
    """
    parts, size = [first], len(first)
    for block in stream:
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(block)
        size += len(block)
    last = b"".join(parts)
    cut = max(0, len(last) - PIECE_BYTES)
    yield from (part for part in (last[:cut], last[cut:]) if part)


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


def _device(device: dict[str, Any]) -> dict[str, Any]:
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    name = device.get("name")
    return {
        "id": _number(device.get("id")),
        "name": name if isinstance(name, str) and name else None,
        "memory_bytes": _number(device.get("totalGlobalMem")),
        "sm_count": _number(device.get("numSms")),
        "compute_capability": f"{major}.{minor}"
        if major is not None and minor is not None
        else None,
    }


def _number(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        else None
    )


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
