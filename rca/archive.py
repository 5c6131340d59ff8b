"""Archives of untrusted origin, unpacked within stated limits."""

from __future__ import annotations

import io
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from rca.errors import BundleError
from rca.parsers.stream import (
    DAMAGE,
    MAX_RATIO,
    MAX_UNPACKED,
    RATIO_FLOOR,
    compression,
    read_head,
)

DEFAULT_MAX_UNPACKED = MAX_UNPACKED
MAX_MEMBERS = 20_000
_COPY_BYTES = 1024**2
_MOST_LIST_BYTES = 1024 * MAX_MEMBERS
_MOST_NAME_BYTES = 200
_MOST_EMPTY = 1000
# What reading an archive raises where its bytes make no sense; NotImplementedError is zipfile's word for a way of
# compressing that it does not know.
_DAMAGE: tuple[type[Exception], ...] = (
    *DAMAGE, IndexError, NotImplementedError, OverflowError, ValueError, struct.error,
    tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip

Member = tuple[str, IO[bytes], int | None]
"""Name, content, and bytes that it is packed to where that is known."""


def is_archive(path: Path) -> bool:
    """Whether it is a zip or tar archive, the latter compressed or not; told by content."""
    with path.open("rb") as file:
        magic = file.read(512)
    if magic.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return True
    kind = compression(magic)
    if kind == "zstd":
        with _tar_stream(path) as stream:
            try:
                return stream.read(512)[257:262] == b"ustar"
            except OSError:
                return False
    head = magic if kind is None else read_head(path, 512).data
    return head[257:262] == b"ustar"


def unpack(
    path: Path, target: Path, max_unpacked: int, refused: list[tuple[str, str]]
) -> Iterator[tuple[str, Path]]:
    """Names and unpacked paths of the regular files in an archive.

    Members that are links, devices, or point outside are not unpacked and end in `refused`.

    Raises:
        BundleError: The archive is a bomb, has too many members, or cannot be read at all.
    """
    target.mkdir(parents=True, exist_ok=True)
    budget = _Budget(path, max_unpacked)
    if is_zip := zipfile.is_zipfile(path):
        members = _zip_members(path, refused)
    else:
        members = _tar_members(path, max_unpacked, refused)
    for number, member in enumerate(_until_damaged(path, members, refused)):
        name, stream, packed = _text(member[0]), *member[1:]
        if number >= MAX_MEMBERS:
            raise _too_many(path)
        out = target / f"{number:06d}" / _file_name(name)
        out.parent.mkdir()
        if error := budget.copy(stream, out, name, packed):
            _refuse(refused, path, name, f"is damaged: {error}")
            if not is_zip:  # what follows in a tar cannot be found any more
                return
        else:
            yield name, out


def _refuse(refused: list[tuple[str, str]], path: Path, name: str, why: str) -> None:
    if len(refused) >= MAX_MEMBERS:
        raise _too_many(path)
    refused.append((f"{path}!{_text(name)}", why))


def _until_damaged(
    path: Path, members: Iterator[Member], refused: list[tuple[str, str]]
) -> Iterator[Member]:
    """The members until the list of them makes no sense."""
    while True:
        try:
            member = next(members, None)
        except _DAMAGE as error:
            told = f"archive is damaged: {error}; members before the damage are kept"
            refused.append((str(path), told))
            return
        if member is None:
            return
        yield member


def _too_many(path: Path) -> BundleError:
    return BundleError(f"has more than {MAX_MEMBERS:,} members", path=str(path))


def _bomb(path: Path, limit: int, name: str | None = None) -> BundleError:
    return BundleError(
        f"unpacks to more than {limit:,} bytes or grows too much",
        path=str(path), place=name, hint="raise --max-unpacked if you trust it",
    )  # fmt: skip


def _file_name(name: str) -> str:
    """The last part of a member's name, so short that a file can have it."""
    kept = PurePosixPath(name).name.encode()[-_MOST_NAME_BYTES:]
    return kept.decode("utf-8", "replace")


def _text(name: str) -> str:
    r"""A member's name as text; bytes that are no UTF-8 are written `\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode()


class _Budget:
    """Bytes that may still be written, over all members."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit, self.left = path, limit, limit

    def copy(
        self, stream: IO[bytes], out: Path, name: str, packed: int | None
    ) -> Exception | None:
        """Write a member to a file; gives back what is wrong with its bytes.

        Raises:
            BundleError: It is a bomb.
            OSError: The file cannot be written.
        """
        written = 0
        with out.open("wb") as file:
            while True:
                try:
                    block = stream.read(_COPY_BYTES)
                except _DAMAGE as error:
                    return error
                if not block:
                    return None
                written += len(block)
                self.left -= len(block)
                grown = packed and written > RATIO_FLOOR and written > packed * MAX_RATIO
                if self.left < 0 or grown:
                    shutil.rmtree(out.parent.parent, ignore_errors=True)
                    raise _bomb(self.path, self.limit, name)
                file.write(block)


def _safe(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    leads_out = path.is_absolute() or ".." in path.parts
    return bool(path.name) and not leads_out and "\0" not in name


class _ZipFile(io.FileIO):
    """A zip whose list of members is read at once, however long it says it is: not without end."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_LIST_BYTES:
            raise _too_many(Path(str(self.name)))
        return super().read(-1 if size is None else size)


def _zip_members(path: Path, refused: list[tuple[str, str]]) -> Iterator[Member]:
    with _ZipFile(path) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                continue
            if not _safe(info.filename) or (mode and (mode & 0o170000) not in (0, 0o100000)):
                _refuse(refused, path, info.filename, "not a plain file inside the archive")
            elif info.flag_bits & 1:
                _refuse(refused, path, info.filename, "is encrypted")
            else:
                try:
                    stream = archive.open(info)
                except _DAMAGE as error:
                    _refuse(refused, path, info.filename, f"cannot be unpacked: {error}")
                    continue
                with stream:
                    yield info.filename, stream, info.compress_size


class _TarFile:
    """The text of a tar, read once and not without end, members that are passed over included."""

    def __init__(self, stream: IO[bytes], path: Path, limit: int) -> None:
        self._stream, self._path, self._limit = stream, path, limit
        packed = path.stat().st_size
        self._most = min(2 * limit + RATIO_FLOOR, max(packed * MAX_RATIO, RATIO_FLOOR))
        self._n_bytes = self._n_empty = 0

    def read(self, size: int) -> bytes:
        """See IO; raises when nothing comes any more, however long the next member says it is."""
        block = self._stream.read(size)
        self._n_bytes += len(block)
        self._n_empty += not block
        if self._n_empty > _MOST_EMPTY:
            raise EOFError("it is cut short")
        if self._n_bytes > self._most:
            raise _bomb(self._path, self._limit)
        return block


def _tar_members(path: Path, limit: int, refused: list[tuple[str, str]]) -> Iterator[Member]:
    with (
        _tar_stream(path) as stream,
        tarfile.open(
            fileobj=cast(IO[bytes], _TarFile(stream, path, limit)), mode="r|"
        ) as archive,
    ):
        for info in archive:
            if info.isdir():
                continue
            content = archive.extractfile(info) if info.isreg() and _safe(info.name) else None
            if content is None:
                _refuse(refused, path, info.name, "not a plain file inside the archive")
            else:
                yield info.name, content, None


def _tar_stream(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        kind = compression(file.read(8))
    if kind is None:
        return path.open("rb")
    if kind == "zstd":
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    import bz2
    import lzma

    from isal import igzip

    opener = {"gzip": igzip.open, "bzip2": bz2.open, "xz": lzma.open}[kind]
    return opener(path, "rb")  # type: ignore[no-any-return,operator]
