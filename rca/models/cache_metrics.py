"""What is scraped of the cache before the documents, and of the calls to their store."""

from __future__ import annotations

from collections.abc import Iterator

from rca.models.gateway import Admission
from rca.models.histogram import Histogram
from rca.models.settings import SECOND
from rca.models.shared_cache import Load, Lookup

CACHE_JOB = {"job": "document-cache", "instance": "document-cache-0:9121"}
RETRIEVAL_JOB = {"job": "retrieval", "instance": "retrieval-0:9090", "pod": "retrieval-0"}
_STORE = {"server_address": "document-store", "http_response_status_code": "200"}
_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Line = tuple[dict[str, str], str, dict[str, str], float]


class CacheMetrics:
    """Counts lookups and loads as the clock passes them."""

    def __init__(self) -> None:
        self._lookups: list[Lookup] = []
        self._loads: list[Load] = []
        self._hits = self._misses = 0
        self._called = Histogram(_BOUNDS)

    def expect(self, admission: Admission) -> None:
        """Know of what will be looked up and loaded."""
        self._lookups = sorted([*self._lookups, *admission.lookups], reverse=True)
        loads = [*self._loads, *admission.loads]
        self._loads = sorted(loads, key=lambda load: -load.end_ns)

    def lines(self, at_ns: int) -> Iterator[Line]:
        """Job, name, labels and value of each series."""
        while self._lookups and self._lookups[-1].at_ns <= at_ns:
            hit = self._lookups.pop().was_hit
            self._hits += hit
            self._misses += not hit
        while self._loads and self._loads[-1].end_ns <= at_ns:
            load = self._loads.pop()
            self._called.observe((load.end_ns - load.at_ns) / SECOND)
        yield CACHE_JOB, "redis_keyspace_hits_total", {}, self._hits
        yield CACHE_JOB, "redis_keyspace_misses_total", {}, self._misses
        for name, labels, value in self._called.lines("http_client_request_duration_seconds"):
            yield RETRIEVAL_JOB, name, {**_STORE, **labels}, value
