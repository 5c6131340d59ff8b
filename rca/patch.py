"""Settings inside configuration files: found, changed, and shown as a unified diff."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

_ASSIGNMENT = re.compile(
    r"(?:--)?([A-Za-z][\w.-]*)\s*(?:=|:|\s)\s*(\"[^\"]*\"|'[^']*'|[^\s,;]+)"
)


@dataclass(frozen=True)
class Setting:
    """A setting as it is written: `written` keeps dashes and case."""

    key: str
    written: str
    value: str


def normalise(key: str) -> str:
    """A key as `config.key` has it: lower case, '-' as '_', no leading dashes."""
    return key.lstrip("-").replace("-", "_").lower()


def settings_in(text: str | None) -> list[Setting]:
    """Settings in a change's text, such as '--max-num-seqs 14' or 'lb_policy: least_request'."""
    found = _ASSIGNMENT.findall(text or "")
    return [Setting(normalise(k), k, v.strip("\"'")) for k, v in found]


def replaced(text: str, key: str, old: str | None, new: str) -> str | None:
    """The text with the one place of `key` set to `new`, None when there is no such place.

    Knows '--key=value', '--key value', '"--key", "value"', 'key: value' and 'KEY=value', and the
    pair 'name: KEY' / 'value: ...' of Kubernetes' environment lists. With `old`, only a place that
    holds it is changed.
    """
    name = re.escape(key).replace("_", "[-_]")
    value = re.escape(old) if old is not None else r"[^\s\"',\]}]+"
    shapes = (
        rf"(?P<head>--{name}(?:=|\s+|[\"']?\s*,\s*[\"']?|[\"']?\n\s*-\s*[\"']?))(?P<value>{value})(?![\w.])",
        rf"(?P<head>\bname:\s*[\"']?{name}[\"']?\s*\n\s*value:\s*[\"']?)(?P<value>{value})(?![\w.])",
        rf"(?P<head>(?:^|[\s{{,-]){name}[\"']?\s*[:=]\s*[\"']?)(?P<value>{value})(?![\w.])",
    )
    for shape in shapes:
        places = list(re.finditer(shape, text, re.IGNORECASE | re.MULTILINE))
        if len(places) == 1:
            at = places[0]
            return text[: at.start("value")] + new + text[at.end("value") :]
    return None


def diff(path: str, before: str, after: str) -> str:
    """A unified diff that `patch -p1` applies."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
    )
    ended = (x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)
    return "".join(ended)


def safe_path(path: str) -> bool:
    """Whether the path may stand in a patch: relative, inside, of plain characters."""
    return bool(re.fullmatch(r"[\w][\w.@/-]*", path)) and ".." not in path.split("/")
