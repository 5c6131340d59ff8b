"""Opinions counted: the majority of each model, and what dissent does to the confidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import polars as pl

from rca.case import Case
from rca.judge.grounding import Opinion
from rca.judge.prompt import UNKNOWN
from rca.judge.protocol import Verdict
from rca.judge.redaction import Masker
from rca.judge.replay import Exchange

DISSENT = 0.5
"""What full, grounded dissent leaves of the confidence. Set by judgement, not by measurement."""


@dataclass(frozen=True)
class Sample:
    """One answer: the opinion, or why there is none."""

    model: str
    number: int
    status: str
    opinion: Opinion | None = None
    note: str | None = None
    hash: str | None = None
    replayed: bool = False


@dataclass
class Member:
    """One model of the panel and all its samples."""

    model: str
    asked: int
    samples: list[Sample] = field(default_factory=list)
    tokens: int = 0
    cost: float | None = None
    dropped: int = 0
    note: str | None = None
    text_note: str | None = None

    def book(self, exchange: Exchange) -> None:
        """Count what a call took."""
        self.tokens += exchange.prompt_tokens + exchange.reply_tokens
        if exchange.cost is not None:
            self.cost = (self.cost or 0.0) + exchange.cost

    @property
    def scored(self) -> list[Opinion]:
        """Opinions that count."""
        return [s.opinion for s in self.samples if s.status == "scored" and s.opinion]

    @property
    def majority(self) -> Opinion | None:
        """The first opinion of the cause that most name; None on a tie."""
        votes = Counter(o.cause for o in self.scored).most_common(2)
        if not votes or (len(votes) > 1 and votes[0][1] == votes[1][1]):
            return None
        return next(o for o in self.scored if o.cause == votes[0][0])

    def share(self, cause: str) -> float | None:
        """Share of the scored opinions that name a cause; None without any."""
        scored = self.scored
        return sum(o.cause == cause for o in scored) / len(scored) if scored else None


def combine(rules: Verdict, members: Sequence[Member], masker: Masker | None) -> Verdict:
    """The verdict of the rules with the confidence that the panel leaves it.

    Status, cause and class stay those of the rules. The confidence never rises.
    """
    counted = [m for m in members if m.scored]
    if not counted:
        return rules
    named = rules.cause or UNKNOWN
    dissent = sum(1.0 - (m.share(named) or 0.0) for m in counted) / len(counted)
    agreed = [o for m in counted for o in m.scored if o.cause == named and o.reason]
    told = rules.reason
    if dissent < 0.5 and agreed and masker is not None and rules.status == "diagnosed":
        told = masker.restore(agreed[0].reason or "")
    return replace(
        rules,
        confidence=rules.confidence * (1.0 - (1.0 - DISSENT) * dissent),
        reason=told,
        judge=", ".join(m.model for m in counted),
    )


def record(
    case: Case, rules: Verdict, members: Sequence[Member], masker: Masker | None
) -> None:
    """Write judge_opinion, judge_panel and judge_mask anew."""
    case.clear(["judge_opinion", "judge_panel", "judge_mask"])
    masker = masker or Masker()
    opinions = [_opinion(s, masker) for m in members for s in m.samples]
    if opinions:
        case.insert("judge_opinion", pl.DataFrame(opinions, infer_schema_length=None))
    if members:
        rows = [_member(m, rules) for m in members]
        case.insert("judge_panel", pl.DataFrame(rows, infer_schema_length=None))
    if masker.table():
        case.insert("judge_mask", pl.DataFrame(masker.table()))


def _opinion(sample: Sample, masker: Masker) -> dict[str, Any]:
    said = sample.opinion
    empty: list[Any] = []
    return {
        "model": sample.model, "sample": sample.number, "status": sample.status,
        "cause": said.cause if said else None, "class": said.cls if said else None,
        "reason": masker.restore(said.reason) if said and said.reason else None,
        "cited": json.dumps(said.cited if said else empty),
        "claims": _restored(said.claims if said else empty, masker),
        "ruled_out": _restored(said.ruled_out if said else empty, masker),
        "missing": json.dumps(said.missing if said else empty),
        "struck": _restored([asdict(s) for s in said.struck] if said else empty, masker),
        "note": sample.note or (said.note if said else None),
        "hash": sample.hash, "replayed": sample.replayed,
    }  # fmt: skip


def _restored(rows: Sequence[dict[str, Any]], masker: Masker) -> str:
    """Rows as JSON with the real names in their texts."""
    return json.dumps(
        [
            {k: masker.restore(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in rows
        ],
        ensure_ascii=False,
    )


def _member(member: Member, rules: Verdict) -> dict[str, Any]:
    named, most = rules.cause or UNKNOWN, member.majority
    share = member.share(named)
    return {
        "model": member.model, "samples": member.asked, "scored": len(member.scored),
        "cause": most.cause if most else None, "class": most.cls if most else None,
        "agreement": member.share(most.cause) if most else None,
        "agrees": most.cause == named if most else None,
        "dissent": None if share is None else 1.0 - share,
        "rules_confidence": rules.confidence, "tokens": member.tokens, "cost": member.cost,
        "dropped": member.dropped, "note": member.note,
        "text_note": member.text_note,
    }  # fmt: skip
