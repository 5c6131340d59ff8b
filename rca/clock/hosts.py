"""Clocks of the hosts of one system against each other, from calls between them.

A call cannot begin before it is made, nor end after it is answered. So each call bounds how far the
callee's clock is ahead of the caller's, from both sides; where the bounds of nearly all calls leave
out zero, the clocks differ. Bounds that contradict each other (work that goes on after the answer,
a clock that was set meanwhile, one name for several machines) tell nothing, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from rca.case import Case, sql_files

FEWEST_CALLS = 20
LEAST_SHIFT_NS = 1_000_000
_SPANS_LOOKED_AT = 400_000

Host = tuple[int, str]
"""A source and the name of a host in it."""


class Call(NamedTuple):
    """What calls from one host to another say of the callee's clock, ns ahead of the caller's."""

    part: str
    caller: Host
    callee: Host
    n: int
    low_ns: int
    high_ns: int

    @property
    def is_known(self) -> bool:
        """Whether there are enough calls, and they agree with each other."""
        return self.n >= FEWEST_CALLS and self.low_ns <= self.high_ns

    @property
    def ahead_ns(self) -> int:
        """By how much the callee's clock is ahead; 0 where the calls allow that it is right."""
        middle = (self.low_ns + self.high_ns) // 2
        right = self.low_ns <= 0 <= self.high_ns or abs(middle) < LEAST_SHIFT_NS
        return 0 if right else middle

    @property
    def error_ns(self) -> int:
        """Half the width of what the calls allow."""
        return (self.high_ns - self.low_ns) // 2


def align(case: Case) -> list[frozenset[int]]:
    """Write host_clock, with a note for each clock that is wrong or not known.

    Returns:
        Sources whose clocks are known against each other since calls go from one to the other.
    """
    case.execute("DELETE FROM host_clock")
    case.execute("DELETE FROM ingest_note WHERE code IN ('host_clock', 'host_clock_unknown')")
    every = calls(case)
    known = [c for c in every if c.is_known]
    shifts = settle(known)
    rows = [
        {"source_id": source_id, "host": host, "shift_ns": shift, "error_ns": error}
        for (source_id, host), (shift, error) in sorted(shifts.items())
        if shift
    ]
    if rows:
        case.insert("host_clock", pl.DataFrame(rows))
    _tell(case, rows, every)
    return _groups(c for c in known if c.caller[0] != c.callee[0])


def calls(case: Case) -> list[Call]:
    """Calls between hosts, those first of which there are most."""
    if not case.scalar("SELECT count(*) FROM span WHERE parent_id IS NOT NULL"):
        return []
    ((_, query),) = sql_files("clock")
    one_of = max(1, int(case.scalar("SELECT count(*) FROM span")) // _SPANS_LOOKED_AT)
    return [
        Call(part, (source, caller), (other, callee), n, low, high)
        for part, source, caller, other, callee, n, high, low in case.rows(query, (one_of,))
    ]


def settle(known: Sequence[Call]) -> dict[Host, tuple[int, int]]:
    """Host → what its times need, and the error, ns: against the host of its part that calls most.

    The pairs with most calls decide; a pair that closes a circle is not needed.
    """
    found: dict[Host, tuple[int, int]] = {}
    while left := [c for c in known if c.caller not in found and c.callee not in found]:
        found[_first(left)] = (0, 0)
        while step := next(
            (c for c in known if (c.caller in found) != (c.callee in found)), None
        ):
            forward = step.caller in found
            base, error = found[step.caller if forward else step.callee]
            shift = base + (-step.ahead_ns if forward else step.ahead_ns)
            found[step.callee if forward else step.caller] = (shift, error + step.error_ns)
    return found


def _first(known: Sequence[Call]) -> Host:
    """The host that makes most calls beyond those that it answers: where requests come in."""
    balance: dict[Host, int] = {}
    for one in known:
        balance[one.caller] = balance.get(one.caller, 0) + one.n
        balance[one.callee] = balance.get(one.callee, 0) - one.n
    return max(balance, key=lambda h: (balance[h], -h[0], h[1]))


def _groups(linked: Iterable[Call]) -> list[frozenset[int]]:
    groups: list[frozenset[int]] = []
    for one in linked:
        touched = [g for g in groups if g & {one.caller[0], one.callee[0]}]
        groups = [g for g in groups if g not in touched]
        groups.append(frozenset({one.caller[0], one.callee[0]}).union(*touched))
    return groups


def _tell(case: Case, rows: Sequence[dict[str, object]], every: Sequence[Call]) -> None:
    notes = [
        (
            r["source_id"],
            "host_clock",
            f"clock of {r['host']} shifted by {_s(r['shift_ns'])} ± {_s(r['error_ns'])[1:]}",
        )
        for r in rows
    ]
    notes += [
        (c.callee[0], "host_clock_unknown", f"clock of {c.callee[1]} against {c.caller[1]} is not known: "
         f"its calls say {_s(c.low_ns)} at least and {_s(c.high_ns)} at most")
        for c in every
        if c.n >= FEWEST_CALLS and not c.is_known and c.low_ns > LEAST_SHIFT_NS
    ]  # fmt: skip
    records = [
        {"source_id": s, "level": "info", "code": code, "message": text, "count": 1}
        for s, code, text in notes
    ]
    if records:
        case.insert("ingest_note", pl.DataFrame(records))


def _s(ns: object) -> str:
    return f"{int(str(ns)) / 1e9:+.3f} s"
