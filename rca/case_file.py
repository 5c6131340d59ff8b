"""The file of a case: begun as a copy of an empty one, opened, refused while used, removed."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

from rca.durable import cache_folder, write_whole
from rca.errors import CaseError

_KEPT: dict[str, bytes] = {}
"""Empty cases of this process, by the names of their files in the user's cache."""


def stop_if_used(path: Path) -> None:
    """Stop before a case is replaced that a process has open; the lock is the one that DuckDB takes."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _used(path) from error


def _used(path: Path | None) -> CaseError:
    hint = "close it there, or choose another --out"
    return CaseError("is in use by another process", path=str(path), hint=hint)


def remove(path: Path) -> None:
    """Remove a case file and its log, where they are."""
    for old in (path.with_name(path.name + ".wal"), path):
        old.unlink(missing_ok=True)


def connect(path: Path | None, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection in UTC that loads no extension by itself; in memory without a path.

    Raises:
        CaseError: It cannot be opened, or another process has it.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    try:
        con = duckdb.connect(
            ":memory:" if path is None else str(path), read_only=read_only, config=config
        )
        con.execute("SET TimeZone = 'UTC'")
        # Only where it is on: in a notebook without ipywidgets even switching it off fails.
        if con.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
            con.execute("SET enable_progress_bar = false")
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        if "lock" in first.lower():
            raise _used(path) from error
        raise CaseError(f"cannot be opened: {first}", path=str(path)) from error
    return con


def kept_empty(statements: Sequence[str]) -> bytes | None:
    """The file of the empty case that these statements make; None where none was kept.

    To bind all views takes DuckDB half of the time in which a small recording is read.
    """
    name = _name_of(statements)
    if name not in _KEPT:
        # gzip also tells of damage
        with suppress(OSError, EOFError, zlib.error, RuntimeError):
            _KEPT[name] = gzip.decompress((cache_folder() / name).read_bytes())
    return _KEPT.get(name)


def keep_empty(statements: Sequence[str], content: bytes) -> None:
    """Keep it for this process, and for others where the user's cache can be written."""
    name = _name_of(statements)
    _KEPT[name] = content
    with suppress(OSError, RuntimeError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_whole(cache_folder() / name, io.BytesIO(gzip.compress(content, mtime=0)))


def _name_of(statements: Sequence[str]) -> str:
    """Another one for other statements, and for another DuckDB."""
    made_by = "\n".join((duckdb.__version__, *statements)).encode()
    return f"case-{hashlib.sha256(made_by).hexdigest()[:16]}.duckdb.gz"
