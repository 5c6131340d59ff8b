"""Record what `make demo` prints, and put it into README.md between its two markers.

python scripts/readme_sample.py [BUNDLE]
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

import rca
from rca.answer.summary import render

ROOT = Path(__file__).parent.parent
SAMPLE = "sample_traces/03_batch_window_mismatch"
BUDGET_S = 20.0
WIDTH = 100
BEGIN, END = "<!-- sample output: begin -->", "<!-- sample output: end -->"


def record(bundle: str) -> str:
    """The answer as a terminal of 100 columns shows it, without its colours."""
    screen = io.StringIO()
    console = Console(file=screen, width=WIDTH, force_terminal=True, no_color=True)
    with rca.analyze(bundle, out="out/demo", trial_budget_s=BUDGET_S) as case:
        render(case, console)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    return "\n".join(line.rstrip() for line in plain.strip("\n").splitlines())


def main(arguments: list[str]) -> int:
    """Replace the block in README.md."""
    bundle = arguments[0] if arguments else SAMPLE
    shown = f"$ rca analyze {bundle} --out out/demo\n{record(bundle)}"
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    text = f"{before}{BEGIN}\n```text\n{shown}\n```\n{END}{after}"
    readme.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
