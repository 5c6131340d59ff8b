"""The configuration of a model in Triton: config.pbtxt, protobuf in its text form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rca.errors import ParseError
from rca.parsers.config_rows import ConfigRows
from rca.parsers.format import Format, Head, Sink
from rca.parsers.stream import read_all

_OPEN, _SHUT, _SKIPPED = "{", "}", ":,;[]"
_LIMIT_BYTES = 4_000_000
_TOKEN = re.compile(
    r'#[^\n]*|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\]:,;]|[^\s{}\[\]:,;"\'#]+'
)
_HEAD = re.compile(
    r"(?m)^\s*(max_batch_size\s*:\s*\d+|backend\s*:\s*\"|platform\s*:\s*\"|instance_group\s*\[?)"
)


def settings(text: str) -> Iterator[tuple[str, str]]:  # noqa: C901, PLR0912 - one pass over tokens
    """Keys, joined by dots, with their values; entries of a list are told apart by their number.

    `parameters { key: "k" value: { string_value: "v" } }` is one setting, parameters.k.
    """
    stack: list[tuple[str, str]] = []  # field names, as written and as shown
    seen: dict[str, int] = {}
    name, parameter, ended = "", "", False
    listed: list[str] | None = None  # the plain values of a list that is open
    for piece in _TOKEN.findall(text):
        if piece == "[":
            listed = []
        elif piece == "]" and listed is not None:
            if listed and name:
                yield ".".join([*(shown for _, shown in stack), name]), ",".join(listed)
                name = ""
            listed = None
        if piece[0] == "#" or piece in _SKIPPED:
            continue
        if piece == _OPEN:
            stack.append((name, _numbered(name, stack, seen)))
            name, listed = "", None
        elif piece == _SHUT:
            name = (
                stack.pop()[0] if stack else ""
            )  # a further entry of the same list may follow
            ended = True
            continue
        elif listed is not None and name:
            listed.append(piece.strip("\"'"))
        elif not name or ended:
            name = piece
        else:
            value = piece[1:-1] if piece[0] in "\"'" else piece
            if stack and stack[0][0] == "parameters" and name == "key":
                parameter = value
            elif stack and stack[0][0] == "parameters" and name.endswith("_value"):
                yield f"parameters.{parameter}", value
            else:
                yield ".".join([*(shown for _, shown in stack), name]), value
            name = ""
        ended = False


def _numbered(name: str, stack: list[tuple[str, str]], seen: dict[str, int]) -> str:
    """The name of a message; from the second of its kind on, with its number."""
    path = ".".join([*(shown for _, shown in stack), name])
    seen[path] = seen.get(path, -1) + 1
    return f"{name}.{seen[path]}" if seen[path] else name


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, _LIMIT_BYTES)
    if damage:
        sink.note("warning", "truncated", damage, lost=True)
    found = list(settings(data.decode("utf-8-sig", "replace")))
    name = next((value for key, value in found if key == "name"), path.name.split(".")[0])
    rows = ConfigRows()
    rows.add_all(f"model/{name}", found)
    if not rows.rows:
        raise ParseError("no setting in it can be read", path=str(path))
    sink.count_elements(len(rows.rows))
    rows.write(sink)


def _recognise(head: Head) -> bool:
    text = head.data.decode("utf-8", "replace")
    return (
        "\0" not in text
        and bool(_HEAD.search(text))
        and "{" in text
        and text.lstrip()[:1] not in "{["
    )


FORMAT = Format("triton_config", "config", _recognise, _read)
