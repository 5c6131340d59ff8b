"""Hostile strings in every field stay inert in everything that people and programs open."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import case_builder
import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from rca import postmortem, timeline
from rca.answer.summary import render, render_sources
from rca.case import Case
from rca.diagnosed import DiagnosedCase
from rca.pipeline import Options, analyze

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "02_kv_pool_too_small"
STRINGS = {
    "html": "\"'><img src=x onerror=alert(1)><a href=javascript:alert(1)>x</a><!--",
    "script": "</script></style></svg><script>window.broken=1</script>]]>",
    "markdown": "[x](javascript:alert(1)) ![x](http://e.example/x.png) | cell |\n# pwned\n- [ ] @all #1",
    "rich": "[red]x[/red] [/] [link=http://e.example]x[/link] [blink]",
    "terminal": "\x1b[2J\x1b]8;;http://e.example\x07x\x1b]0;title\x07\r\x08\x9b31m\x00",
    "direction": "\u202eabc\u2066\u200b\u2028\ufeff",
    "template": "{{7*7}}${{7*7}}{% raw %}<%= 7*7 %>",
    "long": "n" * 10_000,
}
# Words that rca itself writes and reads again: what kind of row it is, ids that rows are joined by, queries.
OWN = {
    "direction", "status", "part", "sql", "id", "evidence", "class", "key", "role", "type", "how", "combine",
    "phase", "file", "undo", "engine", "figure", "detected_by", "sha256", "trace_id", "span_id", "parent_id",
    "side", "judge", "arm", "change_id",
}  # fmt: skip

OWN_IN = {("source", "kind"), ("fix", "kind"), ("span", "kind"), ("pattern", "kind")}


def poisoned(case: Case, text: str) -> int:
    """Put the text into every field that holds words of a recording; returns the number of fields."""
    columns = case.rows(
        "SELECT table_name, column_name FROM duckdb_columns() JOIN duckdb_tables() USING (table_name) "
        "WHERE data_type = 'VARCHAR' ORDER BY ALL"
    )
    count = 0
    for table, column in columns:
        if (
            column in OWN
            or (table, column) in OWN_IN
            or not case.scalar(f'SELECT count("{column}") FROM "{table}"')
        ):
            continue
        case.execute(f'UPDATE "{table}" SET "{column}" = ? || "{column}"', [text])
        count += 1
    return count


def invisible(text: str) -> list[str]:
    """Characters that move a cursor or turn the direction, which no output may hold."""
    return re.findall(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069\ufeff]", text
    )


class Page(HTMLParser):
    """What a browser would take as markup: tags, and attributes that act."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.acting: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.acting.append(f"{tag} {name}={value}")


def check_terminal(case: DiagnosedCase, out: Path) -> None:
    for show in (render, render_sources):
        for terminal in (False, True):
            screen = io.StringIO()
            show(case, Console(file=screen, width=100, force_terminal=terminal, no_color=True))
            said = (
                case_builder.without_style(screen.getvalue()) if terminal else screen.getvalue()
            )
            assert invisible(said) == []
            assert len(said) < 100_000


def check_chat(case: DiagnosedCase, out: Path) -> None:
    said = postmortem.brief(case)
    assert invisible(said) == []
    assert len(said) < 5_000


def check_notebook(case: DiagnosedCase, out: Path) -> None:
    said = case._repr_html_()
    page = Page(said)
    assert set(page.tags) == {"table", "tr", "th", "td"}
    assert page.acting == invisible(said) == []
    assert invisible(repr(case)) == [] and "\n" not in repr(case)


