"""The answers that docs/reading_a_postmortem.md promises stand where it says."""

from __future__ import annotations

import io
import re
from pathlib import Path

import case_builder
from rich.console import Console

from rca.answer.summary import render
from rca.answer.verdict_json import verdict
from rca.case import Case
from rca.postmortem.markdown import write

PAGE = Path(__file__).parent.parent / "docs" / "reading_a_postmortem.md"
EXPECTED = {  # in the lines below the label, for the case made by hand
    "What happened?": "KV pool shrank",
    "When?": "2026-01-31 02:17:15 – 02:31:00 UTC",
    "How sure is it?": "confidence 0.93",
    "Since which change?": "c41, 3 min 10 s before the window began (±15 s): deploy of deployment/vllm-llama",
    "Who was hit?": "99.6 % of the requests took longer than the objective's 2 s",
    "What is to be done?": "Roll back the change of gpu_memory_utilization",
    "How is that undone?": "undo fixes/01-undo.sh",
    "What was ruled out?": "overload: would raise running",
    "What is missing?": "No GPU profile in the window",
    "What comes next?": "or ",
}


def blocks(case: Case) -> dict[str, str]:
    """What the terminal shows, by the label of the lines."""
    out = io.StringIO()
    render(case, Console(file=out, width=200, no_color=True))
    found: dict[str, str] = {}
    label = ""
    for line in out.getvalue().splitlines():
        label = line[:12].strip() or label
        found[label] = found.get(label, "") + line[12:] + "\n"
    return found


def test_every_question_is_answered_where_the_page_says(tmp_path: Path) -> None:
    rows = re.findall(
        r"^\| ([^|]+\?) \| (\w+) \| `([\w.]+)` \| (.+?) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert [row[0] for row in rows] == list(EXPECTED)
    case = case_builder.diagnosed()
    shown, answer = blocks(case), verdict(case)
    text = write(case, tmp_path).read_text()
    for question, label, field, section in rows:
        assert EXPECTED[question] in shown[label], question
        value = answer
        for key in field.split("."):
            value = value[key]
        assert value, question
        assert f"\n## {section}\n" in text
