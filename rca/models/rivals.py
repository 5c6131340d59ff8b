"""Which other causes an experiment can compare with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rca.errors import CauseError
from rca.models.fault import Fault
from rca.models.faults import find


def comparable(
    causes: Sequence[str], tried: str, observed: Collection[str]
) -> tuple[list[Fault], list[str]]:
    """Faults of the other causes, and why each of the rest is left out.

    Args:
        causes: other causes that could explain the incident.
        tried: the cause that is put to the test.
        observed: figures that the incident has. A cost model whose own mark is not among them
            would be compared by latencies that any cause moves.
    """
    found: dict[str, Fault] = {}
    left_out = []
    for cause in causes:
        try:
            rival = find(cause)
        except CauseError:
            left_out.append(f"{cause}: not in the model's list of causes")
            continue
        if rival.cause in (tried, "healthy"):
            continue
        if not rival.reproducible:
            left_out.append(f"{rival.cause}: {rival.device}")
        elif rival.by_model and rival.hallmark not in observed:
            left_out.append(
                f"{rival.cause}: what marks it is not recorded, and only a cost model shows it"
            )
        else:
            found[rival.cause] = rival
    return list(found.values()), left_out
