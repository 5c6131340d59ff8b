"""Bytes of a file, decompressed by its content and not by its name."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from isal import isal_zlib

from rca.errors import ParseError
from rca.parsers.format import Head

HEAD_BYTES = 65_536
BLOCK_BYTES = 4_194_304
MAX_RATIO = 1_000
"""What grows more than this when unpacked is taken for a bomb (deflate's limit is 1,032)."""
RATIO_FLOOR = 67_108_864
"""So many bytes are never too many."""
MAX_UNPACKED = 20 * 1024**3
DAMAGE: tuple[type[Exception], ...] = (
    zlib.error,
    OSError,
    EOFError,
    lzma.LZMAError,
    cast(type[Exception], isal_zlib.error),
)
"""What unpacking raises where the bytes make no sense."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def compression(magic: bytes) -> str | None:
    """'gzip', 'bzip2', 'xz', 'zstd' or None, told by the first bytes."""
    if magic.startswith(b"\x1f\x8b"):
        return "gzip"
    if magic.startswith(b"BZh"):
        return "bzip2"
    if magic.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return None


def _decompressor(kind: str, path: Path) -> _Decompressor:
    if kind == "gzip":
        return cast(_Decompressor, isal_zlib.decompressobj(wbits=31))
    if kind == "bzip2":
        return bz2.BZ2Decompressor()
    if kind == "xz":
        return lzma.LZMADecompressor()
    raise ParseError(
        "is compressed with zstd, which is read inside .tar.zst archives only",
        path=str(path),
        hint="decompress it with: zstd -d FILE",
    )


class Blocks:
    """The decompressed blocks of a file, in order.

    A compressed file that is cut or damaged gives everything up to the damage; then `damage`
    says what is wrong. It is None for a sound file. No block is much larger than asked for,
    whatever it was packed to.

    Raises:
        ParseError: While reading: it is compressed with zstd, or unpacks to so much more than its
            size that it must be a bomb.
    """

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES) -> None:
        self.path, self.block_bytes = path, block_bytes
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            kind = compression(file.read(8))
            file.seek(0)
            if kind is None:
                yield from iter(lambda: file.read(self.block_bytes), b"")
            else:
                yield from self._decompressed(file, kind)

    def _decompressed(self, file: BinaryIO, kind: str) -> Iterator[bytes]:
        state = _decompressor(kind, self.path)
        n_in = n_out = 0
        while data := file.read(max(self.block_bytes // 4, 1)):
            n_in += len(data)
            while data:
                if state.eof:  # a further member of the same file, or padding after the last
                    if not data.strip(b"\0"):
                        return
                    state = _decompressor(kind, self.path)
                try:
                    for block in _pieces(state, data, 2 * self.block_bytes):
                        n_out += len(block)
                        self._stop_a_bomb(n_in, n_out)
                        if block:
                            yield block
                except DAMAGE as error:
                    self.damage = f"{kind} data is damaged: {error}"
                    return
                data = state.unused_data if state.eof else b""
        if n_in and not state.eof:
            self.damage = f"{kind} data is cut short"

    def _stop_a_bomb(self, n_in: int, n_out: int) -> None:
        if n_out > MAX_UNPACKED or n_out > max(RATIO_FLOOR, n_in * MAX_RATIO):
            raise ParseError(
                f"unpacks to more than {MAX_UNPACKED:,} bytes, or to more than {MAX_RATIO:,} times its size",
                path=str(self.path),
                hint="unpack it yourself if you trust it",
            )


def _pieces(state: _Decompressor, data: bytes, limit: int) -> Iterator[bytes]:
    """All that some packed bytes become, at most `limit` bytes at a time."""
    while True:
        yield state.decompress(data, limit)
        data = getattr(state, "unconsumed_tail", b"")
        if state.eof or not (data or not getattr(state, "needs_input", True)):
            return


def read_head(path: Path, size: int = HEAD_BYTES) -> Head:
    """The first `size` decompressed bytes, fewer when the file is shorter or damaged."""
    data = bytearray()
    for block in Blocks(path, size):
        data += block
        if len(data) >= size:
            break
    return Head(path, bytes(data[:size]))


def read_all(path: Path, limit: int) -> tuple[bytes, str | None]:
    """All decompressed bytes and what damage was met, for formats that are small by nature.

    Raises:
        ParseError: More than `limit` bytes.
    """
    blocks = Blocks(path, max(BLOCK_BYTES, min(path.stat().st_size, limit)))
    parts, size = [], 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > limit:
            raise ParseError(
                f"is larger than {limit:,} bytes, too large for its format", path=str(path)
            )
    return b"".join(parts), blocks.damage
