"""Text for people: safe strings, times in UTC, numbers with their units.

Names in a recording are data. They may hold escape codes, line breaks, or characters that turn
the reading direction; whatever is shown passes through `printable` first.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
_STEPS_NS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"))
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "seconds": 1.0}
_SHARES = {"share", "fraction", "0..1"}
_BARE = {"", "1", "count", "requests", "number", "ratio", "as exported", "event"}
_SINCE_1970 = "unix s"
_ACRONYMS = {"cfs", "cpu", "cuda", "dram", "gc", "gemm", "gpu", "itl", "kv", "lora", "sm", "tcp", "ttft"}  # fmt: skip


def printable(text: object, limit: int = 160) -> str:
    """The text with everything invisible written out, cut to `limit` characters.

    Control, format and direction characters become `\\x07`-like escapes; a cut is shown by `…`.
    """
    raw = str(text)
    if len(raw) <= limit and raw.isascii() and raw.isprintable():
        return raw
    shown = "".join(_visible(c) for c in raw[: limit + 1])
    return shown if len(shown) <= limit else shown[: max(limit - 1, 0)] + "…"


def _visible(char: str) -> str:
    if char.isascii() and char.isprintable():
        return char
    if char in _SHORT:
        return _SHORT[char]
    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def uncapitalised(sentence: str) -> str:
    """A sentence as part of another: its first letter small, unless it starts an acronym."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def role_words(role: str) -> str:
    """The name of a role as it stands in a sentence: `queue_time` as `queue time`, `ttft` as `TTFT`."""
    words = printable(role, 90).split("_")
    return " ".join(word.upper() if word in _ACRONYMS else word for word in words)


def moment(ts_ns: int | None, *, date: bool = True) -> str:
    """A time as `2026-01-31 02:17:15`, UTC, with the date only when asked for."""
    if ts_ns is None:
        return "unknown"
    try:
        at = datetime.fromtimestamp(ts_ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ts_ns} ns"
    return at.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def duration(dur_ns: float | None) -> str:
    """A length of time in the one or two units a person would use."""
    if dur_ns is None or not math.isfinite(dur_ns):
        return "unknown"
    sign, left = ("−" if dur_ns <= -0.5 else ""), abs(dur_ns)
    if left < 60e9:
        return sign + _small_duration(left)
    left = round(left / 1e9) * 1_000_000_000
    parts = []
    for step, unit in _STEPS_NS:
        whole, left = divmod(left, step)
        if whole:
            parts.append(f"{int(whole)} {unit}")
    return sign + " ".join(parts[:2])


def _small_duration(dur_ns: float) -> str:
    for step, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if dur_ns >= step:
            return f"{number(dur_ns / step)} {unit}"
    return f"{number(dur_ns)} ns" if dur_ns >= 0.5 else "0 ns"


def size(n_bytes: float | None) -> str:
    """Bytes with a decimal prefix."""
    if n_bytes is None or not math.isfinite(n_bytes):
        return "unknown"
    value, step = float(n_bytes), 0
    while abs(value) >= 1000 and step < len(_SIZES) - 1:
        value, step = value / 1000, step + 1
    return f"{number(value)} {_SIZES[step]}"


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped, a minus sign, no exponent below 10^15."""
    if value is None or not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    size_of = abs(value)
    if size_of >= 100:
        shown = f"{size_of:,.0f}" if size_of < 1e15 else f"{size_of:.3g}"
    elif size_of >= 1e-4:
        shown = f"{size_of:.3g}"
    else:
        shown = f"{size_of:.{_decimals(size_of)}f}".rstrip("0").rstrip(".")
    return f"−{shown}" if value < 0 and shown != "0" else shown


def _decimals(size_of: float) -> int:
    """Decimals that show three digits of a small number, twelve at most."""
    return min(2 - math.floor(math.log10(size_of)), 12)


def percent(share: float | None) -> str:
    """A share of 0 to 1 in per cent."""
    if share is None or not math.isfinite(share):
        return "unknown"
    return "0 %" if abs(share) < 0.0005 else f"{number(share * 100)} %"


def confidence(value: float) -> str:
    """A probability with two digits; certainty is never claimed, of either kind."""
    if value > 0.99:
        return "over 0.99"
    return "under 0.01" if value < 0.01 else f"{value:.2f}"


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit; times, moments, sizes and shares in the form people read."""
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit in _SECONDS:
        return duration(value * _SECONDS[unit] * 1e9)
    amount, each, of = unit.removesuffix("/s").partition(" per ")
    if amount in {"bytes", "byte", "B"}:
        return size(value) + (each + printable(of, 30) if of else unit[len(amount) :])
    if unit == _SINCE_1970:
        return f"{moment(round(value * 1e9))} UTC"
    if unit in _SHARES or unit in _BARE:
        return percent(value) if unit in _SHARES else number(value)
    per = unit.removeprefix("1") if unit.startswith("1/") else unit
    return f"{number(value)} {printable(per, 30)}"


def factor(effect: float | None, low: float | None = None, high: float | None = None) -> str:
    """A log-ratio as `×5.2 [4.6–5.9]`; empty when there is none."""
    if effect is None or not math.isfinite(effect):
        return ""
    text = f"×{_exp(effect)}"
    return text if low is None or high is None else f"{text} [{_exp(low)}–{_exp(high)}]"


def _exp(log_ratio: float) -> str:
    return number(math.exp(log_ratio)) if abs(log_ratio) < 30 else "∞" if log_ratio > 0 else "0"
