"""Commands around the analysis: `rca doctor`, `rca recipe`, `rca collect`, `rca init`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rca.errors import RcaError

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
]


def doctor(as_json: JsonOption = False) -> None:
    """Say what of nsys, promtool, torch, endpoint, disk and memory is here, and how to get the rest."""
    from rca.doctor import broken_core, examine

    findings = examine()
    if as_json:
        _print_json([f._asdict() for f in findings])
    else:
        for found in findings:
            print(f"{found.status:<8} {found.name:<19} {found.detail}")
            if found.status != "found":
                print(f"{'':<28} for {found.serves}")
            if found.hint:
                print(f"{'':<28} → {found.hint}")
    if broken := broken_core(findings):
        raise RcaError(f"nothing works without: {', '.join(broken)}", hint="see above")


class Mode(StrEnum):
    """How a recipe works on several reports."""

    none = "none"
    concurrent = "concurrent"
    dask = "dask-futures"


class AfterDashes(TyperCommand):
    """A command whose words after `--` are another program's, kept in ctx.meta['after']."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Cut the words off before Click counts them as arguments."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["after"] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])


def recipe(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Recipe, for example cuda_gpu_kern_sum.")
    ],
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT", help=".nsys-rep or .qdrep files.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; NAME unless given.")
    ] = None,
    nsys: Annotated[
        Path | None, typer.Option("--nsys", help="The nsys program; else RCA_NSYS, else PATH.")
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            help="A Python that has what recipes need; else RCA_RECIPE_PYTHON, else PATH.",
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode", help="How the recipe spreads over reports; nsys chooses without."
        ),
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Wall time.")] = "15m",
    as_json: JsonOption = False,
) -> None:
    """Run one of NVIDIA's recipes over reports; what follows `--` goes to the recipe."""
    from rca.commands.quantity import parse_seconds
    from rca.nsys import recipe as nsys_recipe

    spread = ["--mode", mode.value] if mode else []
    made = nsys_recipe.run(
        name, reports, out or Path(name), program=nsys, python=_recipe_python(python),
        arguments=[*spread, *ctx.meta["after"]], timeout_s=parse_seconds(timeout, "--timeout"),
    )  # fmt: skip
    if as_json:
        _print_json([str(path) for path in made])
    else:
        print("\n".join(str(path) for path in made))


def _recipe_python(python: Path | None) -> Path | None:
    """The Python for recipes; None leaves it to nsys, some versions of which have one of their own."""
    from rca.nsys import recipe as nsys_recipe

    try:
        return nsys_recipe.find_python(python)
    except RcaError:
        if python is not None:
            raise
        return None


def collect(
    service: Annotated[
        str, typer.Option("--service", help="Deployment and service to collect.")
    ],
    namespace: Annotated[str, typer.Option("--namespace", help="Its Kubernetes namespace.")],
    start: Annotated[str, typer.Option("--start", help="RFC 3339 or Unix seconds; UTC.")],
    end: Annotated[str, typer.Option("--end", help="The same.")],
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="Address; no metrics without it.")
    ] = None,
    jaeger: Annotated[
        str | None, typer.Option("--jaeger", help="Address of the UI; no traces without it.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine", help="vllm, sglang, tgi, triton, trtllm, ray or llm-d; repeatable."
        ),
    ] = None,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Leave the same time of the day before out.")
    ] = False,
    matcher: Annotated[
        str | None,
        typer.Option("--matcher", help='PromQL matchers instead of namespace="NAMESPACE".'),
    ] = None,
    pods: Annotated[
        str | None,
        typer.Option("--pods", help="Label selector of the pods; app=SERVICE unless given."),
    ] = None,
    step: Annotated[
        int, typer.Option("--step", min=1, help="Resolution of metrics in s.")
    ] = 15,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Folder that the script fills.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a read-only shell script that collects the bundle of an incident."""
    from rca import collect as collecting

    wanted = collecting.request(
        service, namespace, start, end, prometheus=prometheus, jaeger=jaeger,
        engines=engine or ("vllm",), baseline=not no_baseline, matcher=matcher, pods=pods,
        step_s=step, out=out,
    )  # fmt: skip
    if as_json:
        _print_json([step._asdict() for step in collecting.plan(wanted)])
    else:
        print(collecting.script(wanted), end="")


def init(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of recordings.")],
    as_json: JsonOption = False,
) -> None:
    """Write a commented bundle.toml, and say what is there, what is missing, what it would decide."""
    from rca import bundle_init
    from rca.progress import progress_bar

    with progress_bar(as_json) as (_, progress):
        found = bundle_init.write(bundle, progress)
    if as_json:
        _print_json(found)
        return
    for line in bundle_init.lines(found):
        print(line)
    print(f"\nwritten: {bundle / bundle_init.NAME}; next: rca analyze {bundle}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
