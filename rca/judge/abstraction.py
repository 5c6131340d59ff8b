"""Strings of a bundle as typed facts: known settings, plain values, words of a fixed vocabulary.

What cannot be told that way becomes a placeholder. A sentence cannot pass: of a text only the
set of known technical words in it is kept, in alphabetical order.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from rca.judge.redaction import Masker
from rca.patch import settings_in

_NUMBER = re.compile(r"-?\d{1,9}(\.\d{1,9})?(%|ms|us|s|m|h|Ki|Mi|Gi|k|M|G|GB|MB|GiB|MiB)?")
_VERSION = re.compile(r"(?:[\w./-]*[:@])?(v?\d{1,3}(?:\.\d{1,4}){1,2})")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MOST_WORDS = 8
_MOST_SETTINGS = 6


@cache
def vocabulary() -> dict[str, frozenset[str]]:
    """The lists of vocabulary.toml as sets."""
    text = files("rca").joinpath("judge", "vocabulary.toml").read_text(encoding="utf-8")
    return {name: frozenset(values) for name, values in tomllib.loads(text).items()}


def words(text: str) -> list[str]:
    """The known technical words in a text, sorted, each once."""
    found = {w.lower() for w in _WORD.findall(text[:2000])}
    return sorted(found & vocabulary()["words"])[:_MOST_WORDS]


def one_of(text: str | None, name: str) -> str:
    """The text when the vocabulary's list has it, else 'other'."""
    return text if text in vocabulary()[name] else "other"


def plain_value(text: str) -> str | None:
    """A number, a switch or a version as it may be sent; None for anything else."""
    value = text.strip()
    if value.lower() in vocabulary()["values"] or _NUMBER.fullmatch(value):
        return value
    version = _VERSION.fullmatch(value)
    return f"version {version.group(1)}" if version else None


def setting(key: str, before: str | None, after: str | None, masker: Masker) -> dict[str, Any]:
    """One setting that changed: name and values where they are known and plain, else placeholders."""
    known = key in vocabulary()["settings"]
    row: dict[str, Any] = {"setting": key if known else masker.mask("setting", key)}
    for side, value in (("before", before), ("after", after)):
        if value is not None:
            plain = plain_value(value) if known else None
            row[side] = masker.mask("value", value) if plain is None else plain
    numbers = [_number(v) for v in (before, after)]
    if not known and None not in numbers and numbers[0] != numbers[1]:
        row["moved"] = "raised" if numbers[1] > numbers[0] else "lowered"  # type: ignore[operator]
    return row


def changed_settings(
    before: str | None, after: str | None, masker: Masker
) -> list[dict[str, Any]]:
    """The settings that a change's two texts differ in."""
    old = {s.key: s.value for s in settings_in(before)}
    new = {s.key: s.value for s in settings_in(after)}
    keys = [k for k in dict.fromkeys([*old, *new]) if old.get(k) != new.get(k)]
    return [setting(k, old.get(k), new.get(k), masker) for k in keys[:_MOST_SETTINGS]]


def target(subject: str, masker: Masker) -> str:
    """What was changed: the kind of workload, and a placeholder for its name."""
    kind, slash, name = subject.partition("/")
    if slash and kind.lower() in vocabulary()["workloads"]:
        return f"{kind.lower()} {masker.mask('service', name)}"
    return masker.mask("service", subject)


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"-?\d{1,12}(\.\d{1,9})?", text) else None
