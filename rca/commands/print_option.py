"""`rca report --print` and `--print short`: an option whose value may be left out."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from typer.core import TyperCommand


class Print(StrEnum):
    """How much of the postmortem `rca report` prints."""

    full = "full"
    short = "short"


class BarePrint(TyperCommand):
    """A command whose `--print` without a value means `--print full`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, the value put in where it was left out."""
        whole = []
        for place, argument in enumerate(args):
            whole.append(argument)
            if argument == "--print" and args[place + 1 : place + 2] not in (
                ["full"],
                ["short"],
            ):
                whole.append("full")
        return super().parse_args(ctx, whole)
