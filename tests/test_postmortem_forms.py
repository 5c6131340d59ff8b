"""The postmortem rendered again: what people wrote, forms of one's own, links, a message."""

from __future__ import annotations

from pathlib import Path

import case_builder
import pytest

from rca import postmortem
from rca.case import Case
from rca.errors import TemplateError
from rca.postmortem.markdown import write


def written(case: Case, out: Path) -> str:
    return write(case, out).read_text(encoding="utf-8")


def test_what_people_wrote_is_kept_when_it_is_rendered_again(tmp_path: Path) -> None:
    text = written(case_builder.diagnosed(), tmp_path)
    path = tmp_path / "postmortem.md"
    edited = text.replace("Authors: TODO.", "Authors: the night shift.").replace(
        "- What went well: TODO", "- What went well: the rollback took four minutes"
    )
    path.write_text(edited)
    case = case_builder.diagnosed()
    case.execute("UPDATE verdict SET confidence = 0.81")
    again = written(case, tmp_path)
    assert "Authors: the night shift." in again
    assert "the rollback took four minutes" in again
    assert "confidence 0.81" in again  # everything else is new
    assert again.count("TODO: customers told") == 1
    assert written(case, tmp_path) == again


def test_a_recording_cannot_write_into_the_parts_of_people(tmp_path: Path) -> None:
    forged = "x\n<!-- people: review 000000000000 -->\nAuthors: nobody.\n<!-- /people -->\ny"
    text = written(case_builder.diagnosed(name=forged), tmp_path)
    assert "Authors: TODO." in text
    assert "Authors: TODO." in written(case_builder.diagnosed(name=forged), tmp_path)


def test_a_form_of_ones_own_is_rendered_safely(tmp_path: Path) -> None:
    form = tmp_path / "form.md.jinja"
    form.write_text(
        "# {{ story.title }}\n{% for said in story.ruled_out %}\n* {{ said | told }}\n{% endfor %}\n"
    )
    case = case_builder.diagnosed(name=case_builder.HOSTILE)
    postmortem.write(case, tmp_path, form)
    text = (tmp_path / "postmortem.md").read_text()
    assert text.startswith("# vllm: KV cache pool is too small\n")
    assert "* overload, confidence 0.04: would raise running" in text
    for broken, said in (
        ("{% for %}", r"form\.md\.jinja: line 1: "),
        ("{{ story.nothing }}", "has no attribute 'nothing'"),
        ("{{ story.__class__.__mro__ }}", "unsafe"),
    ):
        form.write_text(broken)
        with pytest.raises(TemplateError, match=said):
            postmortem.write(case, tmp_path, form)
    with pytest.raises(TemplateError, match="cannot be read: No such file"):
        postmortem.write(case, tmp_path, tmp_path / "none.jinja")


def test_links_are_filled_in_and_lead_nowhere_else(tmp_path: Path) -> None:
    case = case_builder.diagnosed()
    for name, url in (
        ("dashboard", "https://grafana.example/d/llm?from={start_ms}&to={end_ms}"),
        ("evil", "javascript:alert(1)"),
        ("quote", 'https://x.example/"><script>alert(1)</script> )'),
    ):
        case.execute("INSERT INTO provenance VALUES (?, ?)", [f"link.{name}", url])
    text = written(case, tmp_path)
    start, end = (ns // 10**6 for ns in (case_builder.START, case_builder.END))
    assert (
        f"[dashboard](<https://grafana.example/d/llm?from={start - 300_000}&to={end + 300_000}>)"
        in text
    )
    assert "](<javascript" not in text
    assert (
        "[quote](<https://x.example/%22%3E%3Cscript%3Ealert%281%29%3C/script%3E%20%29>)" in text
    )


def test_the_message_for_a_chat_is_short() -> None:
    lines = postmortem.brief(case_builder.diagnosed()).splitlines()
    assert lines[0] == "vllm: KV cache pool is too small — SEV1 proposed"
    assert "Cause: kv_pool_too_small (config), confidence 0.93" in lines
    assert any(line.startswith("Do: ") for line in lines)
    assert len(lines) <= 9
    hostile = postmortem.brief(case_builder.diagnosed(name=case_builder.HOSTILE))
    assert "\x1b" not in hostile and "\u202e" not in hostile and len(hostile.splitlines()) <= 9
