"""The offline judge: the best hypothesis when it is good enough, `unknown` when it is not."""

from __future__ import annotations

import json

from rca import catalogue
from rca.case import Case
from rca.errors import CaseError
from rca.judge.protocol import Verdict, shortened
from rca.plain import role_words, uncapitalised
from rca.weights import settings

_SHORT_NAMES = 3


class RulesJudge:
    """Judges by the ranked hypotheses alone; the same input always gets the same answer."""

    name = "rules"

    def judge(self, case: Case) -> Verdict:
        """The verdict on the first incident window.

        Raises:
            CaseError: The case was never analysed.
        """
        windows = case.rows(
            "SELECT status, score, threshold, note FROM incident_window ORDER BY id LIMIT 1"
        )
        if not windows:
            raise CaseError(
                "holds recordings that were never analysed",
                path=str(case.path) if case.path else None,
                hint="run: rca analyze",
            )
        status, score, threshold, note = windows[0]
        if status == "none":
            near = 0.5 * min((score or 0.0) / threshold, 1.0) if threshold else 0.0
            felt = shortened(note.partition(";")[0])
            return Verdict("no_incident", None, None, 1.0 - near, felt, self.name)
        if status == "unknown":
            return Verdict("unknown", None, None, 0.0, shortened(note), self.name)
        rows = case.rows(
            "SELECT cause, class, confidence, evidence FROM hypothesis ORDER BY rank LIMIT 1"
        )
        if not rows or rows[0][2] < settings()["least_confidence"]:
            best = f"; closest is {rows[0][0]} at {rows[0][2]:.2f}" if rows else ""
            reason = f"no known cause fits the evidence well enough{best}"
            # Being sure that it is unknown: what the known causes leave over.
            left = 1.0 - sum(c for (c,) in case.rows("SELECT confidence FROM hypothesis"))
            return Verdict(
                "unknown", None, None, min(max(left, 0.0), 0.49), shortened(reason), self.name
            )
        cause, cls, confidence, evidence = rows[0]
        return Verdict(
            "diagnosed",
            cause,
            cls,
            confidence,
            _reason(case, cause, json.loads(evidence)),
            self.name,
        )


def _reason(case: Case, cause: str, evidence: list[str]) -> str:
    """Title of the cause and the moves that weigh most in it."""
    moves = []
    for key in evidence:
        role, direction = case.rows(
            "SELECT role, direction FROM evidence WHERE id = ?", (key,)
        )[0]
        if direction in ("up", "down"):
            moves.append(f"{role_words(role or '')} {direction}")
    names = [cause] + [
        other
        for (other,) in case.rows(
            "SELECT cause FROM hypothesis WHERE contributing AND cause <> ? "
            "AND ? IN (SELECT cause FROM hypothesis WHERE contributing)",
            (cause, cause),
        )
    ]
    known = catalogue.of(case)
    titles = [known[n].title if n in known else n for n in names]
    title = "; also ".join([titles[0], *map(uncapitalised, titles[1:])])
    told = ", ".join(moves[:_SHORT_NAMES])
    return shortened(f"{title}: {told}" if told else title)
