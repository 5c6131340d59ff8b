"""The answer in the terminal: the verdict first, every figure with its evidence id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import escape
from rich.console import Console
from rich.text import Text

from rca.answer import (
    Answer,
    Evidence,
    Hypothesis,
    captures,
    read,
    rulings,
    suspicion,
    wording,
)
from rca.case import Case
from rca.errors import CaseError, QueryError
from rca.plain import confidence, duration, number, percent, printable, size
from rca.postmortem.chronicle import before_after, cites_of_change
from rca.postmortem.impact import measure

Row = tuple[str, str, str]  # label, text, style of the label

_INDENT, _LABEL = 2, 11
_FILES = (
    ("postmortem", "postmortem.md"),
    ("report", "report.html"),
    ("verdict", "verdict.json"),
    ("rules", "fixes/alerts.rules.yml"),
)


def render(case: Case, console: Console) -> None:
    """Print the answer of a case; wrapped on a terminal, one line an item in a pipe."""
    for line in lines(case, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True, highlight=False)


def lines(case: Case, width: int | None) -> Iterator[Text]:
    """The answer line by line, wrapped to a width or not at all."""
    for title, text, style in _rows(case, read(case)):
        yield from _wrapped(title, text, style, width)


def headline(case: Case) -> str:
    """The answer in a few words, for a prompt."""
    try:
        said = read(case).verdict
    except QueryError:
        return "closed"
    except CaseError:
        return "nothing concluded yet"
    if said.status == "diagnosed":
        return f"{printable(said.cause, 60)} ({printable(said.class_, 40)}), confidence {confidence(said.confidence)}"
    return wording.HEADLINES.get(said.status, printable(said.status, 40))


def html(case: Case) -> str:
    """The answer as a table for a notebook; of a case without one, what was read."""
    try:
        rows = [*_rows(case, read(case))]
    except CaseError:
        rows = [*_recorded(case)]
    left = 'style="text-align: left; vertical-align: top; white-space: pre-wrap"'
    told = (
        f"<tr><th {left}>{escape(title)}</th><td {left}>{escape(text)}</td></tr>"
        for title, text, _ in rows
        if title or text
    )
    return f"<table>{''.join(told)}</table>"


def render_sources(case: Case, console: Console) -> None:
    """Print what was read: one line a source, with what was noticed about it."""
    for title, text, style in _recorded(case):
        _print(console, title, text, style)
    for part, kind, path, status, rows, note in case.rows(
        "SELECT part, kind, path, status, n_rows, note FROM source ORDER BY id"
    ):
        told = f"  {printable(note, 120)}" if note else ""
        text = f"{kind:<14} {status:<9} {rows:>11,} rows  {printable(path, 120)}{told}"
        _print(console, part, text, "" if status == "ok" else "yellow")
    for kind, text in captures.told(case):
        _print(console, kind, text, "")


def _rows(case: Case, answer: Answer) -> Iterator[Row]:
    yield from _recorded(case)
    still = "; no recovery is shown, the recordings end" if answer.is_open else ""
    yield "window", wording.window(answer.window) + still, ""
    for text, command in wording.other_windows(answer):
        yield "", f"another: {text} · look at it: {command}", ""
    yield "", "", ""
    tell = {"diagnosed": _diagnosed, "no_incident": _healthy}.get(
        answer.verdict.status, _unknown
    )
    yield from tell(case, answer)
    for position, said in enumerate(answer.jurors):
        yield "JUDGE" if position == 0 else "", wording.juror(said, answer), "bold"
    yield from _missing(answer)
    if answer.trial.status != "not_run" or answer.verdict.status == "diagnosed":
        yield "TRIAL", _trial(answer), "bold"
    yield from _fixes(answer)
    files = _files(case)
    if files:
        yield "", "", ""
        yield "", " · ".join(files), ""


def _recorded(case: Case) -> Iterator[Row]:
    count, total = case.rows("SELECT count(*), coalesce(sum(bytes), 0) FROM source")[0]
    text = f"{count} file{'' if count == 1 else 's'}  {size(total)}"
    by_status = dict(case.rows("SELECT status, count(*) FROM source GROUP BY status"))
    text += "".join(
        f"  {by_status[s]} {s}" for s in ("salvaged", "empty", "failed") if by_status.get(s)
    )
    yield "ingest", text, ""
    for (message,) in case.rows(
        "SELECT message FROM ingest_note WHERE code = 'setting_not_read' ORDER BY rowid LIMIT 4"
    ):
        yield "", f"bundle.toml: {printable(message, 160)}", ""
    damaged = case.rows(
        "SELECT path, note FROM source WHERE status IN ('salvaged', 'failed') ORDER BY id LIMIT 3"
    )
    for path, note in damaged:
        yield "", f"{printable(path, 80)}: {printable(note or 'damaged', 160)}", ""
    shifts = case.rows(
        "SELECT kind, shift_ns, count(*) FROM source WHERE shift_ns <> 0 GROUP BY ALL ORDER BY kind, shift_ns"
    )
    if shifts:
        told = [f"{kind} {'+' if ns > 0 else ''}{duration(ns)}" for kind, ns, _ in shifts[:4]]
        yield "clock", "corrected: " + ", ".join(told), ""


def _diagnosed(case: Case, answer: Answer) -> Iterator[Row]:
    said = answer.verdict
    head = f"{printable(said.cause, 60)}   {said.class_}   confidence {confidence(said.confidence)}"
    yield "CAUSE", head, "bold red"
    yield "", printable(said.reason, 240), ""
    lead = answer.leading
    support = answer.cited(lead.evidence) if lead else []
    felt = [e for e in support if e.is_symptom] or [
        e for e in answer.strongest(9) if e.is_symptom
    ]
    for item in felt[:2]:
        yield "", _cite(item), ""
    why = _reasons([e for e in support if e not in felt[:2]])
    for position, item in enumerate(why):
        yield "WHY" if position == 0 else "", _cite(item), "bold"
    share = wording.explained(answer)
    if share:
        sources = ", ".join(printable(i, 12) for i in wording.large_parts(answer))
        yield "" if why else "WHY", f"{share}   {sources}", "bold"
    yield "SINCE", _since(answer, lead), "bold"
    yield from _also(answer)
    yield from _hit(case, answer)
    yield from _ruled_out(case, answer)


def _hit(case: Case, answer: Answer) -> Iterator[Row]:
    """Who was hit: the share of slow and of failed requests, and how many tenants had them."""
    figures = {f.name: f for f in measure(case, answer.window)}
    told = [
        f"{figures[name].text}   {figures[name].id}"
        for name in ("slow", "failed", "requests", "tenants")
        if name in figures and (figures[name].observed or name not in {"slow", "failed"})
    ]
    tenants = [r for r in answer.findings.blast_radius if r.kind == "tenant"]
    if len(tenants) > 1:
        tenants.sort(key=lambda r: -r.share_slow)
        named = [f"{printable(r.name, 30)} {percent(r.share_slow)}" for r in tenants[:4]]
        rest = f", {len(tenants) - 4} more" if len(tenants) > 4 else ""
        cohort = answer.findings.cohort
        rest += "; sampled, biased" if cohort and cohort.is_sampled else ""
        told = [*told[:2], f"slow by tenant: {', '.join(named)}{rest}   blast_radius"]
    for position, text in enumerate(told[:3]):
        yield "HIT" if position == 0 else "", text, "bold"


def _reasons(support: list[Evidence]) -> list[Evidence]:
    """At most four: what moved, then what stayed as it had to."""
    moved = [e for e in support if e.direction not in {"event", "flat"}]
    still = [e for e in support if e.direction == "flat"]
    return [*moved, *still][:4]


def _also(answer: Answer) -> Iterator[Row]:
    """The causes that are at work beside the leading one: what shows each, and since when."""
    lead = answer.leading
    known = set(lead.evidence) if lead else set()
    for other in answer.hypotheses:
        if other is lead or other.cause not in answer.contributing:
            continue
        head = f"{printable(other.cause, 60)}   {other.class_}   confidence {confidence(other.confidence)}"
        yield "ALSO", head, "bold red"
        own = [e for e in answer.cited(other.evidence) if e.id not in known]
        for item in _reasons(own)[:2]:
            yield "", _cite(item), ""
        if other.change_id:
            yield "", f"since {_since(answer, other)}", ""


def _since(answer: Answer, of: Hypothesis | None) -> str:
    """The change that fits in kind, target and time, and when it came; or that none does."""
    change = answer.changes.get((of.change_id if of else None) or "")
    if change is None:
        others = [c for c in answer.changes.values() if c.origin == "record"]
        return f"no change fits in kind, target and time ({len(others)} recorded)"
    what = f"{printable(change.kind, 20)} of {printable(change.subject, 80)}"
    text = f"{printable(change.id, 40)}, {wording.lag(answer, change)}: {what}{before_after(change.before, change.after)}"
    return "   ".join([text, *cites_of_change(answer, change.id)])


def _unknown(case: Case, answer: Answer) -> Iterator[Row]:
    guess = (
        f"   best guess {confidence(answer.verdict.confidence)}" if answer.hypotheses else ""
    )
    yield "UNKNOWN", f"not diagnosed{guess}", "bold yellow"
    yield "", printable(answer.verdict.reason, 240), ""
    yield from _captures(case)
    suspect = suspicion.most_changed(answer)
    if suspect:
        yield "SUSPECT", suspect, "bold"
    yield from _moved(answer)
    for position, other in enumerate(answer.hypotheses[:3]):
        contrary = "; ".join(_cite(e) for e in wording.against(answer, other)[:2])
        text = f"{printable(other.cause, 60)} {confidence(other.confidence)}"
        yield (
            "NEAREST" if position == 0 else "",
            text + (f"   against it: {contrary}" if contrary else ""),
            "bold",
        )


def _healthy(case: Case, answer: Answer) -> Iterator[Row]:
    yield (
        "HEALTHY",
        f"no incident   confidence {confidence(answer.verdict.confidence)}",
        "bold green",
    )
    yield "", printable(answer.verdict.reason, 240), ""
    yield from _moved(answer)


def _moved(answer: Answer) -> Iterator[Row]:
    strongest = answer.strongest(5)
    for position, item in enumerate(strongest):
        yield "MOVED" if position == 0 else "", _cite(item), "bold"
    if not strongest and answer.suspects:
        told = [f"{printable(s.metric, 60)} {number(s.score)}" for s in answer.suspects[:5]]
        yield "MOVED", ", ".join(told), "bold"


def _ruled_out(case: Case, answer: Answer) -> Iterator[Row]:
    out = [
        f"{printable(r.hypothesis.cause, 60)}: {r.reason}   {printable(r.evidence[0].id, 12)}"
        for r in rulings.rulings(case, answer, 1)[:4]
    ]
    weak = [r for r in rulings.still_open(case, answer) if r.reason][:3]
    if weak:
        told = ", ".join(printable(r.hypothesis.cause, 60) for r in weak)
        out.append(f"only less likely: {told}; what marks them is not recorded")
    for position, text in enumerate(out):
        yield "NOT" if position == 0 else "", text, "bold"


def _missing(answer: Answer) -> Iterator[Row]:
    for position, text in enumerate(_gaps(answer) or ["nothing that would decide more"]):
        yield "MISSING" if position == 0 else "", text, "bold"


def _gaps(answer: Answer) -> list[str]:
    """What is peculiar to the case first, what most bundles lack in one line."""
    own = [gap for gap in answer.gaps if gap.code not in wording.USUAL_GAPS]
    told = []
    for gap in sorted(own, key=lambda gap: not gap.would_decide)[:4]:
        text = printable(gap.statement, 240)
        if gap.would_decide:
            text += f" ({printable(gap.would_decide, 160)})"
        if gap.record:
            text += f" · record it: {printable(gap.record, 200)}"
        told.append(text)
    if effect := wording.missing(answer.leading):
        told.append(f"what no recording shows {effect}")
    usual = [wording.USUAL_GAPS[g.code] for g in answer.gaps if g.code in wording.USUAL_GAPS]
    if usual:
        told.append(f"{', '.join(usual)}: the postmortem says what to record")
    return told


def _trial(answer: Answer) -> str:
    trial = answer.trial
    pairs = f", {trial.pairs} pairs" if trial.pairs else ""
    device = f" ({printable(trial.device, 30)} model{pairs})" if trial.device else ""
    status = wording.TRIALS.get(trial.status, printable(trial.status, 40))
    how = " · run it: rca trial CASE" if trial.status == "not_run" else ""
    return f"{status}{device}: {printable(trial.reason, 400)}{how}"


def _fixes(answer: Answer) -> Iterator[Row]:
    codes = {gap.code for gap in answer.gaps}  # what to record is said under MISSING already
    proposals = [f for f in answer.fixes if not (f.kind == "investigate" and f.target in codes)]
    for position, fix in enumerate(proposals[:4]):
        action = printable(fix.action, 240)
        yield "DO" if position == 0 else "", action if position == 0 else f"or {action}", "bold"
        yield "", "→ " + wording.proposal(fix, answer), ""


def _captures(case: Case) -> Iterator[Row]:
    before = ""
    for kind, text in captures.told(case):
        yield kind if kind != before else "", text, "bold"
        before = kind


def _files(case: Case) -> list[str]:
    if case.path is None:
        return []
    folder = case.path.parent
    found = [(name, folder / file) for name, file in _FILES if (folder / file).is_file()]
    return [
        f"{name} {printable(path, 200)}" for name, path in [*found, ("case", Path(case.path))]
    ]


def _cite(item: Evidence) -> str:
    return f"{wording.movement(item)}   {printable(item.id, 12)}"


def _print(console: Console, title: str, text: str, style: str) -> None:
    for line in _wrapped(title, text, style, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True, highlight=False)


def _wrapped(title: str, text: str, style: str, width: int | None) -> Iterator[Text]:
    body, margin = Text(text), " " * (_INDENT + _LABEL)
    parts = [body]
    if width is not None:
        parts = list(body.wrap(Console(), max(width - len(margin), 20))) or [Text("")]
    for position, part in enumerate(parts):
        head = " " * _INDENT + title.ljust(_LABEL) if position == 0 else margin
        line = Text.assemble((head, style), part)
        line.rstrip()
        yield line
