"""Points in time, read exactly from the ways people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9})\d*)?)?"
    r"\s*(Z|z|UTC|[+-]\d\d:?\d\d)?"
)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
MAX_NS = 2**63 - 1
_MOST_DIGITS = 19
_DIGITS_OF_UNIT = ((11, 10**9), (14, 10**6), (17, 10**3))


def iso_ns(text: str) -> int | None:
    """An ISO 8601 time in ns since the Unix epoch, UTC when it names no zone; None if it is none."""
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    *parts, second, fraction, zone = found.groups()
    year, month, day, hour, minute = (int(p) for p in parts)
    try:
        moment = datetime(year, month, day, hour, minute, int(second or 0), tzinfo=_zone(zone))
    except ValueError:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    whole_s = since.days * 86_400 + since.seconds
    return _in_range(whole_s * 10**9 + int((fraction or "").ljust(9, "0")))


def _in_range(ns: int) -> int | None:
    return ns if -MAX_NS <= ns <= MAX_NS else None


def _zone(text: str | None) -> timezone:
    if not text or text[0] not in "+-":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def epoch_ns(text: str) -> int | None:
    """A number in ns since the Unix epoch; s, ms, us or ns are told by its size; None if it is none."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    digits = number.adjusted() + 1
    if digits > _MOST_DIGITS:
        return None
    factor = next((f for limit, f in _DIGITS_OF_UNIT if digits <= limit), 1)
    return _in_range(int(number * factor))


def point_ns(text: str) -> int | None:
    """An ISO 8601 time or an epoch number, in ns since the Unix epoch; None if it is neither."""
    return iso_ns(text) if "-" in text[1:] and ":" in text else epoch_ns(text)
