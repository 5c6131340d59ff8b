"""Sentences about an answer, the same in the terminal, in Markdown and in HTML.

Everything returned is `printable`; escaping for the medium is the medium's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rca import catalogue
from rca.answer import (
    Answer,
    Change,
    Evidence,
    Fix,
    GuardRule,
    Hypothesis,
    Juror,
    Part,
    Window,
)
from rca.case import Case
from rca.plain import confidence, duration, factor, moment, number, percent, printable, quantity
from rca.signals import limit_of

HEADLINES = {
    "diagnosed": "cause found",
    "unknown": "cause unknown",
    "no_incident": "no incident",
}
TRIALS = {
    "validated": "validated",
    "mechanism_only": "mechanism shown, effect not measured",
    "partial_fix": "cause reproduced, the fix helps only in part",
    "ambiguous": "ambiguous: another cause fits the experiment as well",
    "refuted": "refuted",
    "not_reproducible_on_device": "cannot be reproduced on this device",
    "inconclusive": "inconclusive",
    "not_run": "not run",
}


def cause_text(case: Case, cause: str | None) -> tuple[str, str]:
    """Title and definition of a cause; of one that the case does not know, its id and nothing."""
    known = catalogue.of(case).get(cause or "")
    if known is None:
        return printable(cause or "unknown", 80).replace("_", " "), ""
    return printable(known.title, 120), printable(known.definition, 1000)


def label(evidence: Evidence) -> str:
    """What the evidence speaks of, short."""
    name = (evidence.role or "").replace("_", " ") or evidence.subject
    return printable(f"{evidence.service} {name}" if evidence.service else name, 90)


def movement(evidence: Evidence) -> str:
    """`waiting 1 → 24 (×24 [22–26])`; the sentence itself where there are no numbers."""
    if evidence.direction == "event" or (
        evidence.reference is None and evidence.observed is None
    ):
        return printable(evidence.statement, 240)
    if evidence.direction == "flat":
        return f"{label(evidence)} steady at {quantity(evidence.observed, evidence.unit)}"
    change = " → ".join(
        quantity(v, evidence.unit) for v in (evidence.reference, evidence.observed)
    )
    ratio = factor(evidence.effect, evidence.effect_low, evidence.effect_high)
    return f"{label(evidence)} {change}" + (f" ({ratio})" if ratio else "")


def window(found: Window) -> str:
    """Where the incident is and how it was found, or why there is none."""
    if found.start_ns is None or found.end_ns is None:
        return _no_window(found)
    same_day = moment(found.start_ns)[:10] == moment(found.end_ns)[:10]
    parts = [f"{moment(found.start_ns)} – {moment(found.end_ns, date=not same_day)} UTC"]
    if found.margin_ns:
        parts[0] += f" (±{duration(found.margin_ns)})"
    if found.detected_by:
        parts.append(f"found by {printable(found.detected_by)}")
    length = duration(found.dur_ns)
    parts.append(
        f"SLO {printable(found.slo)} broken for {length}" if found.slo else f"lasting {length}"
    )
    return ", ".join(parts)


def _no_window(found: Window) -> str:
    healthy = found.status == "none"
    text = "no incident found" if healthy else "no window: nothing to compare with"
    if found.score is not None and found.threshold is not None:
        text += f", scan score {number(found.score)} of the {number(found.threshold)} needed"
    return text + (f" ({printable(found.note)})" if found.note else "")


def explained(answer: Answer) -> str | None:
    """Where the added latency went, how much the leading cause accounts for, what is left over."""
    parts = _named_parts(answer)
    if not parts:
        return None
    top = ", ".join(
        f"{printable(p.part, 40).replace('_', ' ')} {percent(p.share)}" for p in parts
    )
    lead = answer.leading
    share = lead.explained_share if lead and answer.verdict.status == "diagnosed" else None
    head = (
        f"explains {percent(share)} of the added latency by itself"
        if share is not None
        else "added latency"
    )
    rest = next((p for p in answer.attribution if p.part == "residual"), None)
    left = f"; residual {percent(rest.share)}" if rest and rest.share is not None else ""
    return f"{head} ({top}){left}" if share is not None else f"{head}: {top}{left}"


def large_parts(answer: Answer) -> tuple[str, ...]:
    """Evidence ids of the parts that `explained` speaks of, and of the residual."""
    rest = [p for p in answer.attribution if p.part == "residual"]
    return tuple(dict.fromkeys(p.evidence for p in [*_named_parts(answer), *rest]))


def _named_parts(answer: Answer) -> list[Part]:
    """The three parts that changed the latency most, one at least and none below a hundredth."""
    parts = [p for p in answer.attribution if p.part != "residual" and p.share is not None]
    parts.sort(key=lambda p: -abs(p.share or 0.0))
    return [p for i, p in enumerate(parts[:3]) if i == 0 or abs(p.share or 0.0) >= 0.01]


def lag(answer: Answer, change: Change) -> str:
    """When a change came, against the start of the window; within its margin they coincide."""
    lag_ns = (answer.window.start_ns or 0) - change.ts_ns
    margin_ns = answer.window.margin_ns or 0
    if abs(lag_ns) <= 2 * margin_ns:
        return f"when the window began (±{duration(margin_ns)})"
    return f"{duration(abs(lag_ns))} {'before' if lag_ns >= 0 else 'after'} the window began"


def against(answer: Answer, other: Hypothesis) -> list[Evidence]:
    """The evidence that speaks against a hypothesis or decides it against the leading one."""
    ids = list(other.contradicting)
    ids += [str(r["decided_by"]) for r in _rivalries(answer, other) if r.get("decided_by")]
    return answer.cited(list(dict.fromkeys(ids)))


@dataclass(frozen=True)
class Ruling:
    """A hypothesis that is out, why in words, and the evidence that decides, best first."""

    hypothesis: Hypothesis
    reason: str
    evidence: list[Evidence]


def rulings(answer: Answer, n: int) -> list[Ruling]:
    """The hypotheses that evidence rules out, each with at most n pieces of it.

    Many causes fail to account for the same strongest movement. So each is told by what was not
    told of one before it, where the leading cause accounts for more that the other does not.
    """
    told: set[str] = set()
    found = []
    for other in answer.hypotheses:
        contrary = against(answer, other)
        if not contrary or other.cause in answer.contributing:
            continue
        if other is answer.leading and answer.verdict.status == "diagnosed":
            continue
        told_apart = [r for r in _rivalries(answer, other) if r.get("because")]
        because = [str(r["because"]) for r in told_apart]
        if because:
            decides = str(told_apart[0].get("decided_by"))
            contrary.sort(key=lambda e: e.id != decides)
        else:
            contrary = list(dict.fromkeys([*contrary, *_unexplained(answer, other)]))
            contrary.sort(key=lambda e: e.id in told)
        chosen = contrary[:n]
        told.add(chosen[0].id)
        movements = "; ".join(movement(e) for e in chosen)
        reason = (
            f"{printable(because[0], 160)}; here {movements}"
            if because
            else f"does not account for {movements}"
        )
        found.append(Ruling(other, reason, chosen))
    return found


def _unexplained(answer: Answer, other: Hypothesis) -> list[Evidence]:
    """What moved and speaks for the leading cause, but not for the other, the strongest first."""
    lead = answer.leading
    ids = [i for i in lead.evidence if i not in other.evidence] if lead else []
    moved = [e for e in answer.cited(ids) if e.direction not in {"flat", "event"}]
    return sorted(moved, key=lambda e: -abs(e.strength))


def _rivalries(answer: Answer, other: Hypothesis) -> list[dict[str, Any]]:
    lead = answer.leading
    if lead is None or lead is other:
        return []
    return [
        r for r in lead.competitors if isinstance(r, dict) and r.get("cause") == other.cause
    ]


def missing(hypothesis: Hypothesis | None) -> str | None:
    """How far the roles that no recording shows could move the leading score."""
    changes = [
        f"{printable(m['role'], 40).replace('_', ' ')} {number(float(m['largest_change']))}"
        for m in (hypothesis.missing if hypothesis else [])
    ]
    return f"could move its score by at most: {', '.join(changes[:5])}" if changes else None


def juror(said: Juror, answer: Answer) -> str:
    """What a language model said beside the rules, and what that did to the confidence."""
    name = printable(said.model, 60)
    left_out = f"; {said.dropped} rows of evidence did not fit" if said.dropped else ""
    if said.agreement is None or said.agrees is None:
        why = "its samples do not agree" if said.scored else printable(said.note or "", 300)
        return f"{name}: no opinion ({why}); the rules' verdict stands"
    count = f"{round(said.agreement * said.scored)} of {said.scored} scored samples"
    unread = f", {said.samples - said.scored} unscored" if said.scored < said.samples else ""
    label = printable(said.cause, 60) + (f" ({said.class_})" if said.cause != "unknown" else "")
    head = f"{name} agrees" if said.agrees else f"{name} DISAGREES: {label}"
    moved = answer.verdict.confidence < said.rules_confidence
    told = f"; confidence {confidence(said.rules_confidence)} of the rules, {confidence(answer.verdict.confidence)} with dissent"
    text = f"; no text: {printable(said.text_note, 200)}" if said.text_note else ""
    return f"{head}, {count}{unread}{told if moved else ''}{left_out}{text}"


def proposal(fix: Fix) -> str:
    """The file to apply and how to undo it, how long it takes, what came of the gate."""
    return " · ".join(
        [
            *_apply(fix),
            _undo(fix),
            f"{fix.kind} of {printable(fix.target, 80)}, {printable(fix.time_to_effect, 60)}",
            _gate(fix.gate),
        ]
    )


def _apply(fix: Fix) -> list[str]:
    if not fix.file:
        return []
    return [
        f"{'see' if fix.file.endswith('.txt') else 'apply'} fixes/{printable(fix.file, 80)}"
    ]


def _undo(fix: Fix) -> str:
    if fix.undo:
        return f"undo fixes/{printable(fix.undo, 80)}"
    if fix.kind == "investigate":
        return "changes nothing"
    return "undo: take it back by hand" if fix.reversible else "CANNOT be undone"


def _gate(gate: str) -> str:
    """What decided: of a gate that is passed nothing more, else what failed; the rest is in the documents."""
    if gate.startswith("passed:"):
        return "gate passed"
    return printable(gate.partition("; met:")[0], 240)


def guard_rail(rule: GuardRule) -> str:
    """What a rule watches, how early it fires here, and how often on the healthy side."""
    watched, limit = limit_of(rule.role, rule.threshold, "deriv(" in rule.expr)
    name = printable(f"{rule.service} {watched}".strip(), 80)
    side = "above" if rule.side == "up" else "below"
    head = (
        f"{printable(rule.alert, 80)}: {name} {side} {limit} for {duration(rule.for_s * 1e9)}"
    )
    what = "the alert that fired" if rule.against == "alert" else "the start of the window"
    if rule.lead_s is None:
        fired = "silent in this incident"
    else:
        when = "before" if rule.lead_s >= 0 else "after"
        fired = f"fires {duration(abs(rule.lead_s) * 1e9)} {when} {what}"
    # With no event in t, up to 3 / t a unit of time cannot be excluded (95 %).
    day = 86_400 / rule.reference_s if rule.reference_s else None
    most = f" (a rate of up to {number(3 * day)} a day is not excluded)" if day else ""
    healthy = f"{rule.reference_firings} times in {duration(rule.reference_s * 1e9)} of the healthy side"
    return f"{head}; {fired}; {healthy}{most if not rule.reference_firings else ''}"
