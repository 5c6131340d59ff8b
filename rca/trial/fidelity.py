"""The gate before a verdict: how true the model's healthy service is to the recorded one."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rca.models.infer import FidelityRow

_STRONGER = frozenset({"validated", "partial_fix"})
CAP = "mechanism_only"


class Gate(NamedTuple):
    """What lets a trial prove as much as it can.

    Attributes:
        quantities: rows of the fidelity table that count.
        far: factor from which one caps the status.
    """

    quantities: frozenset[str]
    far: float


@cache
def gate() -> Gate:
    """The thresholds of fidelity.toml."""
    text = files("rca.trial").joinpath("fidelity.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    return Gate(frozenset(found["gate"]), float(found["far"]))


def held_to(status: str, reason: str, rows: Sequence[FidelityRow]) -> tuple[str, str]:
    """Status and reason of a trial, with what the model's healthy service does not keep.

    A trial on a service that is far from the recorded one shows a mechanism, and no more.
    """
    off = [row for row in rows if row.quantity in gate().quantities and row.kept is False]
    if not off:
        return status, reason
    told = ", ".join(f"{row.quantity} {row.observed} → {row.modelled}" for row in off)
    reason += f"; the model does not keep: {told}"
    if status in _STRONGER and max(row.off or 1.0 for row in off) >= gate().far:
        return CAP, f"{reason}; that is too far off for more than the mechanism ({status})"
    return status, reason
