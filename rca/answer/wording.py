"""Sentences about an answer, the same in the terminal, in Markdown and in HTML.

Everything returned is `printable`; escaping for the medium is the medium's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from rca.plain import (
    confidence,
    duration,
    factor,
    moment,
    number,
    percent,
    printable,
    quantity,
    role_words,
)
from rca.signals import groups, limit_of

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
_STEADY = 0.1
_MOST, _LITTLE = 0.5, 0.01


def cause_text(case: Case, cause: str | None) -> tuple[str, str]:
    """Title and definition of a cause; of one that the case does not know, its id and nothing."""
    known = catalogue.of(case).get(cause or "")
    if known is None:
        return printable(cause or "unknown", 80).replace("_", " "), ""
    return printable(known.title, 120), printable(known.definition, 1000)


def label(evidence: Evidence) -> str:
    """What the evidence speaks of, short."""
    name = role_words(evidence.role or "") or evidence.subject
    if evidence.group is not None:
        kind, group = evidence.group
        name = groups()[kind].words.format(group)
    return printable(" ".join(filter(None, (evidence.service, evidence.device, name))), 90)


def movement(evidence: Evidence) -> str:
    """`waiting 1 → 24 (×24 [22–26])`; the sentence itself where there are no numbers."""
    if evidence.direction == "event" or (
        evidence.reference is None and evidence.observed is None
    ):
        return printable(evidence.statement, 240)
    change = " → ".join(
        quantity(v, evidence.unit) for v in (evidence.reference, evidence.observed)
    )
    if evidence.direction == "flat":
        if _is_steady(evidence):
            return f"{label(evidence)} steady at {quantity(evidence.observed, evidence.unit)}"
        return f"{label(evidence)} within its spread, {change}"
    ratio = factor(evidence.effect, evidence.effect_low, evidence.effect_high)
    return f"{label(evidence)} {change}" + (f" ({ratio})" if ratio else "")


def _is_steady(evidence: Evidence) -> bool:
    """Whether both values are as good as equal, too."""
    before, after = evidence.reference, evidence.observed
    return before is None or after is None or abs(after - before) <= _STEADY * abs(before)


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
    parts.append(f"lasting {length}")
    if found.slo:
        parts.append(f"SLO {printable(found.slo)} broken")
    if found.note:
        parts.append(printable(found.note))
    return ", ".join(parts)


def other_windows(answer: Answer) -> list[tuple[str, str]]:
    """The windows that are not explained, and for each the command that explains it."""
    return [(window(w), look_at(w)) for w in answer.other_windows]


def look_at(found: Window) -> str:
    """The command that explains a window."""
    start, end = (_iso(ns) for ns in (found.start_ns, found.end_ns))
    return f"rca analyze BUNDLE --window {start} {end}"


def _iso(ts_ns: int | None) -> str:
    """A time as the option --window reads it, exact to the microsecond."""
    whole, rest = divmod(ts_ns or 0, 1_000_000_000)
    text = moment(whole * 1_000_000_000).replace(" ", "T")
    return f"{text}.{rest // 1000:06d}Z" if rest >= 1000 else f"{text}Z"


def _no_window(found: Window) -> str:
    healthy = found.status == "none"
    text = "no incident found" if healthy else "no window: nothing to compare with"
    largest = (found.note or "").partition("; ")[2]
    if (
        healthy and largest
    ):  # it says how far that was from an incident; the rest is the answer's reason
        return f"{text}: {printable(largest, 300)}"
    if found.score is not None and found.threshold is not None:
        text += f", scan score {number(found.score)} of the {number(found.threshold)} needed"
    return text + (f" ({printable(found.note, 400)})" if found.note else "")


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
    rest = next((p for p in answer.attribution if p.part == "residual"), None)
    left = f"; residual {percent(rest.share)}" if rest and rest.share is not None else ""
    if share is None:
        return f"added latency: {top}{left}"
    if share >= _MOST:
        return f"explains {percent(share)} of the added latency by itself ({top}){left}"
    direct = f"{percent(share)} of it" if share >= _LITTLE else "hardly any of it"
    return f"added latency: {top}; {direct} is the cause's own doing, the rest follows or has another reason{left}"


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
    error_ns = 1e9 * change.lag_error_s if change.lag_error_s is not None else margin_ns
    error_ns = (
        math.ceil(error_ns / 1e8) * 1e8 if error_ns > 1e9 else error_ns
    )  # tenths are enough
    told = f" (±{duration(error_ns)})" if error_ns else ""
    if abs(lag_ns) <= 2 * margin_ns:
        return f"when the window began{told}"
    return (
        f"{duration(abs(lag_ns))} {'before' if lag_ns >= 0 else 'after'} the window began{told}"
    )


def against(answer: Answer, other: Hypothesis) -> list[Evidence]:
    """The evidence that speaks against a hypothesis or decides it against the leading one."""
    ids = list(other.contradicting)
    ids += [str(r["decided_by"]) for r in _rivalries(answer, other) if r.get("decided_by")]
    return answer.cited(list(dict.fromkeys(ids)))


def _rivalries(answer: Answer, other: Hypothesis) -> list[dict[str, Any]]:
    lead = answer.leading
    if lead is None or lead is other:
        return []
    return [
        r for r in lead.competitors if isinstance(r, dict) and r.get("cause") == other.cause
    ]


USUAL_GAPS = {
    "no_log": "no logs",
    "no_config": "no configuration",
    "no_gpu_metrics": "no GPU metrics",
    "no_gpu_capture": "no GPU work in captures",
    "clock_unchecked": "some clocks unchecked",
}
"""What most bundles lack, in short: the documents say it at length."""


def missing(hypothesis: Hypothesis | None) -> str | None:
    """How far the roles that no recording shows could move the leading score."""
    changes = [
        f"{role_words(m['role'])} {number(float(m['largest_change']))}"
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


def proposal(fix: Fix, answer: Answer) -> str:
    """The file to apply and how to undo it, how long it takes, what came of the gate."""
    # A fix that names nothing to change stands under its cause, which is no target.
    causes = {h.cause for h in answer.hypotheses}
    what = fix.kind if fix.target in causes else f"{fix.kind} of {printable(fix.target, 80)}"
    when = printable(fix.time_to_effect, 60)
    return " · ".join([*_apply(fix), _undo(fix), f"{what}, {when}", _gate(fix)])


def sort_of(fix: Fix, answer: Answer) -> str:
    """What a proposal is for, in front of its action: `mitigate, rollback`, `investigate`, `record`."""
    if fix.kind != "investigate":
        return f"{fix.phase}, {fix.kind}"
    return "record" if fix.target in {g.code for g in answer.gaps} else "investigate"


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


def _gate(fix: Fix) -> str:
    """What decided: of a gate that is passed nothing more, else what failed; the rest is in the documents."""
    if fix.gate_passed:
        return "gate passed"
    return printable(fix.gate.partition("; met:")[0], 240)


def guard_rail(rule: GuardRule) -> str:
    """What a rule watches, and how early it fires here."""
    watched, limit = limit_of(rule.role, rule.threshold, "deriv(" in rule.expr)
    name = printable(f"{rule.service} {watched}".strip(), 80)
    side = "above" if rule.side == "up" else "below"
    what = "the alert that fired" if rule.against == "alert" else "the start of the window"
    when = "before" if rule.lead_s >= 0 else "after"
    return (
        f"{printable(rule.alert, 80)}: {name} {side} {limit} for {duration(rule.for_s * 1e9)}; "
        f"would have fired {duration(abs(rule.lead_s) * 1e9)} {when} {what}"
    )


def false_alarms(rules: Sequence[GuardRule]) -> str:
    """How often the rules fire in the healthy reference, and whether that was long enough to tell."""
    length_s = max((r.reference_s for r in rules), default=0.0)
    if not length_s:
        return ""
    noisy = [
        f"{printable(r.alert, 80)} {r.reference_firings} times"
        for r in rules
        if r.reference_firings
    ]
    told = f"On the healthy side, {duration(length_s * 1e9)} long, {', '.join(noisy) or 'none of them'} fires"
    # With no event in t, up to 3 / t a unit of time cannot be excluded (95 %).
    if length_s >= 3 * 86_400:
        return f"{told}: at most {number(3 * 86_400 / length_s)} false alarms a day of each that is silent"
    return f"{told}; that is too short to tell how often they would in a week, so let them run silently first"
