"""What a parser is and what it writes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Rows = Any
"""A pyarrow.Table, a polars.DataFrame, or the Path of a Parquet file."""


class Sink(Protocol):
    """Where a parser puts what it reads from one source.

    Rows come without `source_id`. Ids of series count from 0 within the source, in `series`,
    `sample` and `histogram_sample` alike; the sink makes them unique in the case. Columns that
    are left out become NULL or take their default.
    """

    def insert(self, table: str, rows: Rows) -> None:
        """Append rows to a table of the schema, columns matched by name."""

    def note(
        self,
        level: str,
        code: str,
        message: str,
        *,
        count: int = 1,
        example: str | None = None,
        lost: bool = False,
    ) -> None:
        """Say what was noticed; `lost` means that something of the file was not kept.

        Calls with the same code are one note: counts add up, the first message stands.
        """

    def describe(
        self,
        *,
        host: str | None = None,
        producer: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        base_ns: int | None = None,
    ) -> None:
        """Set what the file says of its own making; what is None stays as it was."""

    def count_elements(self, n: int) -> None:
        """Add n to the elements that the file holds, kept or lost."""


@dataclass(frozen=True)
class Head:
    """The first decompressed bytes of a file, by which it is recognised."""

    path: Path
    data: bytes


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes:
        name: Stable name, written to `source.format`.
        kind: One of the values of `source.kind`.
        recognise: Whether the head is of this format. Formats are asked in the order of
            `rca.parsers.FORMATS`; the first that says yes reads the file.
        read: Reads the whole file into the sink. Raises ParseError when nothing can be kept.
    """

    name: str
    kind: str
    recognise: Callable[[Head], bool]
    read: Callable[[Path, Sink], None]
