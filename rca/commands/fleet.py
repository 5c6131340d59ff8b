"""`rca fleet`: recordings of many machines into shards, and who is late among them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rca.commands.size_options import DEFAULT_MAX_UNPACKED, MaxUnpackedOption
from rca.progress import progress_bar

fleet = typer.Typer(
    help="Recordings of many machines: read by many workers, asked as one case.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
]


@fleet.command()
def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="Folders, archives or files, or patterns in quotes.")
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", help="Folder or fsspec address of the shards.")
    ],
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Processes here; one a core unless given."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Address of a Dask scheduler.")
    ] = None,
    no_dask: Annotated[
        bool, typer.Option("--no-dask", help="Plain processes even where Dask is installed.")
    ] = False,
    max_unpacked: MaxUnpackedOption = DEFAULT_MAX_UNPACKED,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Read recordings into Parquet shards; again after a stop, and only what is not there yet."""
    from rca import fleet as fleets
    from rca.commands.quantity import parse_bytes

    with progress_bar(quiet or as_json) as (step, _):
        done = fleets.ingest(
            paths,
            out,
            workers=workers,
            scheduler=scheduler,
            dask=False if no_dask else None,
            max_unpacked=parse_bytes(max_unpacked, "--max-unpacked"),
            progress=lambda stage, n, of: step(f"{stage} {n}/{of}"),
        )
    if as_json:
        print(json.dumps(asdict(done), indent=2, ensure_ascii=False))
    elif not quiet:
        _print_summary(done)


def _print_summary(done: Any) -> None:
    from rca.plain import printable

    print(
        f"{printable(done.shards)}: {done.read} sources read by {done.runner}, {done.known} known before,"
        f" {len(done.failed)} failed"
    )
    for member in done.failed:
        print(f"failed  {printable(member.name)}: {printable(member.why, 500)}")


@fleet.command()
def stragglers(
    shards: Annotated[str, typer.Argument(metavar="SHARDS", help="Shards, or a case.duckdb.")],
    as_json: JsonOption = False,
) -> None:
    """Say which ranks and hosts the others wait for, and what they have more of."""
    from rca.fleet import stragglers as find
    from rca.query import opened

    with opened(shards) as case:
        found = find(case)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not found["ranks"]:
        print("No recording with GPU work: stragglers are not known")
        return
    _print_ranks(found)


_TIMES = ("own", "wait", "compute", "copy", "idle")


def _print_ranks(found: dict[str, list[dict[str, Any]]]) -> None:
    from rca.plain import printable

    hosts = [printable(row["host"] or "unknown", 40) for row in found["ranks"]]
    width = max(map(len, hosts))
    print(
        f"{'host':<{width}}  rank  steps"
        + "".join(f"{t + ' ms':>12}" for t in _TIMES)
        + "       z"
    )
    for host, row in zip(hosts, found["ranks"], strict=True):
        rank = "?" if row["rank"] is None else row["rank"]
        times = "".join(f"{row[t + '_ns'] / 1e6:>12.3f}" for t in _TIMES)
        z = "" if row["own_z"] is None else f"{row['own_z']:+.1f}"
        print(
            f"{host:<{width}}{rank:>6}{row['n_steps']:>7}{times}{z:>8}  {_told(row)}".rstrip()
        )
    late = [h for h in found["hosts"] if h["is_straggler"]]
    for found_late in late:
        name = printable(found_late["host"], 60)
        print(f"host {name} is late as a whole, z {found_late['own_z']:+.1f}")
    if any(row["is_straggler"] is None for row in found["ranks"]):
        print("fewer than four ranks to compare: who stands out is not known")


def _told(row: dict[str, Any]) -> str:
    if not row["is_straggler"]:
        return ""
    return f"straggler: more {row['more_of']}" if row["more_of"] else "straggler"
