"""Options that limit memory and disk, the same in every command that reads recordings."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

MaxUnpackedOption = Annotated[
    str, typer.Option("--max-unpacked", help="What archives may unpack to, for example 20GB.")
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="Memory of the database; half the size of the recordings, at least 500 MB, if not given.",
    ),
]
DEFAULT_MAX_UNPACKED = "20GB"


class Sizes(TypedDict):
    """Both as `rca.pipeline.Options` takes them."""

    max_unpacked: int
    memory_bytes: int | None


def sizes(max_unpacked: str, memory: str | None) -> Sizes:
    """What was given, in bytes.

    Raises:
        RcaError: It is no amount.
    """
    from rca.commands.quantity import parse_bytes

    return {
        "max_unpacked": parse_bytes(max_unpacked, "--max-unpacked"),
        "memory_bytes": None if memory is None else parse_bytes(memory, "--memory"),
    }
