"""report.html: the postmortem as one interactive file that loads nothing.

The only scripts that its content-security policy lets run are the two written here, by their
hashes: no name in a recording can become one. Expressions in charts are interpreted, not compiled,
so nothing is ever evaluated as code. Without scripts the page shows the same charts as pictures.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rca.answer import Evidence, wording
from rca.case import Case
from rca.durable import write_whole
from rca.plain import confidence, duration, factor, moment, number, printable, quantity
from rca.postmortem.charts import Chart, draw
from rca.postmortem.charts.style import config
from rca.postmortem.story import Story, share, tell
from rca.postmortem.vega import NOTICE, library


def write_html(case: Case, out: Path) -> Path:
    """Write OUT/report.html; equal cases give equal bytes.

    Raises:
        CaseError: The case was never judged.
    """
    story = tell(case)
    return write_story(story, draw(case, story.answer), out)


def write_story(story: Story, charts: Sequence[Chart], out: Path) -> Path:
    """Write OUT/report.html of a story told already."""
    answer = story.answer
    script, drawing = _resource("report.js"), library() if charts else ""
    text = (
        _environment()
        .get_template("report.html.jinja")
        .render(
            story=story,
            answer=answer,
            charts=charts,
            sort_of=wording.sort_of,
            causes={h.cause for h in answer.hypotheses},
            window=wording.window(answer.window),
            other_windows=wording.other_windows(answer),
            headline=wording.HEADLINES.get(answer.verdict.status, answer.verdict.status),
            trial_status=wording.TRIALS.get(answer.trial.status, answer.trial.status),
            style=_resource("report.css"),
            script=script,
            library=drawing,
            script_hashes=Markup(" ".join(_hash(s) for s in (drawing, script) if s)),  # noqa: S704
            themes={theme: config(theme) for theme in ("light", "dark")},
            time_range=_time_range(charts),
            notice=NOTICE,
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    target = out / "report.html"
    write_whole(target, text.strip() + "\n")
    return target


def _time_range(charts: Sequence[Chart]) -> list[float]:
    """First and last moment of the timeline, ms since the Unix epoch; empty without one."""
    for chart in charts:
        if chart.name == "timeline":
            return list(chart.spec["usermeta"]["range"])
    return []


def _resource(name: str) -> str:
    return files("rca.postmortem").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """A script as the content-security policy names it."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _embedded(value: Any) -> Markup:
    """JSON inside a script element: no `<`, so it can neither end it nor open another."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704


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
        number=number, share=share, quantity=quantity, effect=_effect, embedded=_embedded,
    )  # fmt: skip
    return environment


def _lines(text: str) -> str:
    """Several lines, everything else invisible written out."""
    return "\n".join(printable(line, 4_000) for line in text.replace("\t", "    ").splitlines())


def _effect(item: Evidence) -> str:
    return factor(item.effect, item.effect_low, item.effect_high) or item.direction
