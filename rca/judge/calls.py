"""One question after another, within the money and the time that all of them share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from rca.case import Case
from rca.errors import JudgeError
from rca.judge import replay
from rca.judge.budget import Price, Purse
from rca.judge.endpoint import Endpoint, Failed
from rca.judge.pack import tokens
from rca.judge.prompt import REPLY_TOKENS, Request

DEFAULT_SAMPLES = 5
DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Ask:
    """How models are asked.

    Attributes:
        models: Names of models; each is asked `samples` times.
        text: Whether the first model that agrees is to write the summary and the lessons as well.
        replay: 'auto' takes stored answers where there are any, 'only' never calls, 'never' always calls.
        max_tokens: Tokens of all questions and answers together; None for no limit.
        max_cost: Money for all of them together; needs `prices`.
        timeout_s: Wall time for all of them together.
    """

    models: tuple[str, ...] = ()
    samples: int = DEFAULT_SAMPLES
    text: bool = False
    replay: str = "auto"
    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    reply_tokens: int = REPLY_TOKENS


class Heard(NamedTuple):
    """What came of a question: an exchange, or the problem why there was none."""

    exchange: replay.Exchange | None
    replayed: bool
    problem: str | None


@dataclass
class Calls:
    """The way to one endpoint, and to the answers that a case holds already.

    Attributes:
        endpoint: None where there is nobody to ask; `why_not` says why.
        deadline: Time of the monotonic clock by which all is over, s.
    """

    case: Case
    ask: Ask
    endpoint: Endpoint | None
    why_not: str
    purse: Purse
    deadline: float

    def hear(self, question: Request) -> Heard:
        """The stored answer, or the endpoint's."""
        known = replay.stored(self.case, question) if self.ask.replay != "never" else None
        if known is not None:
            return Heard(known, True, None)
        problem = self._unasked(question)
        if problem is not None:
            return Heard(None, False, problem)
        exchange = self._exchange(question)
        return Heard(exchange, False, exchange.problem if exchange.status == "failed" else None)

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


@contextmanager
def calls(case: Case, ask: Ask, deadline: float) -> Iterator[Calls]:
    """The way to the endpoint of the environment, open until the block ends."""
    purse = Purse(ask.max_tokens, ask.max_cost, ask.prices)
    endpoint, why = None, "some answers are not in the case, and --replay only never calls"
    if ask.replay != "only":
        try:
            endpoint = Endpoint.from_environment()
        except JudgeError as error:  # stored answers can be read all the same
            why = str(error)
    made = Calls(case, ask, endpoint, why, purse, deadline)
    if endpoint is None:
        yield made
        return
    with endpoint:
        yield made


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
