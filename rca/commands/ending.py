"""How a command ends that could not do its work: the line that is said, and the exit code."""

from __future__ import annotations

import sys
from typing import NamedTuple

from rca.errors import RcaError

INTERRUPTED = 130
"""128 and the number of the signal, as shells have it."""
_OS_ERRORS = frozenset({2, 28, 30, 36, 122, 20, 21, 27, 5, 17})
"""No such folder, no space, read-only, name too long, quota, not a directory, is one, file too large, device, exists."""


class Ending(NamedTuple):
    """One line for people, and the exit code."""

    line: str
    code: int


def told(error: BaseException) -> Ending | None:
    """The ending of an expected failure; None for a bug, which shows its traceback."""
    if isinstance(error, RcaError):
        return Ending(str(error), 1)
    if isinstance(error, KeyboardInterrupt) or _is_duckdb(error, "InterruptException"):
        return Ending(
            "interrupted; files read so far are kept in the case: the same command with --resume"
            " (rca ingest: as it is) goes on from there",
            INTERRUPTED,
        )
    if _is_duckdb(
        error, "IOException", "FatalException", "OutOfMemoryException", "TransactionException"
    ):
        first = (str(_first(error)).strip().splitlines() or ["no reason told"])[0]
        hint = "the case is as it was before this step; make room, raise --memory, or choose another --out"
        return Ending(f"{first}; {hint}", 1)
    if isinstance(error, PermissionError):
        return Ending(
            f"{error.filename}: permission denied; choose another --out or mend its rights", 1
        )
    if isinstance(error, OSError) and error.errno in _OS_ERRORS:
        return Ending(f"{error.filename or 'writing'}: {error.strerror}", 1)
    return None


def _first(error: BaseException) -> BaseException:
    """What failed first: after it the database only says that it is not to be used any more."""
    before = error.__context__
    if before is not None and (isinstance(before, RcaError) or _is_duckdb(before, "Error")):
        return _first(before)
    return error


def _is_duckdb(error: BaseException, *names: str) -> bool:
    duckdb = sys.modules.get("duckdb")  # where it is not loaded, it cannot have failed
    return duckdb is not None and isinstance(error, tuple(getattr(duckdb, n) for n in names))
