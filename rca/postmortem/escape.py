"""Text that stays text in Markdown.

GitHub's Markdown turns many things into links, images, mentions, formulas or HTML. Words that hold
any character with a meaning are shown as code, where nothing has one; all other words pass.
"""

from __future__ import annotations

import re

from rca.plain import printable

_LIMIT = 2_000
_PLAIN = re.compile(r"[^\W_]|[.,;:()/+=%'\"’–—−-]|[→×±≥≤≈…·°µ?!]")
_LINK = re.compile(r"//|www\.|:(?:\w*[a-z_]\w*|100|1234):|^(?:GH-|\w+/\w+#)", re.IGNORECASE)
_INTERVAL = re.compile(r"\[[0-9.,–∞-]+\](?=[).,;]*$)")
_INNER_UNDERSCORE = re.compile(r"(?<=[^\W_])_(?=[^\W_])")
_BLOCK_START = re.compile(r"(?:[-+=]+|[0-9]+[.)])$")


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def prose(value: object) -> Markdown:
    """Any value inside running text."""
    return value if isinstance(value, Markdown) else Markdown(_words(value, in_table=False))


def cell(value: object) -> Markdown:
    """Any value inside a cell of a table; nothing becomes an en dash."""
    if isinstance(value, Markdown):
        return value
    return Markdown(_words("–" if value in {None, ""} else value, in_table=True))


def code(value: object, *, in_table: bool = False) -> Markdown:
    """A name as code, on one line."""
    return Markdown(_span(printable(value, _LIMIT), in_table=in_table))


def fence(value: object, language: str = "sql") -> Markdown:
    """A block of code; lines stay, everything else invisible is written out."""
    lines = [printable(line, 4_000) for line in str(value).replace("\t", "    ").splitlines()]
    body = "\n".join(lines)
    mark = "`" * max(3, _longest_run(body) + 1)
    return Markdown(f"{mark}{language}\n{body}\n{mark}")


def _words(value: object, *, in_table: bool) -> str:
    words = printable(value, _LIMIT).split(" ")
    shown = [word if _is_plain(word) else _span(word, in_table=in_table) for word in words]
    if shown and _BLOCK_START.match(shown[0]):
        shown[0] = shown[0][:-1] + "\\" + shown[0][-1]
    return " ".join(shown)


def _is_plain(word: str) -> bool:
    bare = _INTERVAL.sub("", _INNER_UNDERSCORE.sub("", word))
    return not _LINK.search(word) and len(_PLAIN.findall(bare)) == len(bare)


def _span(text: str, *, in_table: bool) -> str:
    if not text.strip():
        return "` `" if text else ""
    if in_table:
        # A pipe ends a cell even in code; `\|` is read as a pipe, `\\|` is not.
        text = re.sub(r"\\+\|", lambda m: m[0][:-1] + "¦", text).replace("|", "\\|")
    mark = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{mark}{pad}{text}{pad}{mark}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
