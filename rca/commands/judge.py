"""`rca judge` and the options of a language model that `rca analyze` shares with it."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rca.errors import JudgeError

if TYPE_CHECKING:
    from rca.case import Case
    from rca.judge import LlmJudge


class Who(StrEnum):
    """Who judges."""

    rules = "rules"
    openai = "openai"


class Replay(StrEnum):
    """Whether stored answers are used."""

    auto = "auto"
    only = "only"
    never = "never"


JudgeOption = Annotated[
    Who,
    typer.Option(
        "--judge", help="The offline rules, or beside them a model (OPENAI_BASE_URL)."
    ),
]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model", help="Model to ask; repeat it for a panel.")
]

TextOption = Annotated[
    bool,
    typer.Option(
        "--text", help="Let a model that agrees word the postmortem's summary and lessons."
    ),
]


def judge(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="A case.duckdb.")],
    causes: Annotated[
        Path | None, typer.Option("--causes", help="Folder with further causes (*.toml).")
    ] = None,
    who: JudgeOption = Who.rules,
    model: ModelOption = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=50, help="Answers asked of each model.")
    ] = 5,
    text: TextOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")
    ] = False,
    replay: Annotated[
        Replay, typer.Option("--replay", help="Use stored answers; 'only' never calls.")
    ] = Replay.auto,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Tokens of all calls together.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", min=0, help="Cost of all calls; see --prices.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="TOML: prices of a million tokens.")
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", help="Wall time for all calls together.")
    ] = "120s",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
    ] = False,
) -> None:
    """Judge a case again on the evidence that it holds: by the rules, and by language models."""
    from rca import pipeline
    from rca.commands.quantity import parse_seconds
    from rca.judge import Ask, LlmJudge
    from rca.judge.budget import prices as read_prices

    if not dry_run:
        _need_a_model(who, model, text=text)
    ask = Ask(
        models=tuple(model or ()),
        samples=samples,
        text=text,
        replay=replay.value,
        max_tokens=max_tokens,
        max_cost=max_cost,
        prices=read_prices(prices) if prices else {},
        timeout_s=parse_seconds(timeout, "--timeout"),
    )
    if dry_run:
        _show_requests(case, causes, ask.models, LlmJudge, ask, as_json)
        return
    second = LlmJudge(ask) if who is Who.openai else None
    with pipeline.judge_again(case, causes, second) as judged:
        _show(judged, as_json)
        problems = unheard(judged)
    if problems:
        raise JudgeError(problems[0])


def second_judge(who: Who, models: list[str] | None, *, text: bool) -> LlmJudge | None:
    """The models that `rca analyze` is to ask beside the rules; None for the rules alone."""
    _need_a_model(who, models, text=text)
    if who is Who.rules:
        return None
    from rca.judge import Ask, LlmJudge

    return LlmJudge(Ask(models=tuple(models or ()), text=text))


def _need_a_model(who: Who, models: list[str] | None, *, text: bool) -> None:
    """Wrong usage when the rules alone are to judge and yet something is asked of a model."""
    if who is Who.rules and (models or text):
        raise typer.BadParameter("--model and --text need --judge openai")


def unheard(case: Case) -> list[str]:
    """One line for each model that was asked and of which nothing counts."""
    from rca.judge import outcome

    return outcome(case)


def _show(case: Case, as_json: bool) -> None:
    if as_json:
        from rca.answer.verdict_json import verdict

        print(json.dumps(verdict(case), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from rca.answer.summary import render

    render(case, Console(highlight=False))


def _show_requests(
    path: Path,
    causes: Path | None,
    models: tuple[str, ...],
    judge_of: type[LlmJudge],
    ask: Any,
    as_json: bool,
) -> None:
    """Print the bodies of the calls: all with --json, else one a model; their size to stderr."""
    from dataclasses import replace

    from rca import pipeline
    from rca.judge.pack import tokens

    named = replace(ask, models=models or ("MODEL",))
    bodies = pipeline.judge_requests(path, causes, judge_of(named))
    texts = [json.dumps(b, ensure_ascii=False, separators=(",", ":")) for b in bodies]
    if as_json:
        print(json.dumps(bodies, indent=2))
    else:
        for body in bodies[:: ask.samples]:
            print(json.dumps(body, indent=2))
    size = sum(len(t.encode()) for t in texts)
    each = max(map(tokens, texts), default=0)
    print(
        f"{len(bodies)} calls of at most {each:,} tokens (estimated), {size:,} bytes together; "
        "the samples of a model differ in the order of candidates and in the seed",
        file=sys.stderr,
    )
