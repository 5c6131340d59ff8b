"""The cache before the documents that retrieval reads, and what happens when it expires.

Other products read the same keys, many times as often. Usually an entry is renewed before
it expires, and nobody waits. Where it is not, each lookup that misses computes the entry
again unless it may wait for another that does already; few can compute at a time.
"""

from __future__ import annotations

import random
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from rca.models.settings import MS, SECOND, Gateway

_KEYS = 60
# How often each key is asked for, summed up: some are far more popular.
_ASKED = list(accumulate(1.0 / (1 + key) ** 0.5 for key in range(_KEYS)))
_OTHERS_A_SECOND = 150  # lookups of the other products
_LOADERS = 4
_LOAD_NS = 200 * MS
_PATIENCE_NS = 3 * SECOND  # then it is done without the entry


class Lookup(NamedTuple):
    """One lookup; `end_ns` is when the entry was there, or nobody waited any longer."""

    at_ns: int
    key: int
    was_hit: bool
    end_ns: int


class Load(NamedTuple):
    """One entry computed again, from the request for it to the answer."""

    at_ns: int
    end_ns: int


class SharedCache:
    """Lookups in order of time; the other products' come in between."""

    def __init__(self, gateway: Gateway, start_ns: int) -> None:
        self.gateway = gateway
        self.lookups: list[Lookup] = []
        self.loads: list[Load] = []
        self._rng = random.Random(f"cache:{start_ns}")
        self._valid: dict[int, tuple[int, int]] = {}  # from, until
        if gateway.cache_renews and not gateway.cache_starts_empty:
            ages = [self._rng.randrange(gateway.cache_ttl_ns) for _ in range(_KEYS)]
            self._valid = {key: (start_ns, start_ns + age) for key, age in enumerate(ages)}
        self._loaders = [start_ns] * _LOADERS
        heapify(self._loaders)
        self._next_ns = start_ns + self._gap()

    def look_up(self, index: int, at_ns: int) -> Lookup:
        """What a request of ours finds."""
        self.advance(at_ns)
        key = random.Random(f"key:{index}").choices(range(_KEYS), cum_weights=_ASKED)[0]
        return self._look_up(key, at_ns)

    def advance(self, to_ns: int) -> None:
        """Do what the other products look up until then."""
        while self._next_ns < to_ns:
            key = self._rng.choices(range(_KEYS), cum_weights=_ASKED)[0]
            self._look_up(key, self._next_ns)
            self._next_ns += self._gap()

    def _gap(self) -> int:
        return round(self._rng.expovariate(_OTHERS_A_SECOND) * SECOND)

    def _expiry(self, from_ns: int) -> int:
        # Entries that were loaded together must not expire together.
        spread = self._rng.uniform(0.5, 1.0) if self.gateway.cache_renews else 1.0
        return from_ns + round(self.gateway.cache_ttl_ns * spread)

    def _look_up(self, key: int, at_ns: int) -> Lookup:
        from_ns, until_ns = self._valid.get(key, (0, 0))
        if self.gateway.cache_renews and at_ns >= until_ns > 0:
            self.loads.append(Load(at_ns, at_ns + _LOAD_NS))
            from_ns, until_ns = at_ns, self._expiry(at_ns)
            self._valid[key] = (from_ns, until_ns)
        if from_ns <= at_ns < until_ns:
            found = Lookup(at_ns, key, True, at_ns)
        elif at_ns < from_ns and self.gateway.cache_single_flight:
            found = Lookup(at_ns, key, False, min(from_ns, at_ns + _PATIENCE_NS))
        else:
            loaded_ns = self._load(at_ns)
            found = Lookup(at_ns, key, False, min(loaded_ns, at_ns + _PATIENCE_NS))
            if at_ns >= until_ns:
                self._valid[key] = (loaded_ns, self._expiry(loaded_ns))
        self.lookups.append(found)
        return found

    def _load(self, at_ns: int) -> int:
        end_ns = max(at_ns, heappop(self._loaders)) + _LOAD_NS
        heappush(self._loaders, end_ns)
        self.loads.append(Load(at_ns, end_ns))
        return end_ns
