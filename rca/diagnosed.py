"""A case as people hold it: with its answer and its charts at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rca.case import Case
from rca.plain import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.text import Text

    from rca.postmortem.charts import Charts


class DiagnosedCase(Case):
    """A case with `verdict` and `charts`; what `rca.analyze` and `rca.open` return.

    A notebook shows it as the table that a terminal gets, `rich.print` as the terminal does.
    """

    def __repr__(self) -> str:
        from rca.answer.summary import headline

        return f"<rca case {printable(self.path or 'in memory')}: {headline(self)}>"

    def _repr_html_(self) -> str:
        from rca.answer.summary import html

        return html(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rca.answer.summary import lines

        return lines(self, options.max_width if console.is_terminal else None)

    @property
    def verdict(self) -> dict[str, Any]:
        """What verdict.json says."""
        from rca.answer.verdict_json import verdict

        return verdict(self)

    @property
    def charts(self) -> Charts:
        """The charts of the postmortem, each an Altair chart."""
        from rca.postmortem.charts import Charts

        return Charts(self)
