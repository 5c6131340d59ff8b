"""Language models as judges beside the rules: asked, checked, counted, never trusted further.

The verdict's status, cause and class stay those of the rules, and fixes rest on the rules alone.
A model can say so when it disagrees, and its grounded dissent lowers the confidence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rca import catalogue
from rca.case import Case
from rca.catalogue import Cause
from rca.errors import JudgeError
from rca.judge import grounding, panel, text
from rca.judge.calls import DEFAULT_SAMPLES, DEFAULT_TIMEOUT_S, Ask, Calls, calls
from rca.judge.pack import DEFAULT_TOKENS, Pack, build
from rca.judge.panel import Member, Sample
from rca.judge.prompt import SYSTEM, Request, request
from rca.judge.protocol import Verdict
from rca.judge.replay import Exchange
from rca.judge.reply import Reply, Unreadable, read
from rca.judge.rules import RulesJudge
from rca.plain import printable

_UNNAMED = "unnamed"
_FRAME_TOKENS = 1200
"""What fixed words and the schema take of a question, beside the evidence."""


class NothingToJudge(JudgeError):  # noqa: N818 - no failure
    """A healthy case, or one with nothing to compare with: no failure, and no question."""


class LlmJudge:
    """A panel of language models behind one endpoint, beside the rules."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    @property
    def name(self) -> str:
        """The models' names."""
        return ", ".join(self._ask.models) or _UNNAMED

    def judge(self, case: Case) -> Verdict:
        """The rules' verdict with the confidence that the models leave it; never raises for them.

        What the models said, and what went wrong, stands in judge_panel and judge_opinion.
        """
        deadline = time.monotonic() + self._ask.timeout_s
        rules = RulesJudge().judge(case)
        causes = catalogue.of(case)
        case.clear(["judge_text"])  # written at once, unlike what `record` writes
        models = self._ask.models or (_UNNAMED,)
        pack: Pack | None = None
        try:
            self._check()
            pack = self.pack(case, causes)
            with calls(case, self._ask, deadline) as way:
                members = list(self._hear(pack, causes, way))
                if self._ask.text:
                    text.write(pack, causes, rules, members, way)
        except JudgeError as error:
            asked = 0 if isinstance(error, NothingToJudge) else self._ask.samples
            members = [Member(m, asked, note=str(error)) for m in models]
        masker = pack.masker if pack else None
        panel.record(case, rules, members, masker)
        return panel.combine(rules, members, masker)

    def pack(self, case: Case, causes: dict[str, Cause]) -> Pack:
        """What the models are shown.

        Raises:
            JudgeError: There is nothing to judge, or it does not fit.
        """
        if not case.scalar("SELECT count(*) FROM hypothesis"):
            raise NothingToJudge(
                "not asked: without an incident there are no causes to choose from"
            )
        budget = DEFAULT_TOKENS
        if self._ask.max_tokens is not None:
            asked = max(self._ask.samples, 1) * max(len(self._ask.models), 1)
            room = (
                self._ask.max_tokens // (asked + self._ask.text)
                - self._ask.reply_tokens
                - _FRAME_TOKENS
            )
            budget = min(budget, room)
        return build(case, causes, budget)

    def requests(self, case: Case) -> Iterator[Request]:
        """Every question as it would be sent, sample by sample; the text by the first model, if asked for."""
        pack = self.pack(case, catalogue.of(case))
        for model in self._ask.models:
            for number in range(self._ask.samples):
                yield request(model, pack, number, self._ask.reply_tokens)
        rules = RulesJudge().judge(case)
        if self._ask.text and rules.status == "diagnosed":
            first, length = self._ask.models[0], self._ask.reply_tokens
            yield text.ask_for(first, pack, catalogue.of(case), rules, length)

    def _check(self) -> None:
        if not self._ask.models:
            raise JudgeError("no model is named", hint="name one with --model")
        if self._ask.samples < 1:
            raise JudgeError("--samples must be at least 1")

    def _hear(self, pack: Pack, causes: dict[str, Cause], way: Calls) -> Iterator[Member]:
        """Every model in turn."""
        for model in self._ask.models:
            yield _Hearing(pack, causes, way).hear(model)


@dataclass
class _Hearing:
    """All samples of one model."""

    pack: Pack
    causes: dict[str, Cause]
    way: Calls

    def hear(self, model: str) -> Member:
        ask = self.way.ask
        member = Member(model, ask.samples, dropped=self.pack.dropped)
        for number in range(ask.samples):
            question = request(model, self.pack, number, ask.reply_tokens)
            heard = self.way.hear(question)
            if heard.exchange is not None:
                sample = self._read(question, heard.exchange, replayed=heard.replayed)
                member.samples.append(sample)
                if not heard.replayed:
                    member.book(heard.exchange)
            if heard.problem is not None:
                member.note = heard.problem
                if self.way.endpoint is not None:
                    break
        member.note = member.note or _told(member)
        return member

    def _read(self, question: Request, exchange: Exchange, *, replayed: bool) -> Sample:
        """The opinion in an exchange, held against the evidence."""
        sample = Sample(
            question.model, question.sample, "unscored", hash=exchange.hash, replayed=replayed
        )
        if exchange.status == "failed":
            return replace(sample, status="failed", note=exchange.problem)
        if exchange.status == "unreadable" or exchange.reply is None:
            return replace(sample, note=exchange.problem or "an empty answer")
        try:
            opinion = grounding.check(read(exchange.reply, Reply), self.pack, self.causes)
        except Unreadable as error:
            return replace(sample, note=printable(error, 200))
        return replace(sample, status=opinion.status, opinion=opinion)


def _told(member: Member) -> str | None:
    """Why samples of a model do not count, in one line; None when all do."""
    left = [s for s in member.samples if s.status != "scored"]
    if not left:
        return None
    first = left[0].note or (left[0].opinion.note if left[0].opinion else None)
    return f"{len(left)} of {member.asked} samples do not count, the first because: {first}"


def outcome(case: Case) -> list[str]:
    """One line for each model of which nothing counts; empty when all were heard, or none was asked."""
    return [
        f"{printable(model, 60)}: {printable(note or 'nothing was said', 400)}; the rules' verdict stands"
        for model, note in case.rows(
            "SELECT model, note FROM judge_panel WHERE scored = 0 AND samples > 0 ORDER BY rowid"
        )
    ]


__all__ = ["DEFAULT_SAMPLES", "DEFAULT_TIMEOUT_S", "SYSTEM", "Ask", "LlmJudge", "outcome"]
