"""What the postmortem tells, before it takes the form of a document."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rca.answer import Answer, Evidence, Hypothesis, captures, natural, read, rulings, wording
from rca.case import Case
from rca.plain import confidence, duration, moment, percent, printable
from rca.postmortem.chronicle import (
    Event,
    Said,
    before_after,
    cites_of_change,
    detection_of,
    events_of,
)
from rca.postmortem.experiment import Experiment, describe
from rca.postmortem.impact import Figure, Severity, measure, propose_severity
from rca.postmortem.jury import jurors_of
from rca.postmortem.links import Link, links_of
from rca.postmortem.section import Section
from rca.postmortem.sections import tell as tell_sections
from rca.postmortem.written import Written
from rca.postmortem.written import read as read_written

_CONTRIBUTES = 0.1
_NAMED = 0.01
_ALWAYS_NAMED = 5
_STILL = {"event", "flat"}


@dataclass(frozen=True)
class Story:
    """Everything a template needs; no text in it is escaped yet."""

    answer: Answer
    title: str
    service: str
    lead: Hypothesis | None
    paragraph: list[Said]
    written: Written
    cause: Said
    severity: Severity
    figures: list[Figure]
    events: list[Event]
    detection: Said
    mechanism: list[Said]
    factors: list[Said]
    ruled_out: list[Said]
    not_ruled_out: list[Said]
    experiment: Experiment
    actions: list[Said]
    jurors: list[Said]
    sections: list[Section]
    notes: list[tuple[str, str, str, int]]
    sources: list[tuple[str, ...]]
    links: list[Link]


def tell(case: Case) -> Story:
    """The story of a judged case."""
    answer = read(case)
    figures = measure(case, answer.window)
    symptom = _worst_symptom(answer)
    severity = propose_severity(
        figures, math.exp(symptom.effect) if symptom and symptom.effect else None
    )
    service = _service(case, answer)
    return Story(
        answer=answer,
        title=_title(case, answer, service),
        service=service,
        lead=answer.leading,
        written=read_written(case),
        paragraph=_paragraph(answer, figures, symptom, service),
        cause=_cause(answer),
        severity=severity,
        figures=figures,
        events=events_of(case, answer),
        detection=detection_of(case, answer),
        mechanism=_mechanism(case, answer, symptom),
        factors=_factors(answer),
        ruled_out=_ruled_out(case, answer),
        not_ruled_out=_not_ruled_out(case, answer),
        experiment=describe(case, answer.trial),
        actions=_actions(answer),
        jurors=jurors_of(case, answer),
        sections=tell_sections(case, answer),
        notes=case.rows(
            "SELECT coalesce(s.path, n.example, ''), n.level, n.message, n.count FROM ingest_note n "
            "LEFT JOIN source s ON s.id = n.source_id WHERE n.level <> 'info' ORDER BY ALL LIMIT 40"
        ),
        sources=case.rows(
            "SELECT part, kind, format, path, status, coalesce(note, ''), shift_ns, sha256 "
            "FROM source ORDER BY id"
        ),
        links=links_of(answer),
    )


def _service(case: Case, answer: Answer) -> str:
    named = answer.provenance.get("service") or next(
        (e.service for e in answer.evidence.values() if e.is_symptom and e.service), None
    )
    most = "SELECT service FROM span WHERE service IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
    return printable(named or case.scalar(most) or "the service", 80)


def _title(case: Case, answer: Answer, service: str) -> str:
    given = answer.provenance.get("title")
    if given:
        return printable(given, 120)
    what = {
        "diagnosed": wording.cause_text(case, answer.verdict.cause)[0],
        "no_incident": "no incident found",
    }.get(
        answer.verdict.status,
        "slow, cause unknown" if answer.window.dur_ns else "recording without a reference",
    )
    return f"{service}: {what}"


def _worst_symptom(answer: Answer) -> Evidence | None:
    lead = answer.leading
    cited = [e for e in answer.cited(lead.evidence) if e.is_symptom] if lead else []
    felt = cited or [e for e in answer.evidence.values() if e.is_symptom]
    moved = [e for e in felt if e.direction in {"up", "down", "new", "gone"}]
    return max(moved, key=lambda e: abs(e.strength), default=None)


def _paragraph(
    answer: Answer, figures: list[Figure], symptom: Evidence | None, service: str
) -> list[Said]:
    window = answer.window
    if window.dur_ns is None:
        return [Said(f"{wording.window(window).capitalize()}.")]
    said = [
        Said(
            f"On {moment(window.start_ns)} UTC {service} became slow for {duration(window.dur_ns)}"
            + (", until the recordings end: no recovery is shown." if answer.is_open else ".")
        )
    ]
    said += [Said(f"{wording.movement(symptom)}.", (symptom.id,))] if symptom else []
    said += [
        Said(f"{f.text}.", (f.id,))
        for f in figures
        if f.name in {"slow", "failed"} and f.observed
    ]
    mitigation = next((f for f in answer.fixes if f.phase == "mitigate"), None)
    return said + (
        [Said(f"Proposed first: {printable(mitigation.action, 240)}")] if mitigation else []
    )


def _cause(answer: Answer) -> Said:
    said = answer.verdict
    if said.status == "diagnosed":
        text = f"{said.cause} ({said.class_}), confidence {confidence(said.confidence)}: {printable(said.reason, 240)}"
        lead = answer.leading
        return Said(text, tuple(lead.evidence[:4]) if lead else ())
    if said.status == "no_incident":
        return Said(
            f"No incident, confidence {confidence(said.confidence)}: {printable(said.reason, 240)}"
        )
    return Said(f"The cause is not known: {printable(said.reason, 240)}")


def _mechanism(case: Case, answer: Answer, symptom: Evidence | None) -> list[Said]:
    """Five sentences: what the cause is, the change, what moved, what was felt, how much of it."""
    lead = answer.leading
    if lead is None and answer.verdict.status == "unknown":
        return [
            Said(f"{kind if kind == 'GPU' else kind.capitalize()}: {text}.")
            for kind, text in captures.told(case)
        ]
    if lead is None or answer.verdict.status != "diagnosed":
        return [Said(f"{wording.movement(e)}.", (e.id,)) for e in answer.strongest(5)]
    definition = wording.cause_text(case, lead.cause)[1]
    said = [Said(definition)] if definition else []
    said += _change_told(answer, lead)
    moved = [
        e for e in answer.cited(lead.evidence) if e is not symptom and e.direction not in _STILL
    ]
    moved.sort(key=lambda e: (e.onset_ns is None, e.onset_ns or 0, natural(e.id)))
    if moved:
        movements = "; ".join(wording.movement(e) for e in moved[:4])
        said.append(
            Said(f"In the order of their onset: {movements}.", tuple(e.id for e in moved[:4]))
        )
    if symptom:
        said.append(Said(f"Users felt it as: {wording.movement(symptom)}.", (symptom.id,)))
    share_told = wording.explained(answer)
    if share_told:
        cites = wording.large_parts(answer)
        said.append(
            Said(
                f"{lead.cause} {share_told}."
                if share_told.startswith("explains")
                else f"{share_told[:1].upper()}{share_told[1:]}.",
                cites,
            )
        )
    return said


def _change_told(answer: Answer, lead: Hypothesis) -> list[Said]:
    change = answer.changes.get(lead.change_id or "")
    if change is None or answer.window.start_ns is None:
        return []
    lag = wording.lag(answer, change)
    when = f"{lag[:1].upper()}{lag[1:]}"
    text = f"{when}, {printable(change.subject, 80)} was changed{before_after(change.before, change.after)}."
    return [Said(text, cites_of_change(answer, change.id))]


def _factors(answer: Answer) -> list[Said]:
    others = [
        h for h in answer.hypotheses
        if h is not answer.leading
        and (
            h.cause in answer.contributing
            or (h.confidence >= _CONTRIBUTES and not wording.against(answer, h))
        )
    ]  # fmt: skip
    if answer.verdict.status == "no_incident" or not answer.hypotheses:
        return []
    if not others:
        return [Said(f"No second cause reached a confidence of {_CONTRIBUTES}.")]
    return [
        Said(
            f"{h.cause} ({h.class_}), confidence {confidence(h.confidence)}.",
            tuple(h.evidence[:6]),
        )
        for h in others
    ]


def _is_named(other: Hypothesis) -> bool:
    return other.confidence >= _NAMED or other.rank <= _ALWAYS_NAMED


def _ruled_out(case: Case, answer: Answer) -> list[Said]:
    return [_told(r) for r in rulings.rulings(case, answer, 2) if _is_named(r.hypothesis)][:10]


def _not_ruled_out(case: Case, answer: Answer) -> list[Said]:
    return [_told(r) for r in rulings.still_open(case, answer) if _is_named(r.hypothesis)][:10]


def _told(ruling: rulings.Ruling) -> Said:
    why = f": {ruling.reason}" if ruling.reason else ""
    of = ruling.hypothesis
    text = f"{of.cause}, confidence {confidence(of.confidence)}{why}."
    return Said(text, tuple(e.id for e in ruling.evidence))


def _actions(answer: Answer) -> list[Said]:
    sorts = [(wording.sort_of(f, answer), f) for f in answer.fixes]
    actions = [
        Said(f"{sort.partition(',')[0]}: {printable(f.action, 240)}")
        for sort, f in sorts
        if sort != "record"
    ]  # what to record comes with the gaps
    for gap in answer.gaps:
        if gap.code in wording.USUAL_GAPS:
            continue  # told under what is missing; nobody has to act on it in each postmortem
        how = f"; record it: {printable(gap.record, 240)}" if gap.record else ""
        actions.append(Said(f"observability: {printable(gap.statement, 240)}{how}"))
    return actions


def share(value: float | None) -> str:
    """A share in per cent, empty when there is none."""
    return "" if value is None else percent(value)
