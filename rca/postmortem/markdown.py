"""postmortem.md: the story of a case as GitHub reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from rca.answer import Evidence, wording
from rca.case import Case
from rca.durable import write_whole
from rca.errors import TemplateError
from rca.plain import confidence, duration, factor, moment, number, printable, quantity
from rca.postmortem.charts import Chart, draw, shown
from rca.postmortem.charts import write as write_charts
from rca.postmortem.chronicle import Said
from rca.postmortem.escape import Markdown, cell, code, fence, prose
from rca.postmortem.experiment import RUNS_SQL
from rca.postmortem.people import kept, part
from rca.postmortem.story import Story, share, tell


def write(case: Case, out: Path) -> Path:
    """Write OUT/postmortem.md and OUT/charts/*.svg; equal cases give equal bytes.

    Raises:
        CaseError: The case was never judged.
    """
    story = tell(case)
    drawn = shown(draw(case, story.answer))
    write_charts(drawn, out)
    return write_story(story, drawn, out)


def write_story(
    story: Story, charts: Sequence[Chart], out: Path, template: Path | None = None
) -> Path:
    """Write OUT/postmortem.md of a story told already; the charts lie in OUT/charts.

    What people wrote into the marked parts of an older postmortem.md there is kept.

    Args:
        story: What is to be told.
        charts: Those that the document shows.
        out: The folder.
        template: A form of one's own, instead of the one that comes with `rca`.

    Raises:
        TemplateError: The template cannot be read or rendered.
    """
    out.mkdir(parents=True, exist_ok=True)
    target = out / "postmortem.md"
    text = render(story, charts, _rules(out), template)
    if target.is_file():
        text = kept(text, target.read_text(encoding="utf-8", errors="replace"))
    write_whole(target, text)
    return target


def render(
    story: Story, charts: Sequence[Chart], rules: str | None, template: Path | None = None
) -> str:
    """The document as text; `rules` is the name of the file of alert rules below fixes/."""
    answer = story.answer
    try:
        text = _template(template).render(
            story=story,
            answer=answer,
            charts=charts,
            rules=rules,
            headline=wording.HEADLINES.get(answer.verdict.status, answer.verdict.status),
            trial_status=wording.TRIALS.get(answer.trial.status, answer.trial.status),
            window=wording.window(answer.window),
            other_windows=wording.other_windows(answer),
            could_move=wording.missing(answer.leading),
            guard_rail=wording.guard_rail,
            sort_of=wording.sort_of,
            causes={h.cause for h in answer.hypotheses},
            false_alarms=wording.false_alarms(answer.guard_rules),
            runs_sql=RUNS_SQL,
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        if template is None:
            raise
        raise _refused(template, error) from error
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _template(path: Path | None) -> jinja2.Template:
    if path is None:
        return _environment().get_template("postmortem.md.jinja")
    try:
        return _environment().from_string(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TemplateError(f"cannot be read: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise TemplateError("is not UTF-8", path=str(path)) from error
    except jinja2.TemplateError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: Exception) -> TemplateError:
    line = getattr(error, "lineno", None)
    return TemplateError(
        f"{str(error).strip().splitlines()[0]}",
        path=str(path),
        place=f"line {line}" if line else None,
        hint="docs/postmortem.md lists what a template can use",
    )


def _environment() -> jinja2.Environment:
    # Sandboxed, since a form may come from somebody else. Not HTML: every expression passes
    # `prose`, which makes text inert in Markdown.
    environment = SandboxedEnvironment(
        loader=jinja2.PackageLoader("rca.postmortem"),
        autoescape=False,
        finalize=lambda value: prose("" if value is None else value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        confidence=confidence, stop=_stop, people=lambda text, name: part(name, text), url=_url,
        cell=cell, code=code, fence=fence, link=_link, anchor=_anchor, verbatim=Markdown, cited=_cited, refs=_refs, told=_told, file=_file, path=_path, alt=_alt,
        moment=moment, duration=duration, number=number, quantity=quantity, share=share,
         effect=_effect,
    )  # fmt: skip
    return environment


def _link(identifier: str) -> Markdown:
    """An id of evidence as a link to its row."""
    known = re.fullmatch(r"[A-Z][0-9]+", identifier)
    return Markdown(f"[{identifier}](#{identifier.lower()})") if known else cell(identifier)


def _anchor(identifier: str) -> Markdown:
    """An id of evidence where links to it arrive."""
    known = re.fullmatch(r"[A-Z][0-9]+", identifier)
    return (
        Markdown(f'<a id="{identifier.lower()}"></a>{identifier}')
        if known
        else cell(identifier)
    )


def _cited(items: Iterable[Evidence], text: str) -> list[Evidence]:
    """Those whose ids stand in a text."""
    named = set(re.findall(r"\b[A-Z][0-9]+\b", text))
    return [item for item in items if item.id in named]


def _refs(identifiers: Sequence[str]) -> Markdown:
    return Markdown(", ".join(_link(i) for i in identifiers) or "–")


def _told(said: Said) -> Markdown:
    return Markdown(
        f"{prose(said.text)} ({_refs(said.cites)})" if said.cites else prose(said.text)
    )


def _file(name: str, folder: str) -> Markdown:
    return Markdown(f"[{code(f'{folder}/{name}')}]({_path(f'{folder}/{name}')})")


def _path(name: str) -> Markdown:
    return Markdown(quote(printable(name, 200), safe="/-_."))


def _url(address: str) -> Markdown:
    """An address that is quoted already, inside `<...>`."""
    return Markdown(re.sub(r"[<>\s\\\\]", "", address))


def _alt(text: str) -> Markdown:
    return Markdown(re.sub(r"[^\w .,:%-]", " ", printable(text)))


def _stop(text: str) -> str:
    """The text as a sentence."""
    return text.rstrip(". ") + "."


def _effect(item: Evidence) -> str:
    return factor(item.effect, item.effect_low, item.effect_high) or item.direction


def _rules(out: Path) -> str | None:
    return "alerts.rules.yml" if (out / "fixes" / "alerts.rules.yml").is_file() else None
