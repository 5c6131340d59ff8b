"""The evidence pack: what a language model is shown of a case, within a budget of tokens."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from rca.case import Case
from rca.catalogue import Cause
from rca.errors import JudgeError
from rca.judge.facts import Candidate, Fact, Facts, collect
from rca.judge.redaction import Masker

DEFAULT_TOKENS = 10_000
_BYTES_PER_TOKEN = 3
"""Low on purpose: JSON with numbers has three to four bytes a token in common vocabularies."""


@dataclass(frozen=True)
class Pack:
    """What is shown.

    Attributes:
        dropped: Rows of evidence that did not fit, the weakest.
    """

    facts: dict[str, Fact]
    candidates: dict[str, Candidate]
    context: dict[str, Any]
    dropped: int
    masker: Masker

    def text(self, sample: int) -> str:
        """The pack as JSON, one row a line; each sample has its own order of candidates."""
        order = list(self.candidates.values())
        random.Random(sample).shuffle(order)
        sections = {
            "evidence": [f.shown for f in self.facts.values()],
            "evidence_left_out": self.dropped,
            "candidates": [self._shown(c) for c in order],
            **self.context,
        }
        return laid_out(sections)

    def _shown(self, candidate: Candidate) -> dict[str, Any]:
        return candidate.shown | {
            "evidence_for": [e for e in candidate.supports if e in self.facts],
            "evidence_against": [e for e in candidate.contradicts if e in self.facts],
        }


def laid_out(sections: dict[str, Any]) -> str:
    """Sections as JSON, one row a line; nothing in them can close the tags around it."""
    body = ",\n".join(f"{json.dumps(k)}: {_section(v)}" for k, v in sections.items())
    return f"{{\n{body}\n}}".replace("<", "\\u003c").replace(">", "\\u003e")


def tokens(text: str) -> int:
    """Tokens of a text, estimated on the high side."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def build(case: Case, causes: dict[str, Cause], budget: int = DEFAULT_TOKENS) -> Pack:
    """The pack of a case in at most `budget` estimated tokens; the weakest evidence goes first.

    Raises:
        JudgeError: Not even the candidates fit.
    """
    facts = collect(case, causes)
    kept = sorted(facts.evidence, key=lambda f: -f.weight)
    while True:
        pack = _pack(facts, {f.id for f in kept})
        size = tokens(pack.text(0))
        if size <= budget:
            return pack
        if not kept:
            raise JudgeError(
                f"the question needs {size} tokens without any evidence, {budget} are left for it",
                hint="raise --max-tokens, or ask for fewer --samples",
            )
        # Rows are of like size: drop about what is too much, at least one.
        mean = max(sum(tokens(json.dumps(f.shown)) for f in kept) / len(kept), 1.0)
        kept = kept[: len(kept) - max(1, int((size - budget) / mean))]


def _pack(facts: Facts, kept: set[str]) -> Pack:
    return Pack(
        {f.id: f for f in facts.evidence if f.id in kept},
        {c.cause: c for c in facts.candidates},
        {k: v for k, v in facts.context.items() if v},
        len(facts.evidence) - len(kept),
        facts.masker,
    )


def _section(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(_compact(v) for v in value) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
