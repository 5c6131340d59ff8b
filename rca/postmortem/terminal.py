"""postmortem.md as a terminal shows it best: no anchors, no folded queries, tables in columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

_FENCE = re.compile(r"(`{3,})(\w*)$")
_ANCHOR = re.compile(r'<a id="[a-z0-9]+"></a>')
_TO_ROW = re.compile(r"\[([A-Z][0-9]+)\]\(#[a-z0-9]+\)")
_FILE = re.compile(r"\[(`+[^`]+`+)\]\([^)\s]+\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_RULE = re.compile(r"\|(:?-+:?\|)+$")
_WIDEST = 60


def plain(text: str) -> str:
    """The document for reading in a terminal; what people wrote stays, their marks go."""
    shown: list[str] = []
    for is_table, group in groupby(_lines(text), lambda line: line.startswith("|")):
        lines = list(group)
        shown += _columns(lines) if is_table else lines
    return re.sub(r"\n{3,}", "\n\n", "\n".join(shown)).strip() + "\n"


def _lines(text: str) -> Iterator[str]:
    """The lines that stay, links as their words; blocks of code as they are, but no diagram."""
    fence, drawn, folded = "", False, False
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if not drawn and not folded:
                yield line
            fence = "" if line == fence else fence
            continue
        if mark:
            fence, drawn = mark[1], mark[2] == "mermaid"
            if not drawn and not folded:
                yield line
        elif line == "<details>" or folded:
            folded = line != "</details>"
        elif not line.startswith(("<!-- people:", "<!-- /people")):
            yield _words(line)


def _words(line: str) -> str:
    line = _PICTURE.sub(r"\1: see \2", line)
    return _FILE.sub(r"\1", _TO_ROW.sub(r"\1", _ANCHOR.sub("", line)))


def _columns(lines: list[str]) -> list[str]:
    """A table with its columns under each other; cells that are very long keep their length."""
    rows = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [bool(_RULE.match(line.replace(" ", ""))) for line in lines]
    told = [row for row, rule in zip(rows, rules, strict=True) if not rule]
    count = max(map(len, rows))
    widths = [
        min(max((len(r[i]) for r in told if i < len(r)), default=0), _WIDEST)
        for i in range(count)
    ]
    return [
        "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        if rule
        else (
            "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=False)) + " |"
        ).rstrip()
        for row, rule in zip(rows, rules, strict=True)
    ]
