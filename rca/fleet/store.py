"""Where shards lie: a folder, or any address that fsspec knows."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rca.case import Case
from rca.durable import write_whole
from rca.errors import CaseError, MissingExtra

RECORDS = "_records"
_LOCK = "_lock"


class Store:
    """Files below one address; each appears whole or not at all.

    In a folder that is so by writing under another name, fsync and rename. Object stores show an
    object when its last byte has arrived. Other file systems of fsspec may show half a file; no
    record names it, and a record that is half is taken for none.
    """

    def __init__(self, where: str) -> None:
        self.where = where.rstrip("/")
        self._fs: Any = None
        self.root = str(Path(where).absolute())
        if "://" in where:
            self._fs, self.root = _file_system(where)

    def put(self, source: Path, name: str) -> None:
        """Copy a local file to this name below the address."""
        if self._fs is not None:
            target = f"{self.root}/{name}"
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(source), target)
            return
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file:
            write_whole(path, file)

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        if self._fs is None:
            Path(self.root, name).unlink(missing_ok=True)
        elif self._fs.exists(f"{self.root}/{name}"):
            self._fs.rm_file(f"{self.root}/{name}")

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the records, in the order of their names."""
        if self._fs is None:
            for path in sorted(Path(self.root, RECORDS).glob("*.json")):
                yield f"{RECORDS}/{path.name}", path.read_bytes()
            return
        for found in sorted(self._fs.glob(f"{self.root}/{RECORDS}/*.json")):
            yield f"{RECORDS}/{found.rpartition('/')[2]}", self._fs.cat_file(found)

    def is_there(self) -> bool:
        """Whether there are records below the address."""
        if self._fs is None:
            return Path(self.root, RECORDS).is_dir()
        return bool(self._fs.isdir(f"{self.root}/{RECORDS}"))

    def address(self, name: str) -> str:
        """What DuckDB opens, once `attach` was called."""
        if self._fs is None:
            return f"{self.root}/{name}"
        return str(self._fs.unstrip_protocol(f"{self.root}/{name}"))

    def attach(self, case: Case) -> None:
        """Let a case read files of this store."""
        if self._fs is not None:
            case.attach_files(self._fs)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other ingests out of a folder; the lock ends with the process, however it ends.

        Elsewhere than in a folder nothing is locked.

        Raises:
            CaseError: Another ingest writes to it.
        """
        if self._fs is not None:
            yield
            return
        Path(self.root, RECORDS).mkdir(parents=True, exist_ok=True)
        with Path(self.root, _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CaseError(
                    "another rca fleet ingest writes to it",
                    path=self.where,
                    hint="wait for it, or choose another --out",
                ) from error
            yield


def _file_system(where: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra("fsspec", "fleet") from error
    try:
        fs, root = fsspec.core.url_to_fs(where)
    except (ImportError, ValueError) as error:  # no such protocol, or its package is missing
        raise CaseError(
            f"cannot be reached: {error}", path=where, hint="install what fsspec asks for"
        ) from error
    return (None, root) if "file" in fs.protocol else (fs, root.rstrip("/"))
