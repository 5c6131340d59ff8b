"""`rca compare`: two recordings side by side, and the gate of a build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rca.progress import progress_bar

GATE_FAILED = 3


def compare(
    base: Annotated[Path, typer.Argument(help="A case, or recordings, of what is known.")],
    candidate: Annotated[Path, typer.Argument(help="The same of what is to be judged.")],
    gate: Annotated[
        Path | None,
        typer.Option("--gate", help="Limits (TOML), or 'default'; exit code 3 when one fails."),
    ] = None,
    base_where: Annotated[
        str | None,
        typer.Option("--base-where", help="Only requests with this attribute, KEY=VALUE."),
    ] = None,
    candidate_where: Annotated[
        str | None, typer.Option("--candidate-where", help="The same for the candidate.")
    ] = None,
    quality: Annotated[
        Path | None, typer.Option("--quality", help="CSV with metric, base, candidate.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown for a pull request.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
    ] = False,
) -> None:
    """Compare two releases: latency, throughput, errors, kernels, each with its interval."""
    from rca import compare as comparing
    from rca.compare import text

    with progress_bar(as_json) as (_, progress):
        found = comparing.compare(
            base,
            candidate,
            base_where=base_where,
            candidate_where=candidate_where,
            quality=quality,
            gate=gate,
            progress=progress,
        )
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(text.markdown(found) if markdown else text.terminal(found))
    if found["gate"] and not found["gate"]["passed"]:
        raise typer.Exit(GATE_FAILED)
