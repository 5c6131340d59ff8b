"""What `rca eval` prints: a table for each kind of bundle, what was missed, and the ablations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rca.durable import write_whole
from rca.errors import TemplateError
from rca.evaluate.scores import Outcome

BEGIN, END = "<!-- ablations: begin -->", "<!-- ablations: end -->"
"""What stands between these lines of a document is written by `put`."""
_WITH_INTERVAL = ("ac1", "false_alarms")
_FAULT_COLUMNS = {
    "not found": "missed",
    "IoU": "iou",
    "right cause first": "ac1",
    "among three": "ac3",
    "right class": "class",
    "unknown": "unknown",
    "right when >= 0.87": "precision_when_sure",
    "share >= 0.87": "coverage_when_sure",
    "ECE": "ece",
}


def text(found: Mapping[str, Any]) -> str:
    """The scores of `rca.evaluate.evaluate` and the bundles that were answered wrong."""
    lines: list[str] = []
    for kind, row in found["scores"].items():
        lines.append(f"{kind}  n={row['n']}")
        lines += [
            f"  {name:<24} {_value(value)}"
            for name, value in row.items()
            if name != "n" and value is not None
        ]
    lines += _wrong([Outcome(**row) for row in found["outcomes"]])
    return "\n".join(lines)


def ablation_text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The scores of `rca.evaluate.ablate` as Markdown: a table, and what is careful in a sentence."""
    heads = ["recordings", "faults", *_FAULT_COLUMNS, "healthy", "false alarms"]
    rows = [
        [name, *_fault_cells(kinds["fault"]), *_healthy_cells(kinds.get("healthy"))]
        for name, kinds in found.items()
        if "fault" in kinds
    ]
    table = [_line(row) for row in [heads, ["---"] * len(heads), *rows]]
    left_out = [
        f"With {name}, {row['n']} faults: {_value(row['careful'])} are answered `unknown`, below 0.5 or "
        f"by a cause that counts as right; another cause is named at 0.87 or more in {_value(row['sure'])}."
        for name, kinds in found.items()
        if (row := kinds.get("unmodelled"))
    ]
    return "\n".join([*table, *(["", *left_out] if left_out else [])])


def command(cases: Path, told_window: bool, sample: int | None) -> str:
    """The command line that makes the table of ablations again."""
    more = [" --told-window"] * told_window + [f" --sample {sample}"] * (sample is not None)
    return f"rca eval {cases.name} --ablations{''.join(more)}"


def put(text: str, document: Path, made_by: str) -> None:
    """Write the ablations between their two lines of a Markdown document, with the command before them.

    Raises:
        TemplateError: The document cannot be read, or lacks the two lines.
    """
    try:
        whole = document.read_text(encoding="utf-8")
        before, rest = whole.split(BEGIN)
        _, after = rest.split(END)
    except (OSError, ValueError) as error:
        raise TemplateError(
            "is no document with a place for ablations",
            path=str(document),
            hint=f"write a line {BEGIN} and a line {END} into it",
        ) from error
    block = f"{BEGIN}\n```sh\n{made_by}\n```\n\n{text}\n{END}"
    write_whole(document, before + block + after)


def _fault_cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield str(row["n"])
    for name in _FAULT_COLUMNS.values():
        yield _short(row.get(name), name)


def _healthy_cells(row: Mapping[str, Any] | None) -> Iterator[str]:
    yield from (str(row["n"]), _short(row["false_alarms"], "false_alarms")) if row else ("", "")


def _short(value: Any, name: str) -> str:
    """Two decimals, for some with the interval; nothing where nothing was counted."""
    share = value[0] if isinstance(value, list) else value
    if share is None or math.isnan(share):
        return ""
    if name in _WITH_INTERVAL:
        return f"{share:.2f} [{value[1]:.2f}, {value[2]:.2f}]"
    return f"{share:.2f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"
    return f"{value:.3f}"


def _wrong(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for one in outcomes:
        if one.is_right:
            continue
        said = ", ".join(one.answers[:3]) or one.error or "nothing"
        right = "no incident" if one.kind == "healthy" else ", ".join(one.causes) or "unknown"
        yield f"  wrong: {one.case} ({one.kind}): said {said} at {one.confidence:.2f}; right: {right}"
