"""A titled piece of a document, before it takes the form of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


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
