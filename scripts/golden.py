"""Write what later versions are held against: the postmortems of the bundled incidents, and docs/reading.md.

python scripts/golden.py [SAMPLE ...]   # all of sample_traces unless some are named

A golden postmortem is tests/golden/SAMPLE.md: the document up to its appendix, without the experiment and
without charts. Versions, hashes and the SQL stand in the appendix, so that what changes here is what people read.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from rca.answer import read
from rca.answer.summary import render as render_terminal
from rca.case import Case
from rca.pipeline import Options, analyze
from rca.postmortem.escape import cell
from rca.postmortem.markdown import render as render_document
from rca.postmortem.story import tell

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
READING = ROOT / "docs" / "reading.md"
HEAD = """# What each bundled incident answers

Ten questions of a reader who was not there, and the answers as the terminal gives them, experiment left
out: `rca analyze sample_traces/NAME --no-trial`. Where each answer stands in the other documents:
[reading_a_postmortem.md](reading_a_postmortem.md). `make golden` writes this page; a test holds it against
verdict.json.
"""


def main(arguments: list[str]) -> int:
    """Write the files of the named samples, and the page of all of them."""
    samples = sorted((ROOT / "sample_traces").glob("[0-9]*"))
    pages = dict(sections())
    for sample in samples:
        if arguments and sample.name not in arguments:
            continue
        with analyze([sample], options=Options(trial_budget_s=None)) as case:
            GOLDEN.mkdir(exist_ok=True)
            (GOLDEN / f"{sample.name}.md").write_text(postmortem(case), encoding="utf-8")
            pages[sample.name] = section(case)
    text = "\n".join(f"## {name}\n\n{pages[name]}" for name in sorted(pages))
    READING.write_text(f"{HEAD}\n{text}", encoding="utf-8")
    return 0


def postmortem(case: Case) -> str:
    """The postmortem up to its appendix."""
    return render_document(tell(case), (), "alerts.rules.yml").split("## 12. Appendix")[0]


def sections() -> list[tuple[str, str]]:
    """The parts of docs/reading.md as they stand, by sample."""
    text = READING.read_text(encoding="utf-8") if READING.is_file() else ""
    parts = [part.partition("\n\n") for part in text.split("\n## ")[1:]]
    return [(name, body.rstrip("\n") + "\n") for name, _, body in parts]


def section(case: Case) -> str:
    """Questions and answers of a case as a table."""
    rows = [f"| {question} | {cell(answer)} |" for question, answer in answers(case).items()]
    return "\n".join(["| Question | Answer |", "|---|---|", *rows]) + "\n"


def blocks(case: Case) -> dict[str, list[str]]:
    """The lines that the terminal shows, by the label of the first."""
    out = io.StringIO()
    render_terminal(case, Console(file=out, width=200, no_color=True))
    found: dict[str, list[str]] = {}
    label = ""
    for line in out.getvalue().splitlines():
        label = line[:12].strip() or label
        found.setdefault(label, []).append(line[13:])
    return found


def answers(case: Case) -> dict[str, str]:
    """The ten questions with the words of the terminal; without an incident those that remain."""
    shown = blocks(case)
    status = read(case).verdict.status
    if status != "diagnosed":
        label = "HEALTHY" if status == "no_incident" else "UNKNOWN"
        return {
            "What happened?": ": ".join(shown[label][:2]),
            "When?": shown["window"][0],
            "How sure is it?": shown[label][0].rpartition("   ")[2],
            "What moved all the same?": shown["MOVED"][0],
            "What is missing?": shown["MISSING"][0],
        }
    head, reason, *_ = shown["CAUSE"]
    do = [line for line in shown["DO"] if line and not line.startswith("→ ")]
    how = [line for line in shown["DO"] if line.startswith("→ ")]
    return {
        "What happened?": f"{head.split()[0]}: {reason}",
        "When?": shown["window"][0],
        "How sure is it?": head[head.index("confidence") :],
        "Since which change?": shown["SINCE"][0],
        "Who was hit?": f"{shown['HIT'][0]}; {shown['HIT'][-1]}",
        "What is to be done?": do[0],
        "How is that undone?": next(
            part for part in how[0].removeprefix("→ ").split(" · ") if "apply " not in part
        ),
        "What was ruled out?": "; ".join(shown["NOT"]),
        "What is missing?": shown["MISSING"][0],
        "What comes next?": do[1],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
