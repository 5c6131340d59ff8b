"""Reads the files of a bundle into a case: one transaction a file, whole or not at all."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from rca.bundle import Bundle, BundleFile
from rca.case import Case, sql_text
from rca.case_sink import SERIES_A_SOURCE, CaseSink
from rca.errors import BundleError, ParseError, RcaError
from rca.parsers import recognise
from rca.parsers.format import Format
from rca.parsers.stream import read_head
from rca.plain import printable

_COLLECT_AFTER = 100_000
"""New objects that the garbage collector waits for: the rows of some batches."""
DATABASE_BYTES = 268_435_456
"""Memory of the database while it is filled: more is not faster, and is kept once it was used."""

Progress = Callable[[str, int, int], None]
"""Called with the file's name, bytes done and bytes in all."""


def ingest(case: Case, bundle: Bundle, progress: Progress | None = None) -> list[str]:
    """Read every file; returns one line for each that could not be read.

    A file whose bytes are in the case already, on the same side, is passed over.

    Raises:
        BundleError: Not one file could be read, and the case was empty before.
    """
    total = sum(_size(f.path) for f in bundle.files)
    done = 0
    failures = [f"{path}: {reason}" for path, reason in bundle.refused]
    for path, reason in bundle.refused:
        _note_unreadable(case, path, "refused", reason)
    with case.frugal(DATABASE_BYTES), _old_objects_at_rest():
        for file in bundle.files:
            if progress:
                progress(file.name, done, total)
            try:
                ingest_file(case, file)
            except RcaError as error:
                line = str(error).replace(str(file.path), file.name)
                failures.append(line)
                _note_unreadable(case, file.name, "unreadable", line)
            done += _size(file.path)
    if progress:
        progress("", total, total)
    if not case.scalar("SELECT count(*) FROM source"):
        if len(failures) == 1:
            raise BundleError(failures[0])
        raise BundleError(
            f"none of {len(failures)} files could be read; the first: {failures[0] if failures else 'none'}"
        )
    return failures


@contextmanager
def _old_objects_at_rest() -> Iterator[None]:
    """The garbage collector passes over what is there already, and looks at rows of a batch once.

    Looking through everything again and again costs a tenth of the reading.
    """
    if gc.get_freeze_count():
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def ingest_file(case: Case, file: BundleFile, number: int | None = None) -> None:
    """Read one file in one transaction; what is in the case already is passed over.

    Args:
        number: Number of the source; the next one when None. Series of a numbered source have
            ids that no other source's have, in whatever case it is read.

    Raises:
        RcaError: It cannot be read.
    """
    digest = sha256(file.path, file.name)
    known = "SELECT count(*) FROM source WHERE sha256 = ? AND part = ? AND status <> 'failed'"
    if case.scalar(known, (digest, file.part)):
        return
    known_format = _format_of(file)
    with case.transaction():
        source_id = number or int(case.scalar("SELECT coalesce(max(id), 0) + 1 FROM source"))
        first_series = number and number * SERIES_A_SOURCE
        with (
            CaseSink(case, source_id, series_offset=first_series) as sink,
            _faults_of(f"reader of {known_format.name}", file),
        ):
            known_format.read(file.path, sink)
        if known_format.kind == "torch_profiler":
            _note_overruns(sink)
        _keep_config(sink, file, known_format)
        _write_source(case, sink, file, known_format, digest)


def _format_of(file: BundleFile) -> Format:
    """The format of a file.

    Raises:
        ParseError: It cannot be read, or is of none.
    """
    try:
        with _faults_of("recognition of formats", file):
            return recognise(read_head(file.path))
    except OSError as error:
        raise ParseError(
            f"cannot be read: {error.strerror or error}", path=file.name
        ) from error


@contextmanager
def _faults_of(what: str, file: BundleFile) -> Iterator[None]:
    """Code that fails in a way it should not on a file costs this file, not the run.

    Args:
        what: What it is that runs, for people.
        file: The file that it is about.

    Raises:
        ParseError: It did. With RCA_RAISE=1 its own exception comes through, as tests want it.
    """
    try:
        yield
    except RecursionError as error:
        raise ParseError("is nested too deeply to be read", path=file.name) from error
    except _FAULTS as error:
        if os.environ.get("RCA_RAISE") == "1":
            raise
        problem = printable(f"{type(error).__name__}: {error}", 160)
        raise ParseError(
            f"cannot be read: the {what} has a fault ({problem})",
            path=file.name,
            hint="please report it; RCA_RAISE=1 shows where",
        ) from error


_FAULTS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
_MAX_CONFIG_BYTES = 1_000_000


def _keep_config(sink: CaseSink, file: BundleFile, known: Format) -> None:
    """Keep the text of a configuration file: fixes are patches against it."""
    if known.kind != "config" or file.path.stat().st_size > _MAX_CONFIG_BYTES:
        return
    try:
        text = file.path.read_bytes().decode("utf-8")  # line ends stay: a patch must fit them
    except UnicodeDecodeError:
        return
    row = {"path": _path_in_bundle(file.name), "text": text}
    sink.case.insert("config_file", pl.DataFrame([row]), source_id=sink.source_id)


def _note_overruns(sink: CaseSink) -> None:
    """Say which operations of a GPU last into the next ones of their stream, which none does."""
    overruns = sql_text("ingest", "overrun")
    [(count, name, dur_ns)] = sink.case.rows(overruns, (sink.source_id,))
    if count:
        sink.note(
            "warning", "overrun",
            "operations that end after the next one on their stream: the ends that ROCm wrote are wrong, busy time is too high",
            count=count, example=printable(f"{name}: {dur_ns / 1e6:g} ms", 160),
        )  # fmt: skip


def _path_in_bundle(name: str) -> str:
    """The path below incident/ or baseline/, else the file's name."""
    parts = name.replace("!", "/").split("/")
    sides = [i for i, p in enumerate(parts) if p in ("incident", "baseline")]
    return "/".join(parts[sides[-1] + 1 :]) if sides else parts[-1]


def _write_source(
    case: Case, sink: CaseSink, file: BundleFile, known: Format, digest: str
) -> None:
    first, last = case.time_range(sink.source_id)
    worst = next((n for n in sink.notes.values() if n.level != "info"), None)
    row = {
        "id": sink.source_id, "part": file.part, "kind": known.kind, "format": known.name,
        "path": file.name, "bytes": file.path.stat().st_size, "sha256": digest,
        "first_ns": first, "last_ns": last, "n_elements": sink.n_elements, "n_rows": sink.n_rows,
        "status": sink.status, "note": worst.message if worst else None, **sink.facts,
    }  # fmt: skip
    case.insert("source", pl.DataFrame([row]))
    notes = [
        {
            "level": n.level,
            "code": code,
            "message": n.message,
            "count": n.count,
            "example": n.example,
        }
        for code, n in sink.notes.items()
    ]
    if notes:
        schema = {
            "level": pl.String,
            "code": pl.String,
            "message": pl.String,
            "count": pl.Int64,
            "example": pl.String,
        }
        case.insert("ingest_note", pl.DataFrame(notes, schema=schema), source_id=sink.source_id)


def _note_unreadable(case: Case, path: str, code: str, message: str) -> None:
    row = {"level": "error", "code": code, "message": message, "count": 1, "example": path}
    case.insert("ingest_note", pl.DataFrame([row]))


def _size(path: Path) -> int:
    """Bytes of a file, 0 when it has gone in the meantime."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def sha256(path: Path, name: str) -> str:
    """SHA-256 of the stored bytes, in hex.

    Raises:
        ParseError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror or error}", path=name) from error
