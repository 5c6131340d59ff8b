"""Exchanges kept in the case, so that a judgement can be read again without a call."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from rca.case import Case
from rca.judge.prompt import Request


@dataclass(frozen=True)
class Exchange:
    """One question and what came of it; the columns of `judge_exchange`."""

    hash: str
    model: str
    endpoint: str
    parameters: str
    prompt: str
    reply: str | None
    status: str
    problem: str | None
    prompt_tokens: int
    reply_tokens: int
    estimated: bool
    cost: float | None
    dur_ns: int


def stored(case: Case, request: Request) -> Exchange | None:
    """The exchange that the same question had, if it was answered; None otherwise."""
    rows = case.sql(
        "SELECT * FROM judge_exchange WHERE hash = ? AND status <> 'failed' LIMIT 1", [request.hash]
    ).to_dicts()  # fmt: skip
    return Exchange(**rows[0]) if rows else None


def store(case: Case, exchange: Exchange) -> None:
    """Keep an exchange in place of an earlier one of the same question."""
    case.execute("DELETE FROM judge_exchange WHERE hash = ?", [exchange.hash])
    case.insert("judge_exchange", pl.DataFrame([asdict(exchange)], schema_overrides=_TYPES))


def parts(body: dict[str, Any]) -> tuple[str, str]:
    """Parameters and messages of a body as they are kept."""
    parameters = {k: v for k, v in body.items() if k not in {"model", "messages"}}
    return json.dumps(parameters, sort_keys=True), json.dumps(body["messages"])


_TYPES = {"reply": pl.String, "problem": pl.String, "cost": pl.Float64}
