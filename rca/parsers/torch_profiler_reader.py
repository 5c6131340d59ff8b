"""Takes profiler events out of text as it comes, in blocks that end between two events.

A block goes to DuckDB as it is; one that is refused is read in smaller pieces, and a piece that is
refused event by event. A wrong cut, inside a string or a nested object, leaves the text unbalanced,
so that it is always refused, and what is not complete waits for the text that follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rca.parsers.format import Sink
from rca.parsers.torch_profiler_events import EventTables
from rca.parsers.torch_profiler_salvage import walk

BLOCK_BYTES = 16_777_216
PIECE_BYTES = 524_288
MAX_TAIL_BYTES = 268_435_456
SEPARATOR = re.compile(rb"\}\s*,\s*(?=\{)")
_LEADING = b" \r\n\t,"
_STARTS = (b" ", b"\r", b"\n", b"\t", b",")


class Reader:
    """Takes the events out of the text as it comes."""

    def __init__(self, tables: EventTables, sink: Sink) -> None:
        self._tables, self._sink = tables, sink
        self._separator: bytes | None = None
        self._tail: bytes | None = None
        self._buffer = b""

    def feed(self, stream: Iterator[bytes]) -> None:
        """Read the text of a stream; what of it is not complete yet waits for the next."""
        for block in _gathered(stream):
            if self._tail is None:
                self._buffer = self._take(self._buffer, block)
            else:
                self._tail = (self._tail + block)[:MAX_TAIL_BYTES]

    def ends_here(self) -> bool:
        """Whether the last event is complete and nothing is left over, so that another may go on."""
        if self._tail is None and self._buffer:
            self._buffer = self._walk(self._buffer.lstrip(_LEADING), final=False)
        return self._tail is None and not self._buffer.strip(_LEADING)

    def finish(self) -> bytes:
        """Read what is left; returns what follows the events."""
        if self._tail is None:
            self._walk(self._buffer, final=True)
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
        at = again = 0
        rest = b""
        while at < len(buffer) and self._tail is None:
            cut = self._cut(buffer[at : at + PIECE_BYTES])
            end = at + (cut or PIECE_BYTES)
            piece = (rest + buffer[at:end]).lstrip(_LEADING)
            at, rest = end, b""
            if len(piece) < again and at < len(buffer):  # an event without end is not read
                rest = piece  # from its beginning with every piece, only when it has doubled
                continue
            if piece and not self._tables.add(piece):
                rest = self._walk(piece, final=False)
                again = 2 * len(rest)
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
            found = SEPARATOR.search(text)
            self._separator = found[0] + b"{" if found else None
        if self._separator and (at := text.rfind(self._separator)) >= 0:
            return at + 1
        last = 0
        for found in SEPARATOR.finditer(text, max(0, len(text) - PIECE_BYTES)):
            last = found.start() + 1
        return last


def _gathered(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of at least BLOCK_BYTES, then a smaller one before the end.

    The last block ends in what follows the events, so it is made small: it is read piece by piece.
    """
    parts: list[bytes] = []
    size = 0
    for block in stream:
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        parts.append(block)
        size += len(block)
    last = b"".join(parts)
    cut = max(0, len(last) - PIECE_BYTES)
    yield from (part for part in (last[:cut], last[cut:]) if part)
