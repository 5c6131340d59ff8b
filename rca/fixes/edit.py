"""Settings in configuration files: set, added or taken out, each edit checked by reading again.

An edit is a small change of the text at a place that looks right. It counts only when the file,
read again by the parser that read it first, says exactly what it said before but for that one
setting. So comments, anchors, other documents and other containers stay as they are, and where
nothing can be edited so, there is no edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rca.errors import ParseError
from rca.parsers import config_text, config_yaml, triton_config
from rca.parsers.config_rows import ConfigRows
from rca.patch import normalise

SAFE_VALUE = re.compile(r"[A-Za-z0-9_.:/+,@%=-]{1,200}")
"""Values that mean the same in YAML, in a shell and in protobuf text; no other is written."""
_MOST_EDITS = 400
_NOTES = r"(?:[ \t]*#[^\n]*\n)*[ \t]*"
_SEPARATORS = (
    r"[\"']?[ \t]*[=:]?[ \t]*",  # --key=value, --key value, key: value, "key": value
    r"[\"']?[ \t]*,[ \t]*(?:\r?\n[ \t]*)?",  # ["--key", "value"]
    rf"[\"']?[ \t]*(?:#[^\n]*)?\r?\n{_NOTES}-[ \t]+",  # two items of a list
    r"[ \t]*:?[ \t]*\\?\r?\n[ \t]*",  # on the next line
    rf"[\"']?[ \t]*(?:#[^\n]*)?\r?\n{_NOTES}value:[ \t]*",  # - name: KEY, and its value below
    r"[\"']?[ \t]*,[ \t]*[\"']?value[\"']?[ \t]*:[ \t]*",  # {name: KEY, value: x}
    r"[\"']?\s*value[ \t]*:?\s*\{\s*string_value[ \t]*:[ \t]*",  # a parameter of Triton
)
_TAG = r"(?:[&!][\w!]+[ \t]+)?"
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',\]};#\\]+)"


class Row(NamedTuple):
    """One setting as the parser reads it; `key` is normalised."""

    subject: str
    key: str
    value: str | None


def settings(text: str, form: str, path: str) -> list[Row] | None:
    """What a configuration file says, in its own order; None when it cannot be read.

    Args:
        form: Name of the format as `source.format` has it.
    """
    rows = ConfigRows()
    name, bare = Path(path), text.lstrip("\ufeff")
    try:
        if form == "config_yaml":
            config_yaml.add_documents(config_yaml.parse(bare, name), name, rows)
        elif form == "config_text":
            rows.add_all(config_yaml.subject_of(name), config_text.settings(bare))
        elif form == "triton_config":
            rows.add_all("", triton_config.settings(bare))
        else:
            return None
    except ParseError:
        return None
    return [Row(s, normalise(k), v) for s, k, v, _ in rows.rows]


def edited(text: str, form: str, path: str, place: Row, value: str | None) -> str | None:
    """The text with one setting changed and nothing else; None when that cannot be done surely.

    Args:
        place: The setting as it is: its value None adds it to the subject, an empty subject means
            the only one that has the key.
        value: What it is to be; None takes it out.
    """
    if value is not None and not SAFE_VALUE.fullmatch(value):
        return None
    before = settings(text, form, path)
    if before is None:
        return None
    found = [i for i, r in enumerate(before) if r.key == place.key and _concerns(place, r)]
    if place.value is None:
        return _first_added(text, form, path, before, place, value) if not found else None
    if len(found) != 1 or not same(before[found[0]].value, place.value):
        return None
    row = before[found[0]]
    wanted = [
        *before[: found[0]],
        *([] if value is None else [row._replace(value=value)]),
        *before[found[0] + 1 :],
    ]
    edits = _removals(text, row.key) if value is None else _replacements(text, row.key, value)
    return _first_equal(edits, form, path, wanted)


def same(one: str | None, other: str | None) -> bool:
    """Whether two values mean the same: as text, or as numbers."""
    if one is None or other is None:
        return one is other
    plain = [v.strip().strip("'\"") for v in (one, other)]
    if plain[0].lower() == plain[1].lower():
        return True
    try:
        return float(plain[0]) == float(plain[1])
    except ValueError:
        return False


def _concerns(place: Row, row: Row) -> bool:
    """Whether a row speaks of the place's subject: by its whole name, whatever its kind is called."""
    if not place.subject or not row.subject:
        return True
    names = {s.lower().split("/", 1)[-1] for s in (place.subject, row.subject)}
    return len(names) == 1


def _first_equal(edits: Iterator[str], form: str, path: str, wanted: list[Row]) -> str | None:
    for number, edit in enumerate(edits):
        if number >= _MOST_EDITS:
            return None
        after = settings(edit, form, path)
        if after is not None and _equal(after, wanted):
            return edit
    return None


def _equal(after: list[Row], wanted: list[Row]) -> bool:
    return len(after) == len(wanted) and all(
        a[:2] == w[:2] and (a.value == w.value or same(a.value, w.value))
        for a, w in zip(after, wanted, strict=True)
    )


