"""Continuous batching: which tokens of which requests the next step computes.

Running requests come first, then waiting ones while the token budget lasts. When the
pool is empty the youngest running request gives its blocks back and starts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rca.models.gateway import Request
from rca.models.kv_cache import BlockPool, chain_hashes
from rca.models.settings import Plan

_LOST_TOKENS = 3  # times what the client wanted


@dataclass(frozen=True, slots=True)
class Slice:
    """Tokens start … start+count of one request, computed in one step."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Whether this step gives the request its next token."""
        return self.start + self.count == len(self.request.tokens)


class Batch(NamedTuple):
    """One engine step: decodes first, then pieces of prompts."""

    slices: list[Slice]

    @property
    def tokens(self) -> int:
        """Rows that go through the linear layers."""
        return sum(piece.count for piece in self.slices)

    @property
    def prefills(self) -> list[Slice]:
        """Pieces of prompts, and what is computed again."""
        return [piece for piece in self.slices if piece.count > 1]

    @property
    def decodes(self) -> list[Slice]:
        """Pieces of one token."""
        return [piece for piece in self.slices if piece.count == 1]

    @property
    def name(self) -> str:
        """What a profiler's range around the step is called, as in vLLM."""
        prefills, decodes = self.prefills, self.decodes
        context = f"context_{len(prefills)}({sum(piece.count for piece in prefills)})"
        return f"execute_{context}_generation_{len(decodes)}({len(decodes)})"


