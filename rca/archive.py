"""Archives of untrusted origin, unpacked within stated limits."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from rca.errors import BundleError
from rca.parsers.stream import MAX_RATIO, MAX_UNPACKED, RATIO_FLOOR, compression, read_head

DEFAULT_MAX_UNPACKED = MAX_UNPACKED
MAX_MEMBERS = 20_000
_COPY_BYTES = 1024**2


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
    try:
        members = (
            _zip_members(path, refused)
            if zipfile.is_zipfile(path)
            else _tar_members(path, refused)
        )
        for number, (name, stream, packed) in enumerate(members):
            if number >= MAX_MEMBERS:
                raise BundleError(f"has more than {MAX_MEMBERS:,} members", path=str(path))
            out = target / f"{number:06d}" / PurePosixPath(name).name
            out.parent.mkdir()
            budget.copy(stream, out, name, packed)
            yield name, out
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        refused.append(
            (str(path), f"archive is damaged: {error}; members before the damage are kept")
        )


class _Budget:
    """Bytes that may still be written, over all members."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit, self.left = path, limit, limit

    def copy(self, stream: IO[bytes], out: Path, name: str, packed: int | None) -> None:
        written = 0
        with out.open("wb") as file:
            while block := stream.read(_COPY_BYTES):
                written += len(block)
                self.left -= len(block)
                grown = packed and written > RATIO_FLOOR and written > packed * MAX_RATIO
                if self.left < 0 or grown:
                    shutil.rmtree(out.parent.parent, ignore_errors=True)
                    raise BundleError(
                        f"unpacks to more than {self.limit:,} bytes or grows too much",
                        path=str(self.path),
                        place=name,
                        hint="raise --max-unpacked if you trust it",
                    )
                file.write(block)


def _safe(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and bool(path.name)


def _zip_members(
    path: Path, refused: list[tuple[str, str]]
) -> Iterator[tuple[str, IO[bytes], int | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                continue
            if not _safe(info.filename) or (mode and (mode & 0o170000) not in (0, 0o100000)):
                refused.append(
                    (f"{path}!{info.filename}", "not a plain file inside the archive")
                )
            elif info.flag_bits & 1:
                refused.append((f"{path}!{info.filename}", "is encrypted"))
            else:
                with archive.open(info) as stream:
                    yield info.filename, stream, info.compress_size


def _tar_members(
    path: Path, refused: list[tuple[str, str]]
) -> Iterator[tuple[str, IO[bytes], int | None]]:
    with _tar_stream(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for info in archive:
            if info.isdir():
                continue
            content = archive.extractfile(info) if info.isreg() and _safe(info.name) else None
            if content is None:
                refused.append((f"{path}!{info.name}", "not a plain file inside the archive"))
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