def _first_added(
    text: str, form: str, path: str, before: list[Row], place: Row, value: str | None
) -> str | None:
    if value is None:
        return None
    for number, edit in enumerate(_additions(text, place.key, value)):
        if number >= _MOST_EDITS:
            return None
        after = settings(edit, form, path)
        new = [i for i, r in enumerate(after or []) if r.key == place.key]
        if (
            after
            and len(new) == 1
            and _concerns(place, after[new[0]])
            and same(after[new[0]].value, value)
            and _equal([*after[: new[0]], *after[new[0] + 1 :]], before)
        ):
            return edit
    return None


def _named(key: str) -> str:
    """The key as it may be written: its last part, with '-' or '_', or in camel case."""
    return re.escape(key.rsplit(".", 1)[-1]).replace("_", "[-_]?")


def _places(text: str, key: str) -> Iterator[re.Match[str]]:
    for separator in _SEPARATORS:
        shape = rf"(?<![\w.-])-{{0,2}}{_named(key)}(?![\w-]){separator}{_TAG}{_VALUE}"
        yield from re.finditer(shape, text, re.IGNORECASE)


def _replacements(text: str, key: str, value: str) -> Iterator[str]:
    """The text with the value of each place that looks like the key's replaced."""
    for at in _places(text, key):
        start, end, old = at.start("value"), at.end("value"), at["value"]
        quote = old[0] if old[0] in "\"'" else ""
        for written in dict.fromkeys((f"{quote}{value}{quote}", f'"{value}"', value)):
            yield text[:start] + written + text[end:]
    # A value may stand before its name, as in {value: "64", name: KEY}.
    before = rf"value:[ \t]*{_VALUE}[ \t,]*\r?\n?[ \t]*name:[ \t]*[\"']?{_named(key)}(?![\w-])"
    for at in re.finditer(before, text, re.IGNORECASE):
        quote = at["value"][0] if at["value"][0] in "\"'" else ""
        yield text[: at.start("value")] + f"{quote}{value}{quote}" + text[at.end("value") :]


def _removals(text: str, key: str) -> Iterator[str]:
    """The text without each place that looks like the key's: its lines, else its words."""
    for at in re.finditer(rf"(?<![\w.-])-{{0,2}}{_named(key)}(?![\w-])", text, re.IGNORECASE):
        start = text.rfind("\n", 0, at.start()) + 1
        for lines in (1, 2):
            end = start
            for _ in range(lines):
                end = text.find("\n", end) + 1 or len(text)
            yield text[:start] + text[end:]
        words = rf"[\"']?-{{0,2}}{_named(key)}(?:=[^\s,\"'\]]+)?[\"']?(?:[ \t]*,)?[ \t]*"
        word = re.compile(words, re.IGNORECASE).match(text, at.start())
        quoted = re.compile(words, re.IGNORECASE).match(text, max(at.start() - 1, 0))
        valued = re.compile(
            rf"-{{0,2}}{_named(key)}{_SEPARATORS[0]}{_VALUE}[ \t]*", re.IGNORECASE
        ).match(text, at.start())
        for found in (quoted, word, valued):
            if found:
                yield text[: found.start()] + text[found.end() :]
        if word:  # the last word of a line takes the blank before it along
            yield text[: at.start()].rstrip(" ") + text[word.end() :]
            comma = re.sub(r",[ \t]*[\"']?$", "", text[: at.start()])
            yield comma + text[word.end() :]


_ITEM = re.compile(r"(?m)^(?P<dash>[ \t]*-[ \t]+)(?P<quote>[\"']?)--\w[^\r\n]*(?P<end>\r?\n|$)")
_WORD = re.compile(r"(?<=[\s\[\"',])(?P<quote>[\"']?)--\w")
_ENTRY = re.compile(
    r"(?m)^(?P<head>[ \t]*(?:-[ \t]+)?(?:export[ \t]+)?)(?P<quote>[\"']?)[A-Za-z][\w.-]*[\"']?"
    r"(?P<sign>[ \t]*=|:[ \t]+)[^\r\n]*(?P<end>\r?\n|$)"
)
_PAIR = re.compile(r"(?m)^(?P<dash>[ \t]*-[ \t]+)name:[^\r\n]*(?P<end>\r?\n)[ \t]+value:")


def _additions(text: str, key: str, value: str) -> Iterator[str]:
    """The text with the setting beside each that is of its kind: flags by flags, names by names."""
    name = key.rsplit(".", 1)[-1]
    flag = f"--{name.replace('_', '-')}={value}"
    for at in _ITEM.finditer(text):
        line = f"{at['dash']}{at['quote']}{flag}{at['quote']}{at['end'] or chr(10)}"
        yield text[: at.start()] + line + text[at.start() :]
    for at in _WORD.finditer(text):
        quote = at["quote"]
        word = f"{quote}{flag}{quote}, " if quote else f"{flag} "
        yield text[: at.start()] + word + text[at.start() :]
    for at in _PAIR.finditer(text):
        inner = " " * len(at["dash"])
        pair = f'{at["dash"]}name: {name.upper()}{at["end"]}{inner}value: "{value}"{at["end"]}'
        yield text[: at.start()] + pair + text[at.start() :]
    for at in _ENTRY.finditer(text):
        for spelled in dict.fromkeys((name, name.upper(), name.replace("_", "-"))):
            line = f"{at['head']}{spelled}{at['sign']}{value}{at['end'] or chr(10)}"
            yield text[: at.start()] + line + text[at.start() :]
