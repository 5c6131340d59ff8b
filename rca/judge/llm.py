"""Language models as judges beside the rules: asked, checked, counted, never trusted further.

The verdict's status, cause and class stay those of the rules, and fixes rest on the rules alone.
A model can say so when it disagrees, and its grounded dissent lowers the confidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from rca import catalogue
from rca.case import Case
from rca.catalogue import Cause
from rca.errors import JudgeError
from rca.judge import grounding, panel, replay
from rca.judge.budget import Price, Purse
from rca.judge.endpoint import Endpoint, Failed
from rca.judge.pack import DEFAULT_TOKENS, Pack, build, tokens
from rca.judge.panel import Member, Sample
from rca.judge.prompt import REPLY_TOKENS, SYSTEM, Request, request
from rca.judge.protocol import Verdict
from rca.judge.reply import Unreadable, read
from rca.judge.rules import RulesJudge
from rca.plain import printable

DEFAULT_SAMPLES = 5
DEFAULT_TIMEOUT_S = 120.0
_UNNAMED = "unnamed"
_FRAME_TOKENS = 1200
"""What fixed words and the schema take of a question, beside the evidence."""


@dataclass(frozen=True)
class Ask:
    """How models are asked.

    Attributes:
        models: Names of models; each is asked `samples` times.
        replay: 'auto' takes stored answers where there are any, 'only' never calls, 'never' always calls.
        max_tokens: Tokens of all questions and answers together; None for no limit.
        max_cost: Money for all of them together; needs `prices`.
        timeout_s: Wall time for all of them together.
    """

    models: tuple[str, ...] = ()
    samples: int = DEFAULT_SAMPLES
    replay: str = "auto"
    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    reply_tokens: int = REPLY_TOKENS


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
        models = self._ask.models or (_UNNAMED,)
        pack: Pack | None = None
        try:
            self._check()
            pack = self.pack(case, causes)
            members = list(self._hear(case, pack, causes, deadline))
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
            calls = max(self._ask.samples, 1) * max(len(self._ask.models), 1)
            room = self._ask.max_tokens // calls - self._ask.reply_tokens - _FRAME_TOKENS
            budget = min(budget, room)
        return build(case, causes, budget)

    def requests(self, case: Case) -> Iterator[Request]:
        """Every question as it would be sent, sample by sample."""
        pack = self.pack(case, catalogue.of(case))
        for model in self._ask.models:
            for number in range(self._ask.samples):
                yield request(model, pack, number, self._ask.reply_tokens)

    def _check(self) -> None:
        if not self._ask.models:
            raise JudgeError("no model is named", hint="name one with --model")
        if self._ask.samples < 1:
            raise JudgeError("--samples must be at least 1")

    def _hear(
        self, case: Case, pack: Pack, causes: dict[str, Cause], deadline: float
    ) -> Iterator[Member]:
        """Every model in turn; the purse and the deadline are shared."""
        ask = self._ask
        purse = Purse(ask.max_tokens, ask.max_cost, ask.prices)
        endpoint, why = None, "some answers are not in the case, and --replay only never calls"
        if ask.replay != "only":
            try:
                endpoint = Endpoint.from_environment()
            except JudgeError as error:  # stored answers can be read all the same
                why = str(error)
        with endpoint or nullcontext():
            for model in ask.models:
                hearing = _Hearing(case, pack, causes, endpoint, why, purse, deadline, ask)
                yield hearing.hear(model)


@dataclass
class _Hearing:
    """All samples of one model."""

    # `why_not` is said where there is no endpoint to ask.
    case: Case
    pack: Pack
    causes: dict[str, Cause]
    endpoint: Endpoint | None
    why_not: str
    purse: Purse
    deadline: float
    ask: Ask

    def hear(self, model: str) -> Member:
        member = Member(model, self.ask.samples, dropped=self.pack.dropped)
        for number in range(self.ask.samples):
            question = request(model, self.pack, number, self.ask.reply_tokens)
            known = replay.stored(self.case, question) if self.ask.replay != "never" else None
            if known is not None:
                member.samples.append(self._read(question, known, replayed=True))
                continue
            problem = self._unasked(question)
            if problem is None:
                exchange = self._exchange(question)
                member.samples.append(self._read(question, exchange, replayed=False))
                member.tokens += exchange.prompt_tokens + exchange.reply_tokens
                if exchange.cost is not None:
                    member.cost = (member.cost or 0.0) + exchange.cost
                problem = exchange.problem if exchange.status == "failed" else None
            if problem is not None:
                member.note = problem
                if self.endpoint is not None:
                    break
        member.note = member.note or _told(member)
        return member

    def _unasked(self, question: Request) -> str | None:
        """Why a question is not to be sent; None when it is."""
        if self.endpoint is None:
            return self.why_not
        if time.monotonic() >= self.deadline:
            return f"the time of {self.ask.timeout_s:g} s was used up before all samples"
        size = tokens(json.dumps(question.body))
        return self.purse.refuses(question.model, size, self.ask.reply_tokens)

    def _exchange(self, question: Request) -> replay.Exchange:
        """Ask, book what it took, keep it in the case."""
        assert self.endpoint is not None  # noqa: S101 - the caller checked
        text = problem = None
        body, dur_ns = question.body, 0
        counted: tuple[int | None, int | None] = (None, None)
        status, started = "answered", time.monotonic_ns()
        try:
            answer = self.endpoint.ask(question.body, self.deadline)
            text, problem, body, dur_ns = (
                answer.text,
                answer.problem,
                answer.body,
                answer.dur_ns,
            )
            counted = (answer.prompt_tokens, answer.reply_tokens)
            status = "answered" if problem is None else "unreadable"
        except Failed as error:
            status, problem, dur_ns = "failed", str(error), time.monotonic_ns() - started
        used = (0, 0) if status == "failed" else _used(question, text, counted)
        cost = self.purse.spend(question.model, *used)
        parameters, prompt = replay.parts(body)
        exchange = replay.Exchange(
            question.hash, question.model, self.endpoint.address, parameters, prompt, text, status,
            problem, *used, None in counted, cost, dur_ns,
        )  # fmt: skip
        replay.store(self.case, exchange)
        return exchange

    def _read(self, question: Request, exchange: replay.Exchange, *, replayed: bool) -> Sample:
        """The opinion in an exchange, held against the evidence."""
        sample = Sample(
            question.model, question.sample, "unscored", hash=exchange.hash, replayed=replayed
        )
        if exchange.status == "failed":
            return replace(sample, status="failed", note=exchange.problem)
        if exchange.status == "unreadable" or exchange.reply is None:
            return replace(sample, note=exchange.problem or "an empty answer")
        try:
            opinion = grounding.check(read(exchange.reply), self.pack, self.causes)
        except Unreadable as error:
            return replace(sample, note=printable(error, 200))
        return replace(sample, status=opinion.status, opinion=opinion)


def _used(
    question: Request, text: str | None, counted: tuple[int | None, int | None]
) -> tuple[int, int]:
    """Tokens of question and answer: as counted, else estimated."""
    prompt, reply = counted
    sent = tokens(json.dumps(question.body["messages"]))
    return (
        sent if prompt is None else prompt,
        tokens(text or "") if reply is None else reply,
    )


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
