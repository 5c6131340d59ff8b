"""The postmortem as a document: Markdown, one HTML file, charts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rca.case import Case

__all__ = ["brief", "write"]


def write(case: Case, out: Path, template: Path | None = None) -> list[Path]:
    """Write postmortem.md, report.html and charts/ below OUT; what both need is made once.

    Args:
        case: A judged case.
        out: The folder.
        template: A form (Jinja) for postmortem.md instead of the one that comes with `rca`.

    Raises:
        CaseError: The case was never judged.
        TemplateError: The form cannot be read or rendered.
    """
    from rca.postmortem import charts, html, markdown
    from rca.postmortem.story import tell

    story = tell(case)
    drawn = charts.draw(case, story.answer)
    shown = charts.shown(drawn)
    written = [markdown.write_story(story, shown, out, template)]
    charts.write(shown, out)
    return [*written, html.write_story(story, drawn, out)]


def brief(case: Case) -> str:
    """The postmortem as a message for a chat.

    Raises:
        CaseError: The case was never judged.
    """
    from rca.postmortem.chat import message
    from rca.postmortem.story import tell

    return message(tell(case))
