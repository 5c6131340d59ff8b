"""What a language model wrote for the postmortem, as far as it holds; without it `rca` words it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rca.case import Case
from rca.plain import printable
from rca.postmortem.chronicle import Said

_LEAST_OF_SUMMARY = 2


@dataclass(frozen=True)
class Written:
    """Sentences that hold. `author` says who wrote them and what was struck, empty without any.

    Attributes:
        summary: Empty where too little of it held.
    """

    author: str = ""
    summary: list[Said] = field(default_factory=list)
    lessons: list[Said] = field(default_factory=list)


def read(case: Case) -> Written:
    """The text in judge_text."""
    rows = case.rows(
        "SELECT model, part, text, evidence, why IS NULL FROM judge_text ORDER BY part DESC, place"
    )
    held = {
        name: [
            Said(printable(text, 500), tuple(json.loads(evidence)))
            for _, part, text, evidence, holds in rows
            if part == name and holds
        ]
        for name in ("summary", "lessons")
    }
    if len(held["summary"]) < _LEAST_OF_SUMMARY:
        held["summary"] = []
    if not held["summary"] and not held["lessons"]:
        return Written()
    struck = sum(not holds for *_, holds in rows)
    told = (
        f"; {struck} of {len(rows)} sentences did not hold and were left out" if struck else ""
    )
    author = f"Written by {printable(rows[0][0], 60)} from the verdict, each sentence held to the evidence that it cites{told}."
    return Written(author, **held)
