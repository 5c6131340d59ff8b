"""report.html: the postmortem as one file that loads nothing and runs nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rca import wording
from rca.case import Case
from rca.plain import confidence, duration, moment, number, printable
from rca.postmortem.charts import Chart, draw
from rca.postmortem.story import Story, share, tell


def write_html(case: Case, out: Path) -> Path:
    """Write OUT/report.html; equal cases give equal bytes.

    Raises:
        CaseError: The case was never judged.
    """
    story = tell(case)
    return write_story(story, draw(case, story.answer, None), out)


def write_story(story: Story, charts: Sequence[Chart], out: Path) -> Path:
    """Write OUT/report.html of a story told already."""
    text = (
        _environment()
        .get_template("report.html.jinja")
        .render(
            story=story,
            answer=story.answer,
            charts=charts,
            window=wording.window(story.answer.window),
            headline=wording.HEADLINES.get(
                story.answer.verdict.status, story.answer.verdict.status
            ),
            trial_status=wording.TRIALS.get(
                story.answer.trial.status, story.answer.trial.status
            ),
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    target = out / "report.html"
    target.write_text(
        re.sub(r"\n{2,}", "\n", text).strip() + "\n", encoding="utf-8", newline="\n"
    )
    return target


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rca.postmortem"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        confidence=confidence,
        show=lambda value: printable(value, 2_000), lines=_lines, moment=moment, duration=duration,
        number=number, share=share, movement=wording.movement,
    )  # fmt: skip
    return environment


def _lines(text: str) -> str:
    """Several lines, everything else invisible written out."""
    return "\n".join(printable(line, 4_000) for line in text.replace("\t", "    ").splitlines())
