"""The command line: parse, call one library function, print. The only place that exits."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rca import __version__
from rca.commands.compare import compare
from rca.commands.ending import told
from rca.commands.examples import EXAMPLES
from rca.commands.examples import tell as tell_examples
from rca.commands.fleet import fleet
from rca.commands.judge import (
    JudgeOption,
    ModelOption,
    TextOption,
    Who,
    judge,
    second_judge,
    unheard,
)
from rca.commands.print_option import BarePrint, Print
from rca.commands.query import query
from rca.commands.reproducer import reproduce, trial
from rca.commands.setup import AfterDashes, collect, doctor, init, recipe
from rca.commands.size_options import (
    DEFAULT_MAX_UNPACKED,
    MaxUnpackedOption,
    MemoryOption,
    sizes,
)
from rca.commands.window_option import WindowOption, parse_window
from rca.plain import printable
from rca.progress import progress_bar

if TYPE_CHECKING:
    from rca.case import Case


class _Commands(TyperGroup):
    """The commands in the order in which one needs them; Ctrl-C ends them as what it is."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(EXAMPLES)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            _end(error)
            raise


app = typer.Typer(
    name="rca",
    cls=_Commands,
    help="Offline root-cause analysis of LLM inference incidents: recordings in, postmortem out.",
    epilog=f"\b\nBegin with:\n  {EXAMPLES['analyze'].line}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OutOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for what is written.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
CausesOption = Annotated[
    Path | None, typer.Option("--causes", help="Folder with further causes (*.toml).")
]
CaseArgument = Annotated[Path, typer.Argument(metavar="CASE", help="A case.duckdb.")]

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""What a command makes lives as long as it; looking for garbage often took a tenth of its time."""


def main() -> None:
    """Entry point: expected failures end in one line on stderr and exit code 1."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        _end(error)
        raise
    finally:
        gc.freeze()  # or the interpreter looks through everything once more before it ends


def _end(error: BaseException) -> None:
    """Exit with one line; return when it is no expected failure."""
    ending = told(error)
    if ending is not None:
        print(f"rca: {printable(ending.line, 2000)}", file=sys.stderr)
        sys.exit(ending.code)


def _version(value: bool) -> None:
    if value:
        print(f"rca {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    return


@app.command()
def analyze(
    bundle: Annotated[
        list[Path], typer.Argument(help="Folders, archives or files of the incident.")
    ],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", "-b", help="The same of a healthy time.")
    ] = None,
    out: OutOption = Path("rca-out"),
    trial_budget: Annotated[
        str, typer.Option("--trial-budget", help="Wall time for the experiment.")
    ] = "20s",
    no_trial: Annotated[
        bool, typer.Option("--no-trial", help="Leave the experiment out.")
    ] = False,
    recipes_budget: Annotated[
        str,
        typer.Option(
            "--recipes-budget", help="Wall time for NVIDIA's recipes on .nsys-rep files."
        ),
    ] = "60s",
    no_recipes: Annotated[
        bool, typer.Option("--no-recipes", help="Leave NVIDIA's recipes out.")
    ] = False,
    causes: CausesOption = None,
    who: JudgeOption = Who.rules,
    model: ModelOption = None,
    text: TextOption = False,
    max_unpacked: MaxUnpackedOption = DEFAULT_MAX_UNPACKED,
    memory: MemoryOption = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the case of a run that was interrupted."),
    ] = False,
    window: WindowOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Diagnose a bundle of recordings: window, evidence, cause, fix, experiment, postmortem."""
    from rca import pipeline
    from rca.commands.ahead import loaded_ahead
    from rca.commands.quantity import parse_seconds

    options = pipeline.Options(
        judge=second_judge(who, model, text=text),
        trial_budget_s=None if no_trial else parse_seconds(trial_budget, "--trial-budget"),
        causes=causes,
        resume=resume,
        recipes_budget_s=None
        if no_recipes
        else parse_seconds(recipes_budget, "--recipes-budget"),
        window=parse_window(window),
        **sizes(max_unpacked, memory),
    )
    with loaded_ahead(), progress_bar(quiet or as_json) as (step, progress):
        case = pipeline.analyze(
            bundle,
            baseline,
            out / "case.duckdb",
            options,
            out=out,
            step=step,
            progress=progress,
        )
    with case:
        _show(case, as_json, quiet)
        for line in unheard(case):
            print(f"rca: {line}", file=sys.stderr)


def _show(case: Case, as_json: bool, quiet: bool) -> None:
    if as_json:
        from rca.answer.verdict_json import verdict

        _print_json(verdict(case))
        return
    if quiet:
        return
    from rich.console import Console

    from rca.answer.summary import render

    render(case, Console(highlight=False))


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Folders, archives or files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The case file.")] = Path(
        "case.duckdb"
    ),
    baseline: Annotated[
        Path | None, typer.Option("--baseline", "-b", help="The same of a healthy time.")
    ] = None,
    max_unpacked: MaxUnpackedOption = DEFAULT_MAX_UNPACKED,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read recordings into a case, without diagnosing them; what a case has already stays in it."""
    from rca import pipeline

    options = pipeline.Options(**sizes(max_unpacked, memory))
    with progress_bar(quiet or as_json) as (_, progress):
        case = pipeline.read(paths, baseline, out, options, progress=progress)
    with case:
        sources = pipeline.sources(case)
        if as_json:
            _print_json(sources)
        elif not quiet:
            from rich.console import Console

            from rca.answer.summary import render_sources

            render_sources(case, Console(highlight=False))


app.command()(query)
app.command()(judge)
app.command()(compare)
app.command()(doctor)
app.command()(init)
app.command()(collect)
app.command(cls=AfterDashes)(recipe)
app.add_typer(fleet, name="fleet")


app.command()(trial)


def _render(case: Case) -> None:
    from rich.console import Console

    from rca.answer.summary import render

    render(case, Console(highlight=False))


@app.command(cls=BarePrint)
def report(
    case: CaseArgument,
    out: OutOption = Path("rca-out"),
    show: Annotated[
        Print | None,
        typer.Option("--print", help="Print the postmortem, or a message for a chat, as well."),
    ] = None,
    template: Annotated[
        Path | None, typer.Option("--template", help="A form of your own for it (Jinja).")
    ] = None,
) -> None:
    """Write postmortem, report and fixes again from a case; what people wrote in is kept."""
    from rca import pipeline, postmortem
    from rca.case import Case
    from rca.postmortem.terminal import plain

    with Case.open(case, read_only=True) as opened:
        written = pipeline.write(opened, out, template)
        message = postmortem.brief(opened) if show is Print.short else ""
    if show is Print.full:
        print(plain((out / "postmortem.md").read_text(encoding="utf-8")), end="")
    else:
        print(message.rstrip() or "\n".join(str(p) for p in written))


@app.command()
def timeline(
    case: CaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path(
        "timeline.perfetto.json.gz"
    ),
) -> None:
    """Write spans, operators, GPU streams and counters as one timeline for ui.perfetto.dev."""
    from rca.case import Case
    from rca.timeline import write

    with Case.open(case, read_only=True) as opened:
        print(write(opened, out))


app.command()(reproduce)


@app.command()
def causes(
    cause: Annotated[
        str | None, typer.Argument(help="Id of a cause; all are listed without one.")
    ] = None,
    extra: CausesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the known root causes, or explain one."""
    from rca.catalogue import describe, load

    known = load(extra)
    if cause is not None:
        found = describe(known, cause)
        _print_json(found) if as_json else _print_cause(found)
        return
    rows = [describe(known, key) for key in known]
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        print(f"{row['id']:<34} {row['class']:<16} {row['title']}")


def _print_cause(found: dict[str, Any]) -> None:
    print(f"{found['id']}  ({found['class']})\n{found['title']}. {found['definition']}\n")
    for side in ("up", "down", "flat"):
        print(f"{side + ':':<10} {', '.join(found['signature'][side]) or '-'}")
    for other in found["lookalikes"]:
        print(f"not {other['cause']}: {other['because']} ({other['decided_by']})")
    for fix in found["fixes"]:
        print(f"{fix['phase']:<10} {fix['action']}  Risk: {fix['risk']}.")


@app.command("eval")
def evaluate(
    cases: Annotated[Path, typer.Argument(help="Folder of bundles, each with a truth.toml.")],
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes; one a core unless given.")
    ] = None,
    told_window: Annotated[
        bool,
        typer.Option("--told-window", help="Give the true window: causes without the scan."),
    ] = False,
    ablations: Annotated[
        bool,
        typer.Option("--ablations", help="Once more with each recording gone or made worse."),
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option("--sample", help="For --ablations: so many faults, so many healthy ones."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="For --ablations: a Markdown document for the table."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score the diagnosis on labelled bundles: causes, windows, confidence, false alarms."""
    from rca import evaluate as evaluating
    from rca.commands import evaluate as eval_command

    how: dict[str, Any] = {"told_window": told_window}
    if ablations:
        how["sample"] = sample
    run = evaluating.ablate if ablations else evaluating.evaluate
    show = eval_command.ablation_text if ablations else eval_command.text
    with progress_bar(quiet or as_json) as (step, _):
        how["progress"] = lambda name, done, n: step(f"{done}/{n} {name}")
        found = run(cases, workers=workers, **how)
    if ablations and write is not None:
        eval_command.put(show(found), write, eval_command.command(cases, told_window, sample))
    _print_json(found) if as_json else print(show(found))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


tell_examples(app)

if __name__ == "__main__":
    main()
