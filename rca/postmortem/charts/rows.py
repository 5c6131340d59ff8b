"""Rows of a chart, as every layer of it may hold them."""

from __future__ import annotations

from typing import Any

import altair as alt


class Rows(alt.InlineData):
    """Inline data that copies of a chart share.

    Altair copies a chart at each step of its making, rows and all; these rows are never changed,
    and copying them took longer than everything else about a chart.
    """

    def __init__(self, values: list[Any]) -> None:
        super().__init__(values=values)

    def __deepcopy__(self, memo: Any) -> Rows:
        return self
