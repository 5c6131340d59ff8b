"""What stands before the engine: quota, the retrieval service, the cut of long prompts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from rca.models.settings import MS, SECOND, Plan
from rca.models.shared_cache import Load, Lookup, SharedCache
from rca.models.workload import Arrival

GATEWAY_NS = MS // 2
_CALLS_A_SECOND = 24  # that the retrieval service answers at its usual pace
_SEGMENTS = 12  # of a request and its answer, on the way to the engine and back
_SENT_AGAIN_NS = 200 * MS  # after so long, as TCP does


class Call(NamedTuple):
    """One call to the retrieval service."""

    wanted_ns: int
    begin_ns: int  # when it had a connection
    end_ns: int
    failed: bool
    cache_key: int = 0
    was_hit: bool = True
    was_cut: bool = False  # given up before its answer came


@dataclass(eq=False)
class Request:
    """A request on its way: what was asked, and what has happened to it so far.

    Times are virtual ns; None until it happened. `tokens` grows with the output;
    `computed` of them have their keys and values in `blocks`.
    """

    arrival: Arrival
    ready_ns: int  # at the engine's door
    retrieval_ns: int  # from the wish to the answer, waiting and retries included
    tokens: list[int]
    prompt_tokens: int
    output_tokens: int
    salt: int = 0
    has_old_map: bool = False
    frontend_ns: int = 0  # waited for the API server
    replica: int = 0
    there_ns: int = 0  # on the way from the gateway to the engine
    back_ns: int = 0
    resent: int = 0  # segments on that way
    computed: int = 0
    known_tokens: int = 0  # computed at least once: what is computed again is waste
    cached_tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    received_ns: int | None = None
    grammar_ns: int = 0  # a grammar was built for so long before it was queued
    queued_ns: int | None = None
    scheduled_ns: int | None = None
    token_times_ns: list[int] = field(default_factory=list)
    finished_ns: int | None = None
    was_aborted: bool = False
    calls: list[Call] = field(default_factory=list)
    preemptions: int = 0
    recomputed_tokens: int = 0
    answer_bytes: int = 0  # of all its chunks

    def waits_for_grammar(self, ns: int) -> int:
        """Note what its grammar takes; returns it. Another process may build it again, once it is queued."""
        if self.queued_ns is None:
            self.grammar_ns = ns
        return ns

    @property
    def produced(self) -> int:
        """Output tokens so far."""
        return len(self.token_times_ns)

    @property
    def first_token_ns(self) -> int | None:
        """When the first output token left the engine."""
        return self.token_times_ns[0] if self.token_times_ns else None

    @property
    def last_token_ns(self) -> int | None:
        """When the latest output token left the engine."""
        return self.token_times_ns[-1] if self.token_times_ns else None


@dataclass(frozen=True)
class Admission:
    """What the gateway made of a stretch of traffic."""

    requests: list[Request]  # in the order in which they reach the engine
    rejected: list[Arrival]
    lookups: list[Lookup]
    loads: list[Load]

    @property
    def skew(self) -> float:
        """Requests of the busier replica, in means of both; 1 where one is modelled."""
        by_replica = Counter(r.replica for r in self.requests)
        return 2 * max(by_replica.values()) / len(self.requests) if len(by_replica) > 1 else 1.0

    def given_up(self) -> dict[str, float]:
        """What a client misses that no latency shows, as shares."""
        passed = self.requests
        asked = sum(len(r.arrival.prompt) for r in passed)
        cut = asked - sum(r.prompt_tokens for r in passed)
        without = sum(r.calls[-1].failed or r.calls[-1].was_cut for r in passed if r.calls)
        return {
            "turned_away": len(self.rejected) / max(len(passed) + len(self.rejected), 1),
            "prompt_cut": cut / max(asked, 1),
            "without_retrieval": without / max(len(passed), 1),
        }


def admit(plan: Plan, traffic: Iterable[Arrival]) -> Admission:
    """Pass requests on to the engine, or turn them away."""
    spent: dict[str, list[tuple[int, int]]] = defaultdict(list)
    passed: list[Request] = []
    traffic = list(traffic)
    retrieval = _Retrieval(plan, traffic[0].at_ns if traffic else 0)
    rejected: list[Arrival] = []
    for arrival in traffic:
        if arrival.index % plan.args.replicas and not plan.host.has_router:
            continue
        if _over_quota(plan, arrival, spent[arrival.tenant]):
            rejected.append(arrival)
        else:
            passed.append(_request(plan, arrival, retrieval.call(arrival)))
    if traffic:
        retrieval.cache.advance(traffic[-1].at_ns)
    passed = _through_api_server(plan, sorted(passed, key=lambda r: r.ready_ns))
    cache = retrieval.cache
    return Admission(passed, rejected, cache.lookups, cache.loads)


def _through_api_server(plan: Plan, requests: list[Request]) -> list[Request]:
    """One request at a time in each process: its interpreter lock lets no more through."""
    work_ns = plan.build.middleware_ns if plan.args.middleware else 0
    if not work_ns:
        return requests
    free_ns = [0] * plan.args.api_server_count
    for request in requests:
        end_ns = max(request.ready_ns, heappop(free_ns)) + work_ns
        heappush(free_ns, end_ns)
        request.frontend_ns = end_ns - work_ns - request.ready_ns
        request.ready_ns = end_ns
    return requests


def _over_quota(plan: Plan, arrival: Arrival, spent: list[tuple[int, int]]) -> bool:
    quota = plan.args.tenant_token_quota
    if not quota:
        return False
    recent = sum(n for at_ns, n in spent[-256:] if at_ns > arrival.at_ns - 2 * SECOND)
    if recent + len(arrival.prompt) > 2 * quota:
        return True
    spent.append((arrival.at_ns, len(arrival.prompt)))
    return False


class _Retrieval:
    """The retrieval service behind a pool of connections; calls come in order of time."""

    def __init__(self, plan: Plan, start_ns: int) -> None:
        self.plan = plan
        self.cache = SharedCache(plan.gateway, start_ns)
        self._free_ns = [0] * plan.gateway.pool_size
        self._recent: deque[int] = deque()

    def call(self, arrival: Arrival) -> list[Call]:
        """The calls that one request makes until one of them succeeds."""
        gateway, timeout_ns = self.plan.gateway, self.plan.args.dependency_timeout_ns
        rng = random.Random(arrival.index)
        calls: list[Call] = []
        wanted_ns = arrival.at_ns + GATEWAY_NS
        for _ in range(gateway.attempts):
            begin_ns = max(wanted_ns, heappop(self._free_ns))
            failed = rng.random() < self.plan.traffic.retrieval_errors
            lasts_ns = gateway.timeout_ns if failed else arrival.retrieval_ns
            found = self.cache.look_up(arrival.index, begin_ns)
            lasts_ns = round(lasts_ns * self._crowding(begin_ns)) + found.end_ns - found.at_ns
            was_cut = 0 < timeout_ns < max(lasts_ns, begin_ns - wanted_ns)
            if timeout_ns:
                lasts_ns = min(lasts_ns, timeout_ns)
                begin_ns = min(begin_ns, wanted_ns + timeout_ns)
            end_ns = begin_ns + lasts_ns
            calls.append(
                Call(wanted_ns, begin_ns, end_ns, failed, found.key, found.was_hit, was_cut)
            )
            heappush(self._free_ns, begin_ns + lasts_ns + gateway.lease_ns)
            wanted_ns = begin_ns + lasts_ns
            if not failed:
                break
        return calls

    def _crowding(self, at_ns: int) -> float:
        """How much slower it is for all that was asked of it in the last second."""
        while self._recent and self._recent[0] < at_ns - SECOND:
            self._recent.popleft()
        self._recent.append(at_ns)
        return max(1.0, len(self._recent) / _CALLS_A_SECOND)


def _request(plan: Plan, arrival: Arrival, calls: list[Call]) -> Request:
    args = plan.args
    retrieval_ns = calls[-1].end_ns - calls[0].wanted_ns
    # A prompt that could never fit in the pool would wait for ever.
    most = args.total_blocks * args.block_size - arrival.output_tokens - args.block_size
    if args.max_prompt_tokens:
        most = min(most, args.max_prompt_tokens)
    prompt = list(arrival.prompt[: max(1, most)])
    there_ns, back_ns, resent = _on_the_way(plan, arrival)
    return Request(
        arrival=arrival,
        ready_ns=arrival.at_ns + GATEWAY_NS + retrieval_ns + there_ns,
        replica=_replica(plan, arrival),
        there_ns=there_ns,
        back_ns=back_ns,
        resent=resent,
        retrieval_ns=retrieval_ns,
        tokens=prompt,
        prompt_tokens=len(prompt),
        output_tokens=arrival.output_tokens,
        salt=_salt(plan, arrival),
        has_old_map=_has_old_map(plan, arrival),
        calls=calls,
    )


def _on_the_way(plan: Plan, arrival: Arrival) -> tuple[int, int, int]:
    """Time to the engine and back, and how many segments were sent again."""
    host = plan.host
    if not host.has_network:
        return 0, 0, 0
    draws = random.Random(f"network:{arrival.index}")
    lost = [draws.random() < host.loss for _ in range(_SEGMENTS)]
    there, back = sum(lost[: _SEGMENTS // 2]), sum(lost[_SEGMENTS // 2 :])
    one_way = host.rtt_ns // 2
    return one_way + there * _SENT_AGAIN_NS, one_way + back * _SENT_AGAIN_NS, there + back


def _replica(plan: Plan, arrival: Arrival) -> int:
    """Whom the router gives a request; 0 where no router is modelled."""
    host = plan.host
    if not host.has_router:
        return 0
    return (
        int(_spread(arrival) >= host.router_share) if host.router_share else arrival.index % 2
    )


def _salt(plan: Plan, arrival: Arrival) -> int:
    if _has_old_map(plan, arrival):
        return arrival.index + 1  # its tokens have no keys and values in the cache
    if plan.args.pin_tokenizer_revision:
        return 0
    return arrival.index + 1 if _spread(arrival) < plan.build.cache_key_churn else 0


def _has_old_map(plan: Plan, arrival: Arrival) -> bool:
    return not plan.args.reject_version_mismatch and _spread(arrival) < plan.build.old_map_share


def _spread(arrival: Arrival) -> float:
    return (arrival.index * 2654435761 % 2**32) / 2**32
