"""The postmortem as a document: Markdown, one HTML file, charts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rca.case import Case

__all__ = ["write"]


def write(case: Case, out: Path) -> list[Path]:
    """Write postmortem.md, report.html and charts/ below OUT; what both need is made once.

    Raises:
        CaseError: The case was never judged.
    """
    from rca.postmortem import html, markdown
    from rca.postmortem.charts import draw
    from rca.postmortem.charts import write as write_charts
    from rca.postmortem.story import tell

    story = tell(case)
    charts = draw(case, story.answer)
    shown = write_charts(charts, out)
    return [markdown.write_story(story, shown, out), html.write_story(story, charts, out)]
