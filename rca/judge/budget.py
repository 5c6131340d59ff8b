"""What a judgement may cost, and what it has cost."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rca.errors import JudgeError

_MILLION = 1_000_000


class Price(NamedTuple):
    """Price of a million tokens, in whatever currency the table is."""

    input: float
    output: float

    def of(self, prompt_tokens: int, reply_tokens: int) -> float:
        """Cost of one exchange."""
        return (prompt_tokens * self.input + reply_tokens * self.output) / _MILLION


def prices(path: Path) -> dict[str, Price]:
    """The table in a TOML file: ["model"] with input and output, for a million tokens.

    Raises:
        JudgeError: Missing, or not of that form.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return {
            model: Price(_amount(row["input"]), _amount(row["output"]))
            for model, row in table.items()
        }
    except OSError as error:
        raise JudgeError(error.strerror or "cannot be read", path=str(path)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise JudgeError(
            f"is no table of prices: {error}",
            path=str(path),
            hint='write ["MODEL"], input = 0.15, output = 0.60 for a million tokens',
        ) from error


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise ValueError(f"{value!r} is no price")
    return float(value)


@dataclass
class Purse:
    """Tokens and money for one judgement, over all models and samples."""

    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    tokens: int = 0
    cost: float = 0.0

    def refuses(self, model: str, prompt_tokens: int, reply_tokens: int) -> str | None:
        """Why a call that may take so much must not be made; None when it may."""
        wanted = self.tokens + prompt_tokens + reply_tokens
        if self.max_tokens is not None and wanted > self.max_tokens:
            return f"--max-tokens {self.max_tokens}: {self.tokens} used, the next question may take {wanted - self.tokens}"
        if self.max_cost is None:
            return None
        price = self.prices.get(model)
        if price is None:
            return f"--max-cost needs a price for {model}; give it with --prices"
        wanted_cost = price.of(prompt_tokens, reply_tokens)
        if self.cost + wanted_cost > self.max_cost:
            return f"--max-cost {self.max_cost:g}: {self.cost:.4g} spent, the next question may cost {wanted_cost:.4g}"
        return None

    def spend(self, model: str, prompt_tokens: int, reply_tokens: int) -> float | None:
        """Book one exchange; its cost, None without a price."""
        self.tokens += prompt_tokens + reply_tokens
        price = self.prices.get(model)
        if price is None:
            return None
        cost = price.of(prompt_tokens, reply_tokens)
        self.cost += cost
        return cost
