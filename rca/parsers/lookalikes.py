"""What a file is that no format knows: the reason, and the nearest format that is read."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rca.parsers.format import Head
from rca.parsers.json_text import first, mapping, sketch
from rca.parsers.text_lines import full_lines

_ANY = "see docs/formats.md for what is read"
_FIRST_LINES, _LINE_CHARS = 40, 2_000
_BLOCK = "a block is read through its meta.json"


class Reason(NamedTuple):
    """Why a file is not read, and what to do next."""

    problem: str
    hint: str


_MAGIC = (
    (b"\x85\xbd\x40\xdd", Reason("is a chunk file of a Prometheus TSDB block", _BLOCK)),
    (b"\xba\xaa\xd7\x00", Reason("is the index of a Prometheus TSDB block", _BLOCK)),
    (b"\x01\x30\xba\x30", Reason("is the tombstones file of a Prometheus TSDB block", _BLOCK)),
    (b"PAR1", Reason("is a Parquet file", "export JSON or text instead")),
    (b"\x7fELF", Reason("is a program", _ANY)),
    (b"\x89PNG", Reason("is a picture", _ANY)),
    (b"%PDF", Reason("is a PDF", _ANY)),
)  # fmt: skip
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*(?:[\[{\"\d\]-]|null|true|false))")
_BOOT_TIME = re.compile(rb"\s*\[ *\d+\.\d{6}\] ")
_TEXTS = (
    (re.compile(rb"\s*$"), Reason("is empty", "check how it was exported")),
    (re.compile(rb"[^\0]*\0"), Reason("is binary, of a format that is not known", _ANY)),
    (
        re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE),
        Reason("is a web page, perhaps a login page instead of the export", _ANY),
    ),
    (
        re.compile(
            rb"\s*(?:export\s+(?:default|const)|import\s+[\w{*]|const\s+\w+\s*="
            rb"|module\.exports|#!/|from\s+\w+\s+import|package\s+\w+)"
        ),
        Reason("is source code, not JSON", "export the data itself"),
    ),
)


class _Rules(NamedTuple):
    """Rules of lookalikes.toml."""

    records: list[dict[str, Any]]
    lines: list[tuple[re.Pattern[str], bool, Reason]]


@cache
def _rules() -> _Rules:
    told = tomllib.loads(files("rca.parsers").joinpath("lookalikes.toml").read_text())
    lines = [
        (
            re.compile(rule["pattern"]),
            rule.get("assigns", False),
            Reason(rule["problem"], rule["hint"]),
        )
        for rule in told["text"]
    ]
    return _Rules(told["json"], lines)


def of_lines(head: Head, *, assigns: bool = False) -> Reason | None:
    """What a text is by its first lines; None when nothing shows.

    Args:
        head: Of the file.
        assigns: Look only for what would be taken for settings.
    """
    lines = [line for line in full_lines(head)[:_FIRST_LINES] if line.strip()]
    for pattern, is_assigning, reason in _rules().lines:
        if assigns and not is_assigning:
            continue
        if any(pattern.match(line[:_LINE_CHARS]) for line in lines):
            return reason
    return None


def explain(head: Head) -> Reason:
    """Why no format knows a file."""
    data = head.data
    magic = next((reason for start, reason in _MAGIC if data.startswith(start)), None)
    if magic is not None:
        return magic
    if _JSON.match(data) and not _BOOT_TIME.match(data):
        return _of_json(sketch(head).value)
    for pattern, reason in _TEXTS:
        if pattern.match(data):
            return reason
    return of_lines(head) or Reason(
        "is text without log lines, samples or settings in it", _ANY
    )


def _of_json(value: Any) -> Reason:
    if value is None:
        return Reason("begins like JSON but is damaged from the start", "export it again")
    record = mapping(first(value) if isinstance(value, list) else value)
    if isinstance(value, list) and not value:
        return Reason("is an empty JSON list", "check how it was exported")
    for rule in _rules().records:
        if record.keys() >= set(rule["all"]) and record.keys() & set(rule.get("any", record)):
            return Reason(rule["problem"], rule["hint"])
    shown = ", ".join(sorted(repr(str(k)[:30]) for k in record)[:6])
    return Reason(f"is JSON of a kind that is not known, with the keys {shown or 'none'}", _ANY)
