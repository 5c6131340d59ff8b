"""Claims held against the evidence: what does not stand there is struck.

A model may explain; it may not invent. What is left of an answer decides whether it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rca.catalogue import Cause
from rca.judge.facts import Fact
from rca.judge.numbers import stand_in, unfounded
from rca.judge.pack import Pack
from rca.judge.prompt import UNKNOWN
from rca.judge.protocol import MAX_REASON_WORDS, shortened
from rca.judge.reply import Claim, Reply, RuledOut
from rca.plain import printable

_SIGNS = {"up": 1, "down": -1, "flat": 0, "new": 1, "gone": -1}
_RISING = re.compile(
    r"\b(?:rose|ris(?:es?|ing|en)|increas\w+|grew|grow\w*|higher|climb\w+|jump\w+|surg\w+|spik\w+|up|more)\b",
    re.IGNORECASE,
)
_FALLING = re.compile(
    r"\b(?:fell|fall(?:s|en|ing)?|decreas\w+|drop\w*|lower|declin\w+|shrank|shrink\w*|down|less|fewer|sank)\b",
    re.IGNORECASE,
)
_STEADY = re.compile(
    r"\b(?:steady|stable|unchanged|flat|stayed|unmoved|constant|no change)\b", re.IGNORECASE
)
_ACTIVE = re.compile(
    r"://|www\.|`|\$\(|<[a-z/!]|\]\(|\b(?:sudo|curl|wget|kubectl|rm|bash|sh)\s", re.I
)


@dataclass(frozen=True)
class Struck:
    """A claim that does not hold: where it stood, what it said, why it was struck."""

    where: str
    text: str
    why: str


@dataclass
class Opinion:
    """What is left of an answer. `status` is 'scored' or 'unscored'; `note` says why it is not."""

    cause: str
    cls: str
    status: str = "unscored"
    note: str | None = None
    reason: str | None = None
    cited: list[str] = field(default_factory=list)
    claims: list[dict[str, str]] = field(default_factory=list)
    ruled_out: list[dict[str, object]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)


def check(reply: Reply, pack: Pack, causes: dict[str, Cause]) -> Opinion:
    """The answer with everything struck that the evidence does not bear out."""
    opinion = Opinion(reply.cause, reply.cls)
    wrong = set(_keep_claims(reply.claims, pack, opinion))
    _keep_ruled_out(reply, pack, causes, opinion)
    _keep_missing(reply.missing, pack, opinion)
    support = _keep_cited(reply, pack, causes, wrong, opinion)
    _keep_reason(reply.reason, pack, opinion)
    opinion.note = _unsupported(reply, pack, causes, support)
    opinion.status = "scored" if opinion.note is None else "unscored"
    return opinion


def _keep_claims(claims: Iterable[Claim], pack: Pack, opinion: Opinion) -> Iterator[str]:
    """File the claims that hold; yields the ids of evidence about which something wrong was said."""
    for claim in claims:
        fact = pack.facts.get(claim.evidence)
        why = _wrong(claim, fact)
        if why:
            _strike(opinion, f"claim on {claim.evidence}", claim.statement, why)
            yield claim.evidence
        else:
            text = printable(claim.statement, 300)
            opinion.claims.append({"evidence": claim.evidence, "statement": text})


def _wrong(claim: Claim, fact: Fact | None) -> str | None:
    """Why a claim does not hold; None when it does."""
    if fact is None:
        return "no such evidence was shown"
    if claim.direction != fact.direction:
        return f"the row says {fact.direction}, the claim {printable(claim.direction, 20)}"
    said = directions(claim.statement)
    if said and fact.direction in {"up", "down", "flat"} and fact.direction not in said:
        return f"the row says {fact.direction}, the sentence {' and '.join(sorted(said))}"
    if is_active(claim.statement):
        return "a link, markup or a command"
    number = unfounded(claim.statement, stand_in(fact.shown))
    return f"{printable(number, 30)} does not stand in the row" if number else None


def directions(sentence: str) -> set[str]:
    """The directions that a sentence speaks of: 'up', 'down' or 'flat'."""
    forms = (("up", _RISING), ("down", _FALLING), ("flat", _STEADY))
    return {name for name, form in forms if form.search(sentence)}


def is_active(sentence: str) -> bool:
    """Whether a sentence holds a link, markup or a command."""
    return _ACTIVE.search(sentence) is not None


def _keep_ruled_out(
    reply: Reply, pack: Pack, causes: dict[str, Cause], opinion: Opinion
) -> None:
    for other in reply.ruled_out:
        why, against = _why_not_ruled_out(other, reply.cause, pack, causes)
        if why:
            _strike(opinion, f"{other.cause} ruled out", other.reason, why)
        else:
            reason = printable(other.reason, 300)
            opinion.ruled_out.append(
                {"cause": other.cause, "evidence": against, "reason": reason}
            )


def _why_not_ruled_out(
    other: RuledOut, named: str, pack: Pack, causes: dict[str, Cause]
) -> tuple[str | None, list[str]]:
    """Why a cause is not ruled out by what was said, and the evidence that does speak against it."""
    if other.cause not in pack.candidates:
        return "not a candidate", []
    if other.cause == named:
        return "it is the cause that was named", []
    facts = [pack.facts[e] for e in other.evidence if e in pack.facts]
    against = [f.id for f in facts if _speaks_against(f, other.cause, pack, causes)]
    if not against:
        return "nothing that was cited speaks against it", []
    if is_active(other.reason):
        return "a link, markup or a command", []
    number = unfounded(other.reason, (v for f in facts for v in stand_in(f.shown)))
    if number:
        return f"{printable(number, 30)} does not stand in the rows", []
    return None, against


def _keep_missing(roles: Iterable[str], pack: Pack, opinion: Opinion) -> None:
    absent = {role for c in pack.candidates.values() for role in c.missing}
    for role in dict.fromkeys(roles):
        if role in absent:
            opinion.missing.append(role)
        else:
            _strike(opinion, "missing", role, "it is recorded, or no candidate asks for it")


def _keep_cited(
    reply: Reply, pack: Pack, causes: dict[str, Cause], wrong: set[str], opinion: Opinion
) -> list[Fact]:
    """The cited evidence that speaks for the cause; strikes what speaks against it."""
    support = []
    for key in dict.fromkeys(reply.cited):
        fact = pack.facts.get(key)
        if fact is None:
            _strike(opinion, "cited", key, "no such evidence was shown")
        elif key in wrong:
            _strike(opinion, "cited", key, "what was said about it does not hold")
        elif reply.cause in pack.candidates and _speaks_against(
            fact, reply.cause, pack, causes
        ):
            _strike(opinion, "cited", key, f"its direction does not fit {reply.cause}")
        else:
            opinion.cited.append(key)
            if _speaks_for(fact, reply.cause, pack, causes):
                support.append(fact)
    return support


def _keep_reason(reason: str, pack: Pack, opinion: Opinion) -> None:
    values = [v for key in opinion.cited for v in stand_in(pack.facts[key].shown)]
    number = unfounded(reason, values)
    if is_active(reason):
        _strike(opinion, "reason", reason, "a link, markup or a command")
    elif number:
        _strike(opinion, "reason", reason, f"{printable(number, 30)} stands in no cited row")
    elif not reason.strip():
        _strike(opinion, "reason", reason, "empty")
    else:
        if len(reason.split()) > MAX_REASON_WORDS:
            _strike(opinion, "reason", reason, f"cut to {MAX_REASON_WORDS} words")
        opinion.reason = printable(shortened(reason), 240)


def _unsupported(
    reply: Reply, pack: Pack, causes: dict[str, Cause], support: list[Fact]
) -> str | None:
    """Why the label does not count; None when it does. `unknown` needs no support."""
    if reply.cause == UNKNOWN:
        return None
    if reply.cause not in pack.candidates:
        return "names a cause that is no candidate"
    if reply.cls != causes[reply.cause].cls:
        return f"class {printable(reply.cls, 30)} is not that of {reply.cause}"
    if not support:
        return f"nothing that was cited and holds speaks for {reply.cause}"
    if not any(f.role in causes[reply.cause].requires for f in support):
        return f"none of the evidence that {reply.cause} requires was cited and holds"
    return None


def _expected(fact: Fact, cause: Cause) -> int | None:
    expected = cause.expected.get(fact.role or "")
    return expected[0] if expected else None


def _speaks_for(fact: Fact, name: str, pack: Pack, causes: dict[str, Cause]) -> bool:
    """Whether a row is what the cause would bring about, or its change."""
    if name not in pack.candidates:
        return False
    if fact.direction == "event":
        return fact.id in pack.candidates[name].supports
    sign = _expected(fact, causes[name])
    return sign is not None and sign == _SIGNS.get(fact.direction)


def _speaks_against(fact: Fact, name: str, pack: Pack, causes: dict[str, Cause]) -> bool:
    """Whether a row is what the cause would not bring about."""
    if fact.direction == "event":
        return fact.id not in pack.candidates[name].supports
    sign = _expected(fact, causes[name])
    if sign is None:
        return fact.id in pack.candidates[name].contradicts
    return sign != _SIGNS.get(fact.direction)


def _strike(opinion: Opinion, where: str, text: str, why: str) -> None:
    opinion.struck.append(Struck(printable(where, 80), printable(text, 300), why))
