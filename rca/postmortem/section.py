"""A titled piece of a document, before it takes the form of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_FIGURE = re.compile(r"[×−]?[0-9]")


@dataclass(frozen=True)
class Section:
    """Lines, a table, a diagram and the query that shows all of it; no text is escaped yet.

    Attributes:
        diagram: A Mermaid definition, empty when there is none.
    """

    title: str
    lines: Sequence[str] = ()
    head: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = field(default_factory=list)
    query: str = ""
    diagram: str = ""

    @property
    def numeric(self) -> frozenset[int]:
        """The columns that hold figures alone, by position; they are set to the right."""
        columns = list(zip(*self.rows, strict=True))
        return frozenset(
            i for i, column in enumerate(columns)
            if any(column) and all(not value or _FIGURE.match(value) for value in column)
        )  # fmt: skip
