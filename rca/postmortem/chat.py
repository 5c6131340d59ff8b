"""The postmortem as a message for a chat: a few lines of plain words."""

from __future__ import annotations

from rca.answer import wording
from rca.plain import confidence, printable
from rca.postmortem.chronicle import Said
from rca.postmortem.story import Story

_LIMIT = 300


def message(story: Story) -> str:
    """At most nine lines: what, when, why, who was hit, what to do, what is open."""
    answer = story.answer
    said = answer.verdict
    lines = [f"{story.title} — {story.severity.level} proposed", wording.window(answer.window)]
    if said.status == "diagnosed":
        lines.append(
            f"Cause: {printable(said.cause, 60)} ({said.class_}), confidence {confidence(said.confidence)}"
        )
    else:
        lines.append(_told(story.cause))
    lines += [_told(s) for s in story.mechanism if s.cites][:2]
    lines += [f"Impact: {f.text} [{f.id}]" for f in story.figures if f.name == "slow"]
    lines += [f"Do: {printable(f.action, _LIMIT)}" for f in answer.fixes[:1]]
    lines += [f"Missing: {printable(g.statement, _LIMIT)}" for g in answer.gaps[:1]]
    lines.append(f"Trial: {wording.TRIALS.get(answer.trial.status, answer.trial.status)}")
    return "\n".join(printable(line, 2 * _LIMIT) for line in lines) + "\n"


def _told(said: Said) -> str:
    cites = f" [{', '.join(said.cites)}]" if said.cites else ""
    return f"{said.text}{cites}"
