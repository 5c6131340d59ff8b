"""What a judge is and what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

import polars as pl

from rca.case import Case

MAX_REASON_WORDS = 15


@dataclass(frozen=True)
class Verdict:
    """One judgement.

    Attributes:
        status: 'diagnosed', 'unknown' or 'no_incident'.
        cause: Id of the cause, None unless diagnosed.
        cls: Class of the cause, None unless diagnosed.
        confidence: Calibrated probability that the status (and cause) is right, 0 to 1.
        reason: At most fifteen words.
        judge: 'rules' or the model that judged.
    """

    status: str
    cause: str | None
    cls: str | None
    confidence: float
    reason: str
    judge: str


class Judge(Protocol):
    """One method: read the case, say what it was."""

    def judge(self, case: Case) -> Verdict:
        """The verdict on the first incident window."""


def record(case: Case, verdict: Verdict) -> None:
    """Append the verdict; the last row is the one in force."""
    row = asdict(verdict)
    row["class"] = row.pop("cls")
    case.insert("verdict", pl.DataFrame([row]))


def shortened(reason: str) -> str:
    """The reason in fifteen words: up to the last clause that ends within them, else cut off."""
    words = reason.split()
    if len(words) <= MAX_REASON_WORDS:
        return reason
    kept = words[:MAX_REASON_WORDS]
    end = max((i for i, word in enumerate(kept, 1) if word[-1] in ",;:."), default=0)
    return " ".join(kept[:end]).rstrip(",;:.") if end else " ".join(kept) + "…"
