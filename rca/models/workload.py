"""Who asks for what, and when; Mooncake trace lines in and out.

Lengths, groups and gaps are drawn from a seed, so two arms of an experiment see the
very same requests. Token numbers only matter for what they share.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rca.errors import ParseError
from rca.models.settings import SECOND, Traffic

VOCABULARY = 1024
COLD_TENANT = "t-bulk"
"""Whose prompts share no prefix with others; it comes when `cold_share` is set."""
_MOONCAKE_BLOCK = 512
_UNIQUE_GROUP = -1


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
            group=_UNIQUE_GROUP if cold else group,
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


def write_mooncake(path: Path, requests: Iterable[Arrival]) -> None:
    """Write requests in Mooncake's trace format; times count in ms from the first one."""
    first_ns: int | None = None
    with path.open("w", encoding="utf-8") as file:
        for request in requests:
            first_ns = request.at_ns if first_ns is None else first_ns
            line = {
                "timestamp": (request.at_ns - first_ns) // 1_000_000,
                "input_length": len(request.prompt),
                "output_length": request.output_tokens,
                "hash_ids": _hash_ids(request.prompt),
            }
            file.write(json.dumps(line) + "\n")


def _hash_ids(prompt: tuple[int, ...]) -> list[int]:
    ids, parent = [], 0
    for start in range(0, len(prompt), 16):
        parent = hash((parent, *prompt[start : start + 16])) & 0x7FFFFFFF
        ids.append(parent)
    return ids


def read_mooncake(
    path: Path, start_ns: int = 0, *, block_tokens: int = _MOONCAKE_BLOCK, scale: float = 1.0
) -> list[Arrival]:
    """Requests of a Mooncake trace; equal hash ids become equal tokens.

    Args:
        path: JSON lines with timestamp (ms), input_length, output_length, hash_ids.
        start_ns: time of the trace's zero.
        block_tokens: tokens behind one hash id (512 in published traces, 16 in ours).
        scale: factor on lengths, to fit a small model.

    Raises:
        ParseError: a line that is not such a request.
    """
    found: list[Arrival] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                fields = (row["timestamp"], row["input_length"], row["output_length"])
                at_ms, n_input, n_output = (int(value) for value in fields)
                ids = [int(value) for value in row.get("hash_ids", [])]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ParseError(
                    f"not a Mooncake request ({error})",
                    path=str(path),
                    place=f"line {number}",
                    hint="each line needs timestamp, input_length, output_length",
                ) from error
            prompt = _tokens_of(
                ids, max(1, round(n_input * scale)), block_tokens, scale, number
            )
            found.append(
                Arrival(
                    index=len(found),
                    at_ns=start_ns + at_ms * 1_000_000,
                    prompt=prompt,
                    output_tokens=max(1, round(n_output * scale)),
                    tenant="t-0",
                    group=ids[0] if ids else _UNIQUE_GROUP,
                    has_schema=False,
                    retrieval_ns=0,
                )
            )
    return sorted(found, key=lambda request: request.at_ns)


def _tokens_of(
    ids: list[int], length: int, block_tokens: int, scale: float, number: int
) -> tuple[int, ...]:
    per_block = max(1, round(block_tokens * scale))
    tokens: list[int] = []
    for key in ids:
        rng = random.Random(f"block:{key}")
        tokens.extend(rng.randrange(VOCABULARY) for _ in range(per_block))
    rng = random.Random(f"rest:{number}")
    tokens.extend(rng.randrange(VOCABULARY) for _ in range(length - len(tokens)))
    return tuple(tokens[:length])
