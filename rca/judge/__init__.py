"""Judges: read hypotheses and evidence of a case, give one verdict."""

from __future__ import annotations

from rca.judge.protocol import Judge, Verdict, record
from rca.judge.rules import RulesJudge

__all__ = ["Judge", "RulesJudge", "Verdict", "record"]
