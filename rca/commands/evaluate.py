"""What `rca eval` prints: a table for each kind of bundle, what was missed, and the ablations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rca.evaluate.scores import Outcome

_ABLATION_COLUMNS = (
    "ac1",
    "ac3",
    "unknown",
    "precision_when_sure",
    "coverage_when_sure",
    "ece",
)


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
    """The scores of `rca.evaluate.ablate` as a Markdown table."""
    heads = ["recordings", "n", *(name.replace("_", " ") for name in _ABLATION_COLUMNS)]
    rows = [[name, str(row["n"]), *_cells(row)] for name, row in found.items()]
    return "\n".join(_line(row) for row in [heads, ["---"] * len(heads), *rows])


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    if "careful" in row:
        yield f"careful: {_value(row['careful'])}"
        yield from [""] * (len(_ABLATION_COLUMNS) - 1)
        return
    for name in _ABLATION_COLUMNS:
        yield _value(row[name]) if row.get(name) is not None else ""


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
