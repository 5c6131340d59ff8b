"""Write docs/causes.md from rca/causes/*.toml, or check that it is up to date.

python scripts/cause_docs.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from rca.catalogue import CLASSES, Cause, load
from rca.signals import meanings

TARGET = Path(__file__).resolve().parent.parent / "docs" / "causes.md"
_SIGNS = {1: "rises", -1: "falls", 0: "stays"}
_REPRODUCIBLE = {
    "cpu": "on a CPU", "counts": "by its counters", "model": "by a cost model", "no": "not here",
}  # fmt: skip


def render() -> str:
    """The document."""
    causes = load()
    lines = [
        "# Root causes",
        "",
        "Generated from `rca/causes/*.toml` by `make docs`. A cause of your own is one such file:",
        "give its folder with `--causes`. Weights say how much a role counts; a role that is named",
        "nowhere is expected to stay as it was. `rca causes ID` prints one of them.",
        "",
    ]
    for cls in CLASSES:
        lines += [f"## {cls}", ""]
        for cause in causes.values():
            if cause.cls == cls:
                lines += _section(cause)
    lines += ["## Roles", "", "| Role | Meaning | Unit |", "|---|---|---|"]
    lines += [f"| {role} | {m.meaning} | {m.unit} |" for role, m in sorted(meanings().items())]
    return "\n".join(lines) + "\n"


def _section(cause: Cause) -> list[str]:
    lines = [f"### {cause.id}", "", f"{cause.title}. {cause.definition}", ""]
    for sign, word in _SIGNS.items():
        roles = [f"{r} ({w:g})" for r, (s, w) in cause.expected.items() if s == sign]
        if roles:
            lines.append(f"- {word}: {', '.join(roles)}")
    lines.append(f"- must be seen, one of: {', '.join(sorted(cause.requires))}")
    lines += [f"- not {x.cause}: {x.because} ({x.decided_by})" for x in cause.lookalikes]
    for fix in cause.fixes:
        setting = f" `{fix.setting}`: {fix.direction}." if fix.setting else ""
        lines.append(f"- {fix.phase}, {fix.kind}: {fix.action}{setting} Risk: {fix.risk}.")
    lines.append(f"- reproducible: {_REPRODUCIBLE[cause.reproducible]}")
    if cause.references:
        lines.append(f"- see: {', '.join(cause.references)}")
    return [*lines, ""]


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit status."""
    text = render()
    if "--check" in arguments:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
            print("docs/causes.md is out of date; run: make docs", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
