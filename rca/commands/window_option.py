"""`--window START END`: the time of the incident, where it is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from rca.errors import RcaError

WindowOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--window",
        metavar="START END",
        help="Explain this time, as 2026-01-31T02:17:00Z, instead of searching for the incident.",
    ),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2262, 1, 1, tzinfo=UTC)


def parse_window(told: tuple[str, str] | None) -> tuple[int, int] | None:
    """Start and end in ns since the Unix epoch.

    Raises:
        RcaError: Not two times with a zone, the earlier one first.
    """
    if told is None:
        return None
    start, end = (_moment(text) for text in told)
    if end <= start:
        raise RcaError("--window ends before it starts", hint="give the earlier time first")
    return start, end


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RcaError(
            f"{text!r} is no time for --window", hint="write 2026-01-31T02:17:00Z"
        ) from error
    if moment.tzinfo is None:
        raise RcaError(f"{text!r} has no zone for --window", hint="add Z for UTC")
    if not _EPOCH <= moment < _LAST:
        raise RcaError(
            f"{text!r} is not between 1970 and 2262", hint="write 2026-01-31T02:17:00Z"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
