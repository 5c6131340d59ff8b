"""Requests as Mooncake's trace format has them, in and out, and as traffic of the model.

A line is one request: `timestamp` in ms, `input_length`, `output_length`, and `hash_ids`, one for each
block of 512 prompt tokens, the last one maybe not full; equal ids mean equal tokens up to the end of
the block. Published traces have whole ms; a fraction is written where a time has one, so that no time moves.
"""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from rca.durable import write_whole
from rca.errors import ParseError, RcaError
from rca.models.settings import MS, SECOND, Traffic
from rca.models.workload import UNIQUE_GROUP, VOCABULARY, Arrival
from rca.plain import printable

BLOCK_TOKENS = 512
_LONGEST = 2_000  # prompt tokens that the model takes
_LATEST_MS = 2**42
_MOST_PER_S = 1_000


class Asked(NamedTuple):
    """One request of a trace; `at_ns` counts from the trace's own zero."""

    at_ns: int
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def write(path: Path, requests: Iterable[Asked]) -> None:
    """Write a trace, in order of time, whole or not at all; its zero is the first request."""
    ordered = sorted(requests)
    first_ns = ordered[0].at_ns if ordered else 0
    write_whole(path, "".join(_line(one, one.at_ns - first_ns) + "\n" for one in ordered))


def _line(one: Asked, since_ns: int) -> str:
    whole, rest = divmod(since_ns, MS)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    fields = {
        "input_length": one.input_tokens,
        "output_length": one.output_tokens,
        "hash_ids": list(one.hash_ids),
    }
    return f'{{"timestamp": {whole}{fraction}, {json.dumps(fields)[1:]}'


def read(path: Path) -> list[Asked]:
    """The requests of a trace in order of time, to the nanosecond.

    Raises:
        ParseError: A line that is no such request, or no line at all.
    """
    found: list[Asked] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    found.append(_asked(json.loads(line, parse_float=Decimal)))
                except (
                    ValueError,
                    KeyError,
                    TypeError,
                    AttributeError,
                    ArithmeticError,
                    RecursionError,
                ) as error:
                    raise ParseError(
                        f"not a Mooncake request ({_why(error)})",
                        path=str(path),
                        place=f"line {number}",
                        hint="each line needs timestamp, input_length, output_length",
                    ) from error
    if not found:
        raise ParseError("no requests in it", path=str(path))
    return sorted(found)


def _why(error: Exception) -> str:
    if isinstance(error, ArithmeticError):
        return "its timestamp is no number"
    return printable(str(error), 120)


def _asked(row: dict[str, Any]) -> Asked:
    at_ms = Decimal(row["timestamp"])
    lengths = row["input_length"], row["output_length"]
    ids = row.get("hash_ids", [])
    if not all(type(value) is int for value in (*lengths, *ids)):
        raise TypeError("lengths and hash_ids are whole numbers")
    # Compared before it is made an integer: a large exponent has many digits.
    if not 0 <= at_ms < _LATEST_MS or not all(0 < n < 2**31 for n in lengths):
        raise ValueError("a time or a length is out of range")
    return Asked(int(at_ms * MS), *lengths, tuple(ids))


class Replay:
    """A trace as traffic of the model: its times as they are, its lengths on the model's scale.

    Attributes:
        scale: factor on lengths.
        cut: requests whose prompts are longer than the model takes.
        span_ns: after so long it starts again.
    """

    def __init__(self, requests: Sequence[Asked], usual_prompt: float) -> None:
        """Lengths shrink so far that the mean prompt is at most `usual_prompt` tokens.

        Raises:
            RcaError: It asks more requests a second than can be replayed.
        """
        first_ns = requests[0].at_ns
        self._requests = [one._replace(at_ns=one.at_ns - first_ns) for one in requests]
        self._times = [one.at_ns for one in self._requests]
        mean = sum(one.input_tokens for one in requests) / len(requests)
        self.scale = min(1.0, usual_prompt / mean)
        self.cut = sum(one.input_tokens * self.scale > _LONGEST for one in requests)
        last_ns = self._times[-1]
        self.span_ns = last_ns + (last_ns // (len(requests) - 1) if last_ns else SECOND)

        if self.rate_per_s > _MOST_PER_S:
            raise RcaError(
                f"the trace asks {self.rate_per_s:,.0f} requests a second, at most {_MOST_PER_S:,} are replayed",
                hint="timestamps are milliseconds",
            )

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second."""
        return len(self._requests) * SECOND / self.span_ns

    def arrivals(
        self, traffic: Traffic, zero_ns: int, start_ns: int, end_ns: int
    ) -> Iterator[Arrival]:
        """Requests from `start_ns` up to `end_ns`, the trace beginning at `zero_ns`.

        What a trace does not say (retrieval, structured answers, who hangs up) is drawn as
        `traffic` has it, the same for a request each time.
        """
        index = 0
        first, last = ((at - zero_ns) // self.span_ns for at in (start_ns, end_ns - 1))
        for round_no in range(first, last + 1):
            begin_ns = zero_ns + round_no * self.span_ns
            at = bisect_left(self._times, start_ns - begin_ns)
            for number in range(at, bisect_left(self._times, end_ns - begin_ns)):
                yield self._arrival(traffic, index, number, begin_ns)
                index += 1

    def _arrival(self, traffic: Traffic, index: int, number: int, begin_ns: int) -> Arrival:
        one = self._requests[number]
        draws = random.Random(f"asked:{number}")
        output_tokens = max(1, round(one.output_tokens * self.scale))
        retrieval = draws.lognormvariate(0.0, traffic.retrieval_sigma)
        return Arrival(
            index=index,
            at_ns=begin_ns + one.at_ns,
            prompt=self._prompt(one, number),
            output_tokens=output_tokens,
            tenant="t-0",
            group=one.hash_ids[0] if one.hash_ids else UNIQUE_GROUP,
            has_schema=draws.random() < traffic.schema_share,
            retrieval_ns=round(traffic.retrieval_ns * retrieval),
            abort_after=output_tokens // 3 if draws.random() < traffic.abort_share else 0,
            is_urgent=draws.random() < traffic.urgent_share,
        )

    def _prompt(self, one: Asked, number: int) -> tuple[int, ...]:
        """Equal ids become equal tokens; what no id covers is the request's own."""
        length = min(_LONGEST, max(1, round(one.input_tokens * self.scale)))
        each = max(1, round(BLOCK_TOKENS * self.scale))
        tokens: list[int] = []
        for key in one.hash_ids[: math.ceil(length / each)]:
            tokens += random.Random(f"block:{key}").choices(range(VOCABULARY), k=each)
        own = random.Random(f"rest:{number}")
        tokens += own.choices(range(VOCABULARY), k=max(0, length - len(tokens)))
        return tuple(tokens[:length])
