"""The queue put down to what made it: more requests, slower service, or fewer slots.

A queue is an effect. The engine's requests are replayed first come, first served over as many slots
as were seen at work while requests waited, with demand, service times and slots of the window or of
the reference. The Shapley value over the eight replays is each one's share: it adds up to the added
queue whatever the order in which they are changed (L. S. Shapley, A Value for n-Person Games, 1953).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.findings.cohort import FEWEST, query
from rca.findings.records import Cohort

Times = npt.NDArray[np.int64]
Setting = tuple[bool, bool, bool]
"""Whether demand, service and slots are those of the window."""

PLAYERS = ("more requests", "slower service", "fewer slots")
TRUSTED = (0.5, 2.0)
"""Replayed queue against the measured one: outside of this the replay is no model of it."""
_MOST_REQUESTS = 20_000
_WAITS_NS = 5_000_000
_FULL = 0.25
"""Mean queue against mean service from which on it is slots that requests wait for."""
_ALL = (True, True, True)
_SETTINGS: tuple[Setting, ...] = tuple(product((False, True), (False, True), (False, True)))


@dataclass(frozen=True)
class Side:
    """Requests of an engine on one side, ns, by arrival."""

    arrival: Times
    queue: Times
    service: Times

    def __len__(self) -> int:
        return len(self.arrival)

    def pick(self, mask: npt.NDArray[np.bool_]) -> Side:
        """The requests where the mask is true."""
        return Side(self.arrival[mask], self.queue[mask], self.service[mask])

    @property
    def is_full(self) -> bool:
        """Whether requests wait for a slot, and not just for the next step."""
        return float(self.queue.mean()) > _FULL * float(self.service.mean())

    @property
    def rate(self) -> float:
        """Arrivals a ns."""
        span = int(self.arrival[-1] - self.arrival[0])
        return (len(self) - 1) / span if span > 0 else 0.0


@dataclass(frozen=True)
class Replayed:
    """Shares of the added queue, ns, and how well the replay meets it.

    Attributes:
        shares: By the names of PLAYERS.
        ratio: Mean queue of the window in the replay against the measured one.
        slots: In the reference and in the window.
    """

    shares: dict[str, float]
    ratio: float
    slots: tuple[int, int]
    n_reference: int
    n_window: int


def put_down(case: Case, cohort: Cohort) -> Replayed | None:
    """Write queue_replay; None where requests are a sample, too few or many, or hardly wait."""
    case.clear(["queue_replay"])
    if cohort.reference is None or cohort.is_sampled:
        return None
    table = case.sql(query("engine_request"))
    sides = {str(k[0]): _side(rows) for k, rows in table.group_by("part", maintain_order=True)}
    incident = sides.get("incident")
    if incident is None:
        return None
    window = incident.pick(
        (incident.arrival >= cohort.start_ns) & (incident.arrival <= cohort.end_ns)
    )
    early = incident.pick(incident.arrival < cohort.start_ns)
    reference = sides["baseline"] if cohort.reference == "baseline" else early
    if min(len(window), len(reference)) < FEWEST or not 0 < len(incident) <= _MOST_REQUESTS:
        return None
    if not window.is_full:
        return None
    slots = _slots(early, reference, window)
    means = {s: _replay(early, window, reference, slots, s) for s in _SETTINGS}
    rows = [dict(zip(("demand", "service", "slots"), s, strict=True)) | {"queue_ns": ns}
            for s, ns in means.items()]  # fmt: skip
    case.insert("queue_replay", pl.DataFrame(rows))
    measured = float(window.queue.mean())
    return Replayed(
        dict(zip(PLAYERS, shapley(means), strict=True)), means[_ALL] / measured,
        slots, len(reference), len(window),
    )  # fmt: skip


def _side(rows: pl.DataFrame) -> Side:
    return Side(*(rows[c].to_numpy() for c in ("arrival_ns", "queue_ns", "service_ns")))


def _slots(early: Side, reference: Side, window: Side) -> tuple[int, int]:
    """Slots of both sides: of those seen at work while others waited, what meets the queue best.

    Where hardly anybody waited, the number at work says only how many there are at least.
    """
    new = min(
        _at_work(window),
        key=lambda n: (_off(_replay(early, window, reference, (n, n), _ALL), window), n),
    )
    if not reference.is_full:
        return max(new, _at_work(reference)[-1]), new
    own = reference.pick(reference.arrival < reference.arrival[0])  # nothing comes before it
    old = min(
        _at_work(reference),
        key=lambda n: (_off(_replay(own, reference, reference, (n, n), _ALL), reference), n),
    )
    return old, new


def _off(replayed_ns: float, side: Side) -> float:
    return abs(float(np.log(max(replayed_ns, 1.0) / max(float(side.queue.mean()), 1.0))))


def _at_work(side: Side) -> range:
    """From how few to how many requests were mostly at work at once when one was admitted."""
    admitted = side.arrival + side.queue
    started, ended = np.sort(admitted), np.sort(admitted + side.service)
    waited = admitted[side.queue > _WAITS_NS] if side.is_full else admitted
    busy = np.searchsorted(started, waited, side="right") - np.searchsorted(
        ended, waited, side="right"
    )
    few, many = (int(np.quantile(busy, q)) for q in (0.1, 0.95))
    return range(max(1, few), max(1, many) + 1)


def _replay(
    early: Side, window: Side, reference: Side, slots: tuple[int, int], setting: Setting
) -> float:
    """Mean queue of the window's requests, ns; what came before it fills the slots first."""
    demand, service, fewer = setting
    arrival, needs = window.arrival, window.service.astype(np.float64)
    if not demand and reference.rate > 0:
        start = int(window.arrival[0])
        arrival = start + ((arrival - start) * (window.rate / reference.rate)).astype(np.int64)
    if not service:
        needs = needs * (reference.service.mean() / max(needs.mean(), 1.0))
    ahead = [
        (int(a), float(s), slots[0]) for a, s in zip(early.arrival, early.service, strict=True)
    ]
    ours = [(int(a), float(s), slots[int(fewer)]) for a, s in zip(arrival, needs, strict=True)]
    return float(np.mean(fifo([*ahead, *ours])[len(ahead) :]))


def fifo(requests: list[tuple[int, float, int]]) -> list[float]:
    """Time in the queue of each request, first come, first served.

    Args:
        requests: Arrival, service time, and the slots that there are from then on.
    """
    busy: list[float] = []
    waits, last = [], 0.0
    for arrival, needs, slots in requests:
        start = max(float(arrival), last)
        while busy and busy[0] <= start:
            heapq.heappop(busy)
        while len(busy) >= slots:
            start = max(start, heapq.heappop(busy))
        heapq.heappush(busy, start + needs)
        waits.append(start - arrival)
        last = start
    return waits


def shapley(means: dict[Setting, float]) -> tuple[float, float, float]:
    """Each player's share of the difference between all on and all off."""
    weights = (1 / 3, 1 / 6, 1 / 3)  # by how many of the other two are on already
    shares = []
    for player in range(3):
        total = 0.0
        for others in product((False, True), repeat=2):
            off, on = list(others), list(others)
            off.insert(player, False)
            on.insert(player, True)
            gain = means[on[0], on[1], on[2]] - means[off[0], off[1], off[2]]
            total += weights[sum(others)] * gain
        shares.append(total)
    return shares[0], shares[1], shares[2]
