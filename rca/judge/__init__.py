"""Judges: read hypotheses and evidence of a case, give one verdict."""

from __future__ import annotations

from rca.judge.llm import Ask, LlmJudge, outcome
from rca.judge.protocol import Judge, Verdict, record
from rca.judge.rules import RulesJudge

__all__ = ["Ask", "Judge", "LlmJudge", "RulesJudge", "Verdict", "outcome", "record"]
