"""What is told of the bundled incidents: golden postmortems, their figures, the reader's questions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rca.answer import Evidence, read, wording
from rca.answer.verdict_json import verdict
from rca.case import Case
from rca.pipeline import Options, analyze
from rca.plain import confidence, moment, percent, printable, quantity, role_words
from rca.postmortem.impact import measure
from scripts import golden

SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("[0-9]*"))
QUICK = {"02_kv_pool_too_small", "04_healthy"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(s, id=s.name, marks=[] if s.name in QUICK else [pytest.mark.slow])
        for s in SAMPLES
    ],
)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """A sample, analysed without the experiment."""
    with analyze([request.param], options=Options(trial_budget_s=None)) as made:
        made.sample = request.param.name  # type: ignore[attr-defined]
        yield made


def test_the_postmortem_is_the_golden_one(case: Case) -> None:
    kept = (golden.GOLDEN / f"{case.sample}.md").read_text(encoding="utf-8")  # type: ignore[attr-defined]
    told = golden.postmortem(case)
    changed = difflib.unified_diff(kept.splitlines(), told.splitlines(), lineterm="", n=0)
    assert kept == told, "look at it, then: make golden\n" + "\n".join(changed)


def again(case: Case, item: Evidence) -> list[str]:
    """How the query of a piece of evidence, run now, reads in a document."""
    reference, observed = case.rows(item.sql)[0][:2]
    before, after = (
        quantity(None if v is None else float(v), item.unit) for v in (reference, observed)
    )
    return [f"{before} → {after}", f"steady at {after}", f"| {before} | {after} |"]


def test_every_movement_that_is_told_comes_again_from_its_query(case: Case) -> None:
    """In a line that cites evidence, what remains without the figures of its queries is no figure."""
    answer, text = read(case), golden.postmortem(case)
    told = set(re.findall(r"\[(E\d+)\]\(#e\d+\)", text))
    measured = {
        e.id: again(case, e) for e in answer.cited(sorted(told)) if e.direction != "event"
    }
    changes = [e.statement for e in answer.evidence.values() if e.direction == "event"]
    values = [v for c in answer.changes.values() for v in (f"{c.before} → {c.after}",)]
    checked = 0
    for line in text.splitlines():
        cited = re.findall(r"\[(E\d+)\]\(#e\d+\)", line)
        left = line
        for words in [w for key in cited for w in measured.get(key, [])]:
            checked += left.count(words)
            left = left.replace(words, "")
        for words in [*changes, *values]:
            left = left.replace(words, "")
        if cited:
            assert not re.search(r"\d[^|;]* → |steady at", left), (line, left)
        if cited and line.startswith(("| queue", "| decode", "| prefill")):
            assert not re.search(r"\| [\d.]+ m?s \| [\d.]+ m?s \| ", left), line
    assert checked >= (8 if answer.verdict.status == "diagnosed" else 1)


def test_figures_of_the_impact_come_again_from_their_query(case: Case) -> None:
    text = golden.postmortem(case)
    for figure in measure(case, read(case).window):
        reference, observed = case.rows(figure.sql)[0]
        told = percent if figure.name in {"slow", "failed"} else lambda v: f"{v:.3g}"
        rows = [
            line
            for line in text.splitlines()
            if line.endswith(f'| <a id="{figure.id.lower()}"></a>{figure.id} |')
        ]
        assert len(rows) == 1
        assert rows[0].startswith(f"| {told(observed)} ")
        assert reference is None or figure.name == "tenants" or f"{told(reference)} " in rows[0]


def test_tables_of_the_golden_postmortem_are_tables_of_markdown(case: Case) -> None:
    text = (golden.GOLDEN / f"{case.sample}.md").read_text(encoding="utf-8")  # type: ignore[attr-defined]
    lines = text.splitlines()
    for above, line in pairwise(["", *lines]):
        if line.startswith("|") and not above.startswith("|"):
            head = line
        elif line.startswith("|") and above is head:
            assert re.fullmatch(r"\|(:?-{3,}:?\|)+", line.replace(" ", "")), head
            assert line.count("|") == len(re.findall(r"(?<!\\)\|", head)), head


def test_the_readers_questions_are_answered_as_the_page_says(case: Case) -> None:
    assert dict(golden.sections())[case.sample] == golden.section(case)  # type: ignore[attr-defined]
    found, told = verdict(case), golden.answers(case)
    checks = diagnosed if found["verdict"]["status"] == "diagnosed" else healthy
    for question, expected in checks(found).items():
        for words in expected:
            assert words in told[question], question
    out = [h["cause"] for h in found["hypotheses"]]
    if "What was ruled out?" in told:
        named = [
            said.split(":")[0]
            for said in told["What was ruled out?"].split("; ")
            if re.match(r"\w+: ", said)
        ]
        assert named and set(named) <= set(out)
        assert not set(named) & {found["verdict"]["cause"], *found["verdict"]["contributing"]}


def diagnosed(found: dict[str, Any]) -> dict[str, list[str]]:
    """What each answer has to say, from verdict.json alone."""
    lead, fixes = found["hypotheses"][0], found["fixes"]
    tenants = [r for r in found["impact"]["blast_radius"] if r["kind"] == "tenant"]
    worst = max(tenants, key=lambda r: r["share_slow"])
    undo = fixes[0]["undo"]
    return {
        "What happened?": [found["verdict"]["cause"], found["verdict"]["reason"]],
        "When?": [f"{moment(found['incident']['start_ns'])} – {moment(found['incident']['end_ns'], date=False)} UTC"],
        "How sure is it?": [confidence(found["verdict"]["confidence"])],
        "Since which change?": [lead["change"] or "no change fits"],
        "Who was hit?": [f"{worst['name']} {percent(worst['share_slow'])}"],
        "What is to be done?": [printable(fixes[0]["action"], 240)],
        "How is that undone?": [f"fixes/{undo}"] if undo else [_without_undo(fixes[0])],
        "What is missing?": missing(found, lead),
        "What comes next?": [printable(fixes[1]["action"], 240)],
    }  # fmt: skip


def missing(found: dict[str, Any], lead: dict[str, Any]) -> list[str]:
    """What the page has to name: what is peculiar to the case, else what most bundles lack."""
    usual = [g for g in found["gaps"] if g["code"] in wording.USUAL_GAPS]
    own = [g for g in found["gaps"] if g not in usual]
    own = sorted(own, key=lambda g: not g["would_decide"])
    named = [printable(g["statement"], 240) for g in own[:1]]
    named += [] if own else [role_words(m["role"]) for m in lead["missing"][:1]]
    named += [] if named else [wording.USUAL_GAPS[g["code"]] for g in usual[:1]]
    return named or ["nothing that would decide more"]


def _without_undo(fix: dict[str, Any]) -> str:
    if fix["kind"] == "investigate":
        return "changes nothing"
    return "hand" if fix["reversible"] else "CANNOT"


def healthy(found: dict[str, Any]) -> dict[str, list[str]]:
    """The same where there is no incident."""
    assert found["verdict"]["status"] == "no_incident"
    assert found["fixes"] == []
    return {
        "What happened?": ["no incident", found["verdict"]["reason"]],
        "When?": ["no incident found"],
        "How sure is it?": [confidence(found["verdict"]["confidence"])],
        "What is missing?": missing(found, {"missing": []}),
    }