@dataclass
class Counters:
    """What the scheduler counts; all only grow."""

    steps: int = 0
    scheduled_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    flushes: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class Scheduler:
    """Waiting and running requests, and the pool they share."""

    def __init__(self, plan: Plan) -> None:
        self.args, self.build = plan.args, plan.build
        self.pool = BlockPool(
            plan.args.total_blocks, evict_unused_first=plan.args.evict_unused_first
        )
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counters = Counters()
        self._held_debt = 0.0

    def add(self, request: Request, now_ns: int) -> None:
        """Queue a request; its prompt is hashed once."""
        if request.queued_ns is None:
            request.queued_ns = now_ns
        if self.args.enable_prefix_caching:
            request.hashes = chain_hashes(request.tokens, self.args.block_size, request.salt)
        if self.args.priority_scheduling and request.arrival.is_urgent:
            self._pass_the_others(request)
        else:
            self.waiting.append(request)

    def _pass_the_others(self, request: Request) -> None:
        """Queue behind the urgent ones that wait already, before all others."""
        ahead = sum(1 for waiting in self.waiting if waiting.arrival.is_urgent)
        self.waiting.insert(ahead, request)

    def preload(self, prefix: Sequence[int]) -> None:
        """Make a prefix findable, as if it had been asked for before."""
        hashes = chain_hashes(prefix, self.args.block_size, 0)
        blocks = self.pool.take(len(hashes)) if self.args.enable_prefix_caching else None
        for block, key in zip(blocks or [], hashes, strict=bool(blocks)):
            self.pool.remember(block, key)
        self.pool.release(blocks or [])

    def schedule(self, now_ns: int) -> Batch:
        """The next step; empty when nothing may run now."""
        budget = self.args.max_num_batched_tokens
        slices, preempted = self._schedule_running(budget)
        if not preempted and self._may_admit(now_ns):
            budget -= sum(piece.count for piece in slices)
            slices += self._schedule_waiting(budget, now_ns)
        slices.sort(key=lambda piece: piece.count > 1)
        return Batch(slices)

    def update(self, batch: Batch, sampled: Sequence[int], now_ns: int) -> list[Request]:
        """Book a computed step and its sampled tokens, one for each slice that samples.

        Returns the requests that it finished.
        """
        tokens = iter(sampled)
        self.counters.steps += 1
        self.counters.scheduled_tokens += batch.tokens
        finished: list[Request] = []
        for piece in batch.slices:
            request = piece.request
            samples = piece.samples
            self._count_waste(piece)
            request.computed = piece.start + piece.count
            self._remember_full_blocks(request, piece.start)
            if samples and self._append_token(request, next(tokens), now_ns):
                finished.append(request)
        return finished

    def next_admission_ns(self) -> int | None:
        """When the batch window lets the oldest waiting request in."""
        if not self.waiting or self.waiting[0].queued_ns is None:
            return None
        return self.waiting[0].queued_ns + self.args.max_queue_delay_ns

    def _may_admit(self, now_ns: int) -> bool:
        opens_ns = self.next_admission_ns()
        if opens_ns is None:
            return False
        args = self.args
        wanted = args.preferred_batch_size or args.max_num_seqs
        return now_ns >= opens_ns or len(self.waiting) >= wanted

    def _schedule_running(self, budget: int) -> tuple[list[Slice], bool]:
        slices: list[Slice] = []
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = self._piece(request, budget)
            while not self._grow(request, request.computed + count):
                victim = self._victim(index)
                self._preempt(victim)
                preempted = True
                if victim is request:
                    break
            else:
                slices.append(Slice(request, request.computed, count))
                budget -= count
                index += 1
        return slices, preempted

    def _victim(self, index: int) -> Request:
        """The youngest running request; with priorities the youngest that is not urgent.

        Those before `index` have their part of this step already.
        """
        if self.args.priority_scheduling:
            for request in reversed(self.running[index:]):
                if not request.arrival.is_urgent:
                    return request
        return self.running[-1]

    def _schedule_waiting(self, budget: int, now_ns: int) -> list[Slice]:
        slices: list[Slice] = []
        while self.waiting and budget > 0 and len(self.running) < self.args.max_num_seqs:
            request = self.waiting[0]
            cached = self._cached_blocks(request)
            request.computed = len(cached) * self.args.block_size
            left = len(request.tokens) - request.computed
            if (
                not self.args.enable_chunked_prefill
                and left > budget
                and (slices or self.running)
            ):
                break
            count = (
                left if not self.args.enable_chunked_prefill else self._piece(request, budget)
            )
            self.pool.hold(cached)
            request.blocks = list(cached)
            if not self._grow(request, request.computed + count):
                self.pool.release(request.blocks)
                request.blocks, request.computed = [], 0
                break
            self._count_prefix(request)
            self.waiting.popleft()
            self.running.append(request)
            if request.scheduled_ns is None:
                request.scheduled_ns = now_ns
            slices.append(Slice(request, request.computed, count))
            budget -= count
        return slices

    def _piece(self, request: Request, budget: int) -> int:
        count = min(len(request.tokens) - request.computed, budget)
        cap = self.args.long_prefill_token_threshold
        return min(count, cap) if cap else count

    def _cached_blocks(self, request: Request) -> list[int]:
        # The last token is always computed: without it there are no logits.
        most = (len(request.tokens) - 1) // self.args.block_size
        return self.pool.find(request.hashes[:most])

    def _grow(self, request: Request, tokens: int) -> bool:
        needed = -(-tokens // self.args.block_size) - len(request.blocks)
        if needed <= 0:
            return True
        taken = self.pool.take(needed)
        if taken is None:
            return False
        request.blocks.extend(taken)
        return True

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks, request.computed = [], 0
        request.preemptions += 1
        self.counters.preemptions += 1
        self.waiting.appendleft(request)

    def _count_prefix(self, request: Request) -> None:
        if request.scheduled_ns is None and self.args.enable_prefix_caching:
            request.cached_tokens = request.computed
            self.counters.prefix_queries += len(request.tokens)
            self.counters.prefix_hits += request.computed
            request.known_tokens = request.computed

    def _count_waste(self, piece: Slice) -> None:
        request, end = piece.request, piece.start + piece.count
        again = max(0, min(end, request.known_tokens) - piece.start)
        request.recomputed_tokens += again
        self.counters.recomputed_tokens += again
        request.known_tokens = max(request.known_tokens, end)

    def _remember_full_blocks(self, request: Request, start: int) -> None:
        size = self.args.block_size
        for index in range(start // size, min(request.computed // size, len(request.hashes))):
            self.pool.remember(request.blocks[index], request.hashes[index])

    def _append_token(self, request: Request, token: int, now_ns: int) -> bool:
        request.tokens.append(token)
        request.token_times_ns.append(now_ns)
        if request.produced == request.arrival.abort_after:
            request.was_aborted = True
        # Nobody is there to stop an answer that goes on without its reader.
        lost = request.was_aborted and self.build.ignores_aborts
        wanted = _LOST_TOKENS * request.output_tokens if lost else request.output_tokens
        if request.produced >= wanted or (request.was_aborted and not lost):
            self._finish(request, now_ns)
            return True
        every = self.build.position_gap_every
        if every and not self.args.compact_positions and request.produced % every == 0:
            request.computed = 0
            self.counters.flushes += 1
        return False

    def _finish(self, request: Request, now_ns: int) -> None:
        request.finished_ns = now_ns
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []
        self._hold_back()

    def _hold_back(self) -> None:
        """Keep blocks of a finished request for good, as a leaking build does."""
        self._held_debt += self.build.held_blocks_per_request
        room = self.pool.n_free - self.pool.n_blocks // 6  # the longest request fits
        count = min(int(self._held_debt), room)
        if count > 0:
            self._held_debt -= count
            self.pool.take(count)
