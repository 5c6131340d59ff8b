"""Files that appear whole or not at all, and stay when the power goes."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Where results are kept that can be made again; it may not be there, nor be writable.

    Raises:
        RuntimeError: The user has no home.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "trace-rca"


def write_whole(path: Path, content: str | BinaryIO) -> None:
    """Write text, or copy an open file; see `whole`."""
    with whole(path) as file:
        if isinstance(content, str):
            file.write(content.encode())
        else:
            shutil.copyfileobj(content, file)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, under another name; in the end fsync and rename.

    Raises:
        OSError: It cannot be written; then `path` is as it was, as after any error inside.
    """
    _remove_abandoned(path)
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    try:
        with half.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # ends with the process, however it ends
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # else the new name may be lost
    finally:
        os.close(folder)


def _remove_abandoned(path: Path) -> None:
    """Remove what processes left of this file that were killed while they wrote it."""
    for half in path.parent.glob(f".{glob.escape(path.name)}.*.half"):
        with (
            suppress(OSError),
            half.open("rb") as file,
        ):  # another process was faster, or writes it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            half.unlink()
