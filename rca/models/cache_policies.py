"""A stream of keys replayed under ways to keep a cache: how often each finds its key.

LRU-2 follows O'Neil, O'Neil and Weikum (1993): the key whose last but one use lies furthest
back leaves first, and keys seen once leave before all others. The heat-scaled lifetime
keeps a moving average of each key's use in windows of ten seconds, and hot keys longer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from rca.models.settings import SECOND

_WINDOW_NS = 10 * SECOND
_ALPHA = 0.8  # weight of the newest window
# Heat below which a key lives so long, in ns: what is asked for all the time stays.
_LIFETIMES = ((0.3, 15 * SECOND), (0.7, 120 * SECOND), (1.01, 750 * SECOND))
_HOT_USES = 5.0  # uses in a window that make a key as hot as can be

Stream = Sequence[tuple[int, Hashable]]  # time in ns, key; in order of time


class Replay(NamedTuple):
    """What a policy made of a stream."""

    policy: str
    capacity: int
    hits: int
    lookups: int

    @property
    def hit_rate(self) -> float:
        """Share of lookups that found their key."""
        return self.hits / max(self.lookups, 1)


def replay(stream: Stream, capacity: int) -> list[Replay]:
    """The stream under LRU, LRU-2 and the heat-scaled lifetime, each with that many places."""
    policies = {"lru": _lru, "lru_2": _lru_k, "heat_ttl": _heat}
    return [
        Replay(name, capacity, policy(stream, capacity), len(stream))
        for name, policy in policies.items()
    ]


def _lru(stream: Stream, capacity: int) -> int:
    kept: OrderedDict[Hashable, None] = OrderedDict()
    hits = 0
    for _, key in stream:
        if key in kept:
            hits += 1
            kept.move_to_end(key)
            continue
        kept[key] = None
        if len(kept) > capacity:
            kept.popitem(last=False)
    return hits


def _lru_k(stream: Stream, capacity: int) -> int:
    uses: dict[Hashable, tuple[int, int]] = {}  # last but one and last use; -1: none
    kept: set[Hashable] = set()
    hits = 0
    for number, (_, key) in enumerate(stream):
        hits += key in kept
        kept.add(key)
        # History outlives the entry: else a key could never be seen twice.
        uses[key] = (uses.get(key, (-1, -1))[1], number)
        if len(kept) > capacity:
            kept.remove(min(kept - {key}, key=lambda k: uses[k], default=key))
    return hits


def _heat(stream: Stream, capacity: int) -> int:
    heat: dict[Hashable, tuple[int, float, int]] = {}  # window, average before it, uses in it
    expires: dict[Hashable, int] = {}
    hits = 0
    for at_ns, key in stream:
        hits += expires.get(key, -1) > at_ns
        window, average, uses = heat.get(key, (at_ns // _WINDOW_NS, 0.0, 0))
        window, average, uses = _roll(window, average, uses, at_ns // _WINDOW_NS)
        heat[key] = (window, average, uses + 1)
        score = min(1.0, (_ALPHA * (uses + 1) + (1 - _ALPHA) * average) / _HOT_USES)
        expires[key] = at_ns + next(ns for below, ns in _LIFETIMES if score < below)
        if len(expires) > capacity:
            del expires[min(expires, key=lambda k: (k == key, expires[k]))]
    return hits


def _roll(window: int, average: float, uses: int, now: int) -> tuple[int, float, int]:
    """Close the windows that lie between."""
    while window < now:
        average, uses = _ALPHA * uses + (1 - _ALPHA) * average, 0
        window += 1
        if average < 1e-6:
            return now, 0.0, 0
    return window, average, uses
