"""Who asks for what, and when.

Lengths, groups and gaps are drawn from a seed, so two arms of an experiment see the
very same requests. Token numbers only matter for what they share.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rca.models.settings import SECOND, Traffic

VOCABULARY = 1024
COLD_TENANT = "t-bulk"
"""Whose prompts share no prefix with others; it comes when `cold_share` is set."""
UNIQUE_GROUP = -1


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as the gateway receives it."""

    index: int
    at_ns: int
    prompt: tuple[int, ...]
    output_tokens: int
    tenant: str
    group: int  # shared prefix; -1 for none
    has_schema: bool
    retrieval_ns: int
    abort_after: int = 0  # output tokens after which the client hangs up; 0: never
    is_urgent: bool = False


def arrivals(traffic: Traffic, seed: int, start_ns: int, end_ns: int) -> Iterator[Arrival]:
    """Requests in order of time, from `start_ns` up to `end_ns`."""
    rng = random.Random(f"arrivals:{seed}")
    prefixes = [
        shared_prefix(group, traffic.prefix_tokens) for group in range(traffic.prefix_groups)
    ]
    weights = [1.0 / (1 + group) ** 0.5 for group in range(traffic.prefix_groups)]
    for index, at_ns in enumerate(_times(traffic, seed, start_ns, end_ns)):
        # Draws are the same in number for each request, whatever the knobs say: arms of
        # an experiment stay paired.
        draws = [rng.random() for _ in range(6)]
        group = rng.choices(range(traffic.prefix_groups), weights)[0]
        body = _own_body(seed, index, _own_tokens(traffic, draws))
        cold = draws[2] < traffic.cold_share
        shared = () if cold else prefixes[group]
        output_tokens = max(4, round(traffic.output_tokens * (0.5 + draws[3])))
        yield Arrival(
            index=index,
            at_ns=at_ns,
            prompt=(*shared, *body),
            output_tokens=output_tokens,
            tenant=COLD_TENANT if cold else f"t-{group % traffic.tenants}",
            group=UNIQUE_GROUP if cold else group,
            has_schema=draws[4] < traffic.schema_share,
            retrieval_ns=_retrieval(traffic, rng),
            abort_after=output_tokens // 3 if draws[5] < traffic.abort_share else 0,
            is_urgent=_is_urgent(traffic, seed, index),
        )


def _is_urgent(traffic: Traffic, seed: int, index: int) -> bool:
    # Not one of the draws above: who is urgent must change nothing else.
    if not traffic.urgent_share:
        return False
    return random.Random(f"urgent:{seed}:{index}").random() < traffic.urgent_share


def _times(traffic: Traffic, seed: int, start_ns: int, end_ns: int) -> Iterator[int]:
    rng = random.Random(f"times:{seed}")
    at_ns = float(start_ns)
    left_in_burst = 0
    while True:
        gap = rng.expovariate(1.0)
        size = rng.expovariate(1.0)
        if left_in_burst > 0:
            left_in_burst -= 1
        else:
            at_ns += gap * SECOND * traffic.burst_factor / traffic.rate_per_s
            left_in_burst = round(size * (traffic.burst_factor - 1)) if size else 0
        if at_ns >= end_ns:
            return
        yield int(at_ns)


def _own_body(seed: int, index: int, tokens: int) -> list[int]:
    # A generator of its own: a longer body must not shift what later requests draw.
    rng = random.Random(seed * 1_000_003 + index)
    return rng.choices(range(VOCABULARY), k=tokens)


def _own_tokens(traffic: Traffic, draws: list[float]) -> int:
    if draws[2] < traffic.cold_share:
        return max(8, round(traffic.cold_tokens * (0.75 + 0.5 * draws[0])))
    if draws[1] < traffic.long_share:
        return round(traffic.long_tokens * (0.75 + 0.5 * draws[0]))
    return max(8, round(traffic.unique_tokens * (0.5 + draws[0])))


@lru_cache(maxsize=256)
def shared_prefix(group: int, tokens: int) -> tuple[int, ...]:
    """The tokens that all requests of a group begin with."""
    rng = random.Random(f"prefix:{group}")
    return tuple(rng.randrange(VOCABULARY) for _ in range(tokens))


def _retrieval(traffic: Traffic, rng: random.Random) -> int:
    return round(traffic.retrieval_ns * rng.lognormvariate(0.0, traffic.retrieval_sigma))
