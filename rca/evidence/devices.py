"""Roles whose move is one device's: a sick GPU among eight must not be averaged away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rca.case import Case
from rca.evidence.moves import FLAT, Move, Span, measure
from rca.plain import printable
from rca.signals import by_device, meanings

SURE = 0.5
"""Strength from which on a device has moved, when it is the strongest of several."""

_Place = tuple[str, str]


@dataclass(frozen=True)
class OneDevice(Move):
    """The move of one device of several; the signal's subject is the device.

    Attributes:
        devices: How many devices of the service carry the role.
        still: How many of them stayed where they were.
    """

    devices: int = 0
    still: int = 0

    @property
    def words(self) -> str:
        """The device and the others, as a statement names them."""
        most = self.devices - 1
        others = (
            "the others stayed"
            if self.still == most
            else f"{self.still} of {most} others stayed"
        )
        return f" on device {printable(self.signal.subject, 80)} ({others})"


def worst(case: Case, span: Span, moves: Iterable[Move]) -> list[Move]:
    """The moves, a device's own in place of all devices' together where that device moved alone.

    Alone: at least half of the devices stayed, and all together did not go the other way.
    """
    found: dict[_Place, list[Move]] = {}
    for signal in by_device(case):
        if move := measure(signal, span):
            found.setdefault((signal.role, signal.service), []).append(move)
    alone = {place: one for place in found if (one := _alone(place, found))}
    return [_named(m, alone.get((m.signal.role, m.signal.service))) for m in moves]


def _named(together: Move, one: OneDevice | None) -> Move:
    if one is None or together.signal.source != "metrics":
        return together
    against = one.strength * together.strength < 0 and abs(together.strength) >= FLAT
    return together if against else one


def _alone(place: _Place, found: Mapping[_Place, Sequence[Move]]) -> OneDevice | None:
    moves = sorted(found[place], key=lambda m: (-abs(m.strength), m.signal.subject))
    still = sum(abs(m.strength) < FLAT for m in moves)
    if still < len(moves) / 2:
        return None
    for move in moves:
        if abs(move.strength) < SURE:
            break
        if not _idle(move, found):
            return OneDevice(
                move.signal, move.side, move.reference, move.observed, move.strength,
                len(moves), still,
            )  # fmt: skip
    return None


def _idle(move: Move, found: Mapping[_Place, Sequence[Move]]) -> bool:
    """Whether the device fell because it has less to do."""
    known = meanings().get(move.signal.role)
    if known is None or known.idle_by is None or move.strength > 0:
        return False
    work = found.get((known.idle_by, move.signal.service), ())
    return any(m.signal.subject == move.signal.subject and m.strength <= -FLAT for m in work)
