"""Numbers in a sentence, and whether a row of evidence has them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rca.judge.redaction import KINDS

_NUMBER = re.compile(
    r"(?P<sign>[-+−])?(?P<digits>\d+(?:[,_']\d{3})+(?:\.\d+)?|\d*\.\d+|\d+)(?:[eE](?P<power>[-+]?\d{1,3}))?"
    r"(?P<unit>\s?%|\s?per ?cent|\s?(?:ns|us|µs|ms|min|[skKMGBx×h])(?:i?B)?(?![A-Za-z]))?"
)
_NOT_QUANTITIES = re.compile(
    rf"\b(?:E\d{{1,6}}|[pP]\d{{2,3}}|(?:{'|'.join(KINDS)})-\d{{1,6}})\b"
)
_SPELLED = re.compile(
    r"\b(?:eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    r"|hundreds?|thousands?|millions?|billions?|\w*fold|doubl\w+|tripl\w+|quadrupl\w+|halv\w+|half|twice|thrice"
    r"|per ?cent|(?:two|three|four|five|six|seven|eight|nine|ten) times)\b",
    re.IGNORECASE,
)
_FACTORS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "B": 1.0,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "x": 1.0, "×": 1.0,
}  # fmt: skip
_MOST_OFF = 0.05


class Quoted(NamedTuple):
    """A number as it is written: value, half a unit of its last digit, factor of its unit."""

    text: str
    value: float
    half_digit: float
    factor: float


def quoted(sentence: str) -> Iterator[Quoted]:
    """The quantities in a sentence; ids, percentiles and masked names are none."""
    for found in _NUMBER.finditer(_NOT_QUANTITIES.sub(" ", sentence)):
        digits = re.sub(r"[,_']", "", found["digits"])
        power = int(found["power"] or 0)
        decimals = len(digits.partition(".")[2])
        unit = (found["unit"] or "").strip()
        factor = 0.01 if unit in {"%", "percent", "per cent"} else _FACTORS.get(unit, 1.0)
        sign = -1.0 if found["sign"] in {"-", "−"} else 1.0
        scale = 10.0 ** max(min(power, 300), -300)
        yield Quoted(
            found.group().strip(), sign * float(digits) * scale, 0.5 * 10.0**-decimals * scale, factor
        )  # fmt: skip


def spelled(sentence: str) -> str | None:
    """A number that is written as a word, which no row can be held against; None without one."""
    without = re.sub(r"\d\s?per ?cent", "", sentence, flags=re.IGNORECASE)
    found = _SPELLED.search(without)
    return found.group() if found else None


def stand_in(shown: dict[str, Any]) -> list[float]:
    """The values that may be quoted from a row: those shown, their difference and relative change."""
    values = list(
        _values({k: v for k, v in shown.items() if k not in {"id", "meaning", "words"}})
    )
    before, after = shown.get("reference"), shown.get("observed")
    if before is not None and after is not None:
        values.append(after - before)
        if before:
            values.append((after - before) / abs(before))
    if shown.get("unit") == "ns":
        values += [v * 1e-9 for v in values]
    return values


def unfounded(sentence: str, values: Iterable[float]) -> str | None:
    """The first number in a sentence that is none of the values; None when all are."""
    allowed = list(values)
    for number in quoted(sentence):
        if not any(_same(number, v) for v in allowed):
            return number.text
    return spelled(sentence)


def _same(number: Quoted, value: float) -> bool:
    """Whether the number is the value as rounded to its last digit, bare or in its unit."""
    for factor in {1.0, number.factor}:
        said, half = number.value * factor, number.half_digit * factor
        near = max(1e-9, min(half * 1.0001, _MOST_OFF * abs(value)))
        signs = (value,) if number.value < 0 or value >= 0 else (value, abs(value))
        if any(math.isfinite(said) and abs(said - v) <= near for v in signs):
            return True
    return False


def _values(value: Any) -> Iterator[float]:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, str):
        for number in quoted(value):
            yield number.value
            if number.factor != 1.0:
                yield number.value * number.factor
    elif isinstance(value, dict):
        for part in value.values():
            yield from _values(part)
    elif isinstance(value, list):
        for part in value:
            yield from _values(part)
