"""Settings in the text of a change, and unified diffs that `patch -p1` applies."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

_ASSIGNMENT = re.compile(
    r"(?:--)?([A-Za-z][\w.-]*)\s*(?:=|:|\s)\s*(\"[^\"]*\"|'[^']*'|(?!--)[^\s,;]+)"
)
_SWITCH = re.compile(r"--([A-Za-z][\w-]*)(?=\s+--|\s*$)")


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
    """Settings in a change's text, such as '--max-num-seqs 14' or 'lb_policy: least_request'.

    A flag alone is 'true'.
    """
    found = _ASSIGNMENT.findall(text or "")
    found += [(name, "true") for name in _SWITCH.findall(text or "")]
    return [Setting(normalise(k), k, v.strip("\"'")) for k, v in found]


def diff(path: str, before: str, after: str) -> str:
    """A unified diff that `patch -p1` applies; line ends are kept as they are."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{path}", f"b/{path}")
    ended = (x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)
    return "".join(ended)


def _lines(text: str) -> list[str]:
    """Lines as `patch` counts them: by line feeds alone."""
    parts = text.split("\n")
    return [f"{p}\n" for p in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def safe_path(path: str) -> bool:
    """Whether the path may stand in a patch: relative, inside, of plain characters."""
    return bool(re.fullmatch(r"[\w][\w.@/-]*", path)) and ".." not in path.split("/")
