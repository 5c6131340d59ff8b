"""Folders for what is needed meanwhile only; what killed processes left of them goes with the next run."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX = "rca-work-"
_NEW_S = 60.0  # a folder this young may not be locked yet


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder that is removed in the end, with all that is in it.

    Raises:
        OSError: No folder can be made there; TMPDIR names the place.
    """
    _remove_abandoned(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        handle = os.open(name, os.O_RDONLY)
        try:
            with suppress(OSError):  # a place without locks: then nobody removes it either
                fcntl.flock(handle, fcntl.LOCK_SH)  # ends with the process, however it ends
            yield Path(name)
        finally:
            os.close(handle)


@cache
def _remove_abandoned(place: str) -> None:
    """Remove this user's folders whose process is no more; once a process is enough."""
    for left in Path(place).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process was faster, or works in it
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(handle)
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _NEW_S:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
            finally:
                os.close(handle)
