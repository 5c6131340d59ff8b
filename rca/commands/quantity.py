"""Amounts that people type: '20s', '500MB'."""

from __future__ import annotations

import re

from rca.errors import RcaError

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_seconds(text: str, option: str) -> float:
    """Seconds of '20', '20s', '500ms', '2m' or '1h'.

    Raises:
        RcaError: Not of that form.
    """
    return _parse(text, _SECONDS, option, "20s, 2m")


def parse_bytes(text: str, option: str) -> int:
    """Bytes of '500MB', '2GiB' or '1000'.

    Raises:
        RcaError: Not of that form.
    """
    return int(_parse(text, _BYTES, option, "500MB, 2GiB"))


def _parse(
    text: str, units: dict[str, float] | dict[str, int], option: str, examples: str
) -> float:
    form = _FORM.fullmatch(text)
    if form is None or form.group(2).lower() not in units:
        raise RcaError(
            f"{text!r} is no amount for {option}", hint=f"write for example {examples}"
        )
    return float(form.group(1)) * units[form.group(2).lower()]