def check_markdown(case: DiagnosedCase, out: Path) -> None:
    said = (out / "postmortem.md").read_text(encoding="utf-8")
    assert invisible(said) == []
    flat = [
        token
        for block in MarkdownIt("commonmark", {"html": True}).enable("table").parse(said)
        for token in [block, *(block.children or [])]
    ]
    markup = [t.content for t in flat if t.type in {"html_block", "html_inline"}]
    own = r"<!-- /?people[^<]*-->\s*|<a id=\"[a-z0-9]+\">|</a>|<details>\n<summary>[\w ]+</summary>\s*|</details>\s*"
    assert all(re.fullmatch(own, m) for m in markup), markup
    targets = [
        t.attrGet("href") or t.attrGet("src") for t in flat if t.type in {"link_open", "image"}
    ]
    assert all(re.match(r"#|charts/|fixes/", str(target)) for target in targets), targets
    headings = re.findall(r"^# .*$", said, re.MULTILINE)
    assert len(headings) == 1


def check_html(case: DiagnosedCase, out: Path) -> None:
    said = (out / "report.html").read_text(encoding="utf-8")
    page = Page(said)
    assert page.acting == [] and invisible(said) == []
    assert page.tags["script"] == said.count("<script") and page.tags.get("img", 0) == 0
    hashes = re.search(r"script-src ([^;\"]*)", said)
    assert hashes and "unsafe" not in hashes[1]


def check_timeline(case: DiagnosedCase, out: Path) -> None:
    with gzip.open(timeline.write(case, out / "t.json.gz"), "rt", encoding="utf-8") as file:
        said = file.read()
    assert invisible(said) == []
    events = json.loads(said)["traceEvents"]
    assert len(events) > 100
    texts = [e["name"] for e in events] + [str(v) for e in events for v in e["args"].values()]
    assert max(map(len, texts)) <= 2_000
    assert all(invisible(text) == [] for text in texts)


CHECKS: list[Callable[[DiagnosedCase, Path], None]] = [
    check_terminal, check_chat, check_notebook, check_markdown, check_html, check_timeline,
]  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "case.duckdb"
    analyze([SAMPLE], None, path, Options(trial_budget_s=None)).close()
    return path


def prepared(path: Path, text: str, folder: Path) -> DiagnosedCase:
    """A copy of a case with the text in its fields, and its documents."""
    copy = folder / "case.duckdb"
    copy.write_bytes(path.read_bytes())
    case = DiagnosedCase.open(copy, read_only=False)
    assert poisoned(case, text) > 20
    postmortem.write(case, folder)
    return case


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DiagnosedCase, Path]]:
    """The case made by hand with all of the texts in each field."""
    folder = tmp_path_factory.mktemp("handmade")
    case_builder.diagnosed(folder / "made.duckdb").close()
    with prepared(folder / "made.duckdb", "".join(STRINGS.values()), folder) as case:
        yield case, folder


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
def test_all_of_it_at_once(
    check: Callable[[DiagnosedCase, Path], None], hostile: tuple[DiagnosedCase, Path]
) -> None:
    check(*hostile)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRINGS)
def test_each_of_them_in_every_field_of_a_recorded_incident(
    name: str, recorded: Path, tmp_path: Path
) -> None:
    with prepared(recorded, STRINGS[name], tmp_path) as case:
        for check in CHECKS:
            check(case, tmp_path)


def test_a_notebook_shows_the_answer_and_a_prompt_a_line(tmp_path: Path) -> None:
    case_builder.diagnosed(tmp_path / "case.duckdb").close()
    with DiagnosedCase.open(tmp_path / "case.duckdb") as case:
        assert "<th" in case._repr_html_() and "confidence 0.93" in case._repr_html_()
        assert repr(case).endswith("case.duckdb: kv_pool_too_small (config), confidence 0.93>")
        screen = io.StringIO()
        Console(file=screen, width=60, force_terminal=True, no_color=True).print(case)
        assert "CAUSE" in screen.getvalue()
        assert max(map(len, case_builder.without_style(screen.getvalue()).splitlines())) <= 60
    assert repr(case).endswith("closed>")
    empty = DiagnosedCase.create()
    assert repr(empty) == "<rca case in memory: nothing concluded yet>"
    assert "0 files" in empty._repr_html_()
