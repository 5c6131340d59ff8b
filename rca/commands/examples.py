"""What each command is for in a few words, and one way to call it; in the order of `rca --help`."""

from __future__ import annotations

from typing import NamedTuple

import typer


class Example(NamedTuple):
    """A command in a few words, and a line that calls it."""

    short: str
    line: str


EXAMPLES = {
    "analyze": Example("Diagnose the recordings of an incident.", "rca analyze incident/ --baseline last-week/ --out out/"),
    "report": Example("Write the documents again, or print them.", "rca report out/case.duckdb --out out/ --print"),
    "query": Example("Run SQL on a case, read-only.", 'rca query out/case.duckdb "SELECT * FROM evidence"'),
    "judge": Example("Judge a case again, language models beside.", "rca judge out/case.duckdb --judge openai --model MODEL"),
    "trial": Example("Put a cause and its fix to the test.", "rca trial out/case.duckdb --budget 60s"),
    "timeline": Example("Write one timeline for ui.perfetto.dev.", "rca timeline out/case.duckdb --out timeline.json.gz"),
    "causes": Example("List the known causes, or explain one.", "rca causes kv_pool_too_small"),
    "compare": Example("Compare two releases, or gate the second.", "rca compare old/ new/ --gate gate.toml"),
    "collect": Example("Print a script that collects a bundle.", (
        "rca collect --service llm --namespace prod --start 2026-01-31T02:00:00Z --end 2026-01-31T03:00:00Z "
        "--prometheus http://prometheus:9090 > collect.sh"
    )),
    "init": Example("Say what a bundle lacks; write bundle.toml.", "rca init incident-folder/"),
    "ingest": Example("Read recordings into a case, nothing more.", "rca ingest incident/ --out out/"),
    "doctor": Example("Say what is installed, and how to get more.", "rca doctor"),
    "fleet": Example("Read and ask recordings of many machines.", "rca fleet ingest /mnt/traces --out shards/"),
    "recipe": Example("Run one of NVIDIA's recipes over reports.", "rca recipe gpu_gaps report.nsys-rep"),
    "reproduce": Example("Make a bundle of an incident to try rca on.", "rca reproduce kv_pool_too_small --out bundle/"),
    "eval": Example("Score the diagnosis on labelled bundles.", "rca eval BUNDLES --json"),
}  # fmt: skip


def tell(app: typer.Typer) -> None:
    """Put the words and the examples into the help of the commands."""
    for command in app.registered_commands:
        told = EXAMPLES[command.name or command.callback.__name__]  # type: ignore[union-attr]
        command.short_help, command.epilog = told.short, f"\b\nExample:\n  {told.line}"
    for group in app.registered_groups:
        group.short_help = EXAMPLES[str(group.name)].short
