"""The numbers by which causes are scored: scoring.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

FLAT = 0.25
"""Strength below which evidence counts as unmoved."""


@cache
def settings() -> dict[str, Any]:
    """The numbers of scoring.toml."""
    return tomllib.loads(files("rca").joinpath("scoring.toml").read_text(encoding="utf-8"))
