"""Operators of a profiler trace by what they stand for, as op_families.toml knows them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

GEMM = "op_gemm"
"""The role of matrix multiplications, by whose calls those of the others are divided."""


@cache
def roles_by_operator() -> Mapping[str, str]:
    """Role of each operator that has one, for example 'op_sorts'."""
    text = files("rca").joinpath("op_families.toml").read_text(encoding="utf-8")
    return {op: role for role, row in tomllib.loads(text).items() for op in row["ops"]}


def calls_per_gemm(operators: Mapping[str, int]) -> dict[str, float]:
    """Calls of each role for each matrix multiplication, as the profile's roles count them.

    Args:
        operators: name → calls. Empty when no matrix multiplication is among them.
    """
    known = roles_by_operator()
    calls = dict.fromkeys(known.values(), 0)
    for name, count in operators.items():
        if name in known:
            calls[known[name]] += count
    gemms = calls.pop(GEMM)
    return {role: count / gemms for role, count in calls.items()} if gemms else {}
