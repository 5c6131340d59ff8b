"""truth.toml: the answer that a made incident carries beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_truth(path: Path, fields: Mapping[str, object]) -> None:
    """Write the fields; values are numbers, text without quotes, or lists of these."""
    path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in fields.items()))


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
