"""`rca trial` and `rca reproduce`: the small engine, for a hypothesis and for an incident."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rca.errors import RcaError
from rca.progress import progress_bar

if TYPE_CHECKING:
    from rca.models.infer import Workload
    from rca.models.mooncake import Replay
    from rca.models.reproduce import Lengths
    from rca.models.settings import Plan

_LEAST_SECONDS = 15  # the lead-in is three quarters of it

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
]


class Engine(StrEnum):
    """What makes a bundle."""

    torch = "torch"
    twin = "twin"
    vllm = "vllm"


class Dtype(StrEnum):
    """Number formats of the torch model, those of rca.models.sizes."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class WhatIf(StrEnum):
    """Settings that can be tried on a case's workload."""

    batch = "batch"
    kv = "kv"
    cache = "cache"
    priority = "priority"
    replicas = "replicas"
    quant = "quant"


def trial(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="A case.duckdb.")],
    cause: Annotated[
        str | None, typer.Option("--cause", help="Cause to test, if not the verdict's.")
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix", metavar="NAME=VALUE", help="Try this setting as the fix; may be repeated."
        ),
    ] = None,
    budget: Annotated[str, typer.Option("--budget", help="Wall time.")] = "60s",
    what_if: Annotated[
        WhatIf | None,
        typer.Option("--what-if", help="Try other settings on the incident's own workload."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export-requests",
            metavar="FILE",
            help="Write the incident's requests in Mooncake's trace format, and try nothing.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put a cause to the test with the reproducer, and its fix too."""
    from rich.console import Console

    from rca import pipeline
    from rca.answer.summary import render
    from rca.answer.verdict_json import verdict
    from rca.commands.quantity import parse_seconds

    if export:
        _export(case, export)
        return
    if what_if:
        _what_if(case, what_if.value, as_json)
        return
    with pipeline.try_again(case, cause, parse_seconds(budget, "--budget"), fix or ()) as tried:
        if as_json:
            _print_json(verdict(tried)["trial"])
        else:
            render(tried, Console(highlight=False))
            _print_fidelity(tried.rows("SELECT * FROM trial_fidelity"))


def _print_fidelity(rows: list[tuple[Any, ...]]) -> None:
    """How true to the recordings the model's healthy service was."""
    from rich.console import Console
    from rich.table import Table

    from rca.plain import printable

    if not rows:
        return
    table = Table("Quantity", "Recorded", "Model", "Kept", "Source", "Note", title="Fidelity")
    kept = {True: "yes", False: "no", None: ""}
    for quantity, observed, modelled, is_kept, source, note in rows:
        shown = printable(observed) if observed is not None else "unknown"
        table.add_row(quantity, shown, modelled, kept[is_kept], source, note)
    Console(highlight=False, markup=False).print(table)


def _export(path: Path, file: Path) -> None:
    from rca.case import Case
    from rca.trial.export import export_requests

    with Case.open(path, read_only=True) as case:
        print(export_requests(case, file))


def _what_if(path: Path, study: str, as_json: bool) -> None:
    from rich.console import Console

    from rca.case import Case
    from rca.trial import what_if

    with Case.open(path) as case:
        found = what_if.run(case, study)
    if as_json:
        _print_json(found.as_dict())
    else:
        what_if.render(found, Console(highlight=False))


def reproduce(
    cause: Annotated[
        str,
        typer.Argument(
            help="Id of a cause (see `rca causes`); A+B switches on two at once; 'healthy'; "
            "'red_herring': memory grows and nothing gets slower; 'model_without_tokenizer': "
            "the model moves, its tokenizer stays."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for what is written.")],
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine", help="The torch model, its twin without tensors, or a real vLLM."
        ),
    ] = Engine.torch,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the traffic.")] = 0,
    dose: Annotated[
        float, typer.Option("--dose", help="Strength of the fault, 1 is the usual.")
    ] = 1.0,
    duration: Annotated[
        str, typer.Option("--duration", help="Length of the fault and of the baseline.")
    ] = "60s",
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, max=64, help="Replicas; one is recorded.")
    ] = 1,
    like: Annotated[
        Path | None, typer.Option("--like", help="A case.duckdb whose workload is taken.")
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            metavar="FILE",
            help="A trace in Mooncake's format whose requests are asked: its times, and its "
            "lengths scaled to the model.",
        ),
    ] = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option("--dtype", help="Number format of the torch model, if not the case's."),
    ] = None,
    vllm: Annotated[
        Path | None,
        typer.Option("--vllm", help="The vllm program, if not on PATH; for --engine vllm."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Make a bundle of an incident: a small inference service with the fault switched on."""
    from rca.models.reproduce import reproduce as make
    from rca.models.settings import Plan
    from rca.models.sizes import DecoderConfig

    lengths = _lengths(duration)
    if dtype is not None and engine is not Engine.torch:
        raise typer.BadParameter("--dtype is for --engine torch")
    if engine is Engine.vllm:
        if like is not None or requests is not None or replicas > 1:
            raise typer.BadParameter(
                "--like, --requests and --replicas are not for --engine vllm"
            )
        print(_record_vllm(cause, out, vllm, seed, dose, lengths, quiet))
        return
    service = _workload(like)
    plan = _shared_by(service.plan, replicas) if service else _shared_by(Plan(), replicas)
    sizes = service.sizes if service else DecoderConfig()
    if dtype is not None:
        sizes = replace(sizes, dtype=dtype.value)
    replay = _replay(requests, plan, replicas, quiet) if requests else None
    with progress_bar(quiet) as (step, _):
        made = make(
            cause, out, engine=engine.value, seed=seed, dose=dose, lengths=lengths,
            healthy=plan, sizes=sizes, requests=replay, progress=step,
        )  # fmt: skip
    if service and not quiet:
        _print_fidelity([row.shown() for row in service.fidelity])
    print(made)


def _lengths(duration: str) -> Lengths:
    from rca.commands.quantity import parse_seconds
    from rca.models.reproduce import Lengths

    seconds = round(parse_seconds(duration, "--duration"))
    if seconds < _LEAST_SECONDS:
        told = f"--duration {duration} is too short: changes beside the true one need room"
        raise RcaError(told, hint=f"at least {_LEAST_SECONDS}s")
    return Lengths(baseline_s=seconds, lead_in_s=seconds * 3 // 4, fault_s=seconds)


def _record_vllm(
    cause: str,
    out: Path,
    program: Path | None,
    seed: int,
    dose: float,
    lengths: Lengths,
    quiet: bool,
) -> Path:
    from rca.models import vllm_record

    lengths = replace(
        lengths, scrape_s=vllm_record.SCRAPE_S, profiled_steps=vllm_record.PROFILED_STEPS
    )
    with progress_bar(quiet) as (step, _):
        return vllm_record.record(
            cause, out, program=program, seed=seed, dose=dose, lengths=lengths, progress=step
        )


def _workload(like: Path | None) -> Workload | None:
    """A healthy service in the shape of a case's; None for the usual one."""
    from rca.case import Case
    from rca.models.infer import infer
    from rca.trial import workload_facts

    if like is None:
        return None
    with Case.open(like, read_only=True) as case:
        return infer(workload_facts.read(case))


def _replay(path: Path, plan: Plan, replicas: int, quiet: bool) -> Replay:
    """The requests of a file, and what becomes of them, said."""
    from rca.models import mooncake
    from rca.models.infer import mean_prompt

    replay = mooncake.Replay(mooncake.read(path), mean_prompt(plan))
    if not quiet:
        shared = "1 replica" if replicas == 1 else f"{replicas} replicas"
        told = f"requests: {replay.rate_per_s:.3g} a second for {shared}, the model's own are "
        told += f"{plan.traffic.rate_per_s:.3g}; lengths ×{replay.scale:.3g}"
        print(told + (f", {replay.cut} prompts cut" if replay.cut else ""))
    return replay


def _shared_by(plan: Plan, replicas: int) -> Plan:
    if replicas > 1:
        # Each replica has as much to do as the one had.
        plan = plan.with_traffic(rate_per_s=plan.traffic.rate_per_s * replicas)
    return plan.with_args(replicas=replicas)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
