"""The postmortem: what it tells, that it is stable, that names in it are harmless."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET  # our own SVG, nothing hostile

import case_builder
import pytest
from markdown_it import MarkdownIt

from rca.answer import Trial, read
from rca.case import Case
from rca.errors import CaseError
from rca.limits import objective_ns
from rca.postmortem.chronicle import detection_of
from rca.postmortem.escape import cell, code, fence, prose
from rca.postmortem.experiment import describe
from rca.postmortem.html import write_html
from rca.postmortem.impact import measure
from rca.postmortem.markdown import write
from rca.postmortem.terminal import plain

CASES = [
    case_builder.diagnosed,
    case_builder.unknown,
    case_builder.no_incident,
    case_builder.gpu_only,
]
SECTIONS = [
    "1. Summary", "2. Impact", "3. Timeline", "4. What happened", "5. Contributing factors",
    "6. Ruled out, and what is missing", "7. Fix", "8. Trial", "9. Guard rails",
    "10. Action items and lessons", "11. Findings", "12. Appendix",
]  # fmt: skip


def test_where_no_request_was_recorded_none_is_counted() -> None:
    window = read(case_builder.diagnosed()).window
    with Case.create() as empty:
        assert measure(empty, window) == []


def written(case: Case, out: Path) -> str:
    return write(case, out).read_text(encoding="utf-8")


def tokens_of(text: str) -> list[str]:
    """Types of everything that Markdown makes of a text, with HTML and tables on."""
    flat = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        flat += [token.type, *(child.type for child in token.children or [])]
    return flat


@pytest.mark.parametrize("build", CASES)
def test_all_sections_stand_in_order(build: Callable[[], Case], tmp_path: Path) -> None:
    headings = re.findall(r"^## (.*)$", written(build(), tmp_path), re.MULTILINE)
    assert headings == SECTIONS


def test_diagnosis_tells_cause_impact_and_proposal(tmp_path: Path) -> None:
    text = written(case_builder.diagnosed(), tmp_path)
    assert text.startswith("# vllm: KV cache pool is too small\n")
    assert "**Cause.** kv_pool_too_small (config), confidence 0.93" in text
    assert (
        "SEV1 proposed: 99.6 % of the requests took longer than the objective's 2 s (0 % when healthy): "
        "99.6 times the 1 % that the objective leaves, 3.17 % of a budget of 30 days at even traffic (I3)"
        in text
    )
    assert (
        '| 276 recorded requests arrived in the window (275 when healthy) | <a id="i1"></a>I1 |'
        in text
    )
    assert (
        "Detection gap: 3 min from the first symptom to the alert HighLatency. ([E7](#e7))"
        in text
    )
    assert (
        "Ruled out: overload, confidence 0.04: would raise running; here vllm running 14 → 9 (×0.643 [0.582–0.71])"
        in text
    )
    assert "| queue | 50 ms | 2.5 s | 2.45 s | 55.2 % | [E7](#e7) |" in text
    assert "| torch | ttft_p50_ms | 20.2 | 20.6 (×1.02) | 96.2 (×4.75) | 21.1 (×1.04)" in text
    assert (
        "[`fixes/01-rollback.sh`](fixes/01-rollback.sh); to undo: [`fixes/01-undo.sh`]" in text
    )
    assert text.count("TODO") >= 8


def test_timeline_is_in_the_order_of_time(tmp_path: Path) -> None:
    section = written(case_builder.diagnosed(), tmp_path).split("## 3.")[1].split("## 4.")[0]
    rows = re.findall(r"^\| (2026-01-31 \S+) \| (\w+)", section, re.MULTILINE)
    assert rows == sorted(rows, key=lambda row: row[0])
    assert [what for _, what in rows][:3] == ["scale", "deploy", "symptom"]


def test_unknown_and_healthy_say_so(tmp_path: Path) -> None:
    unknown = written(case_builder.unknown(), tmp_path / "u")
    assert (
        "**Cause.** The cause is not known: No cause explains both strongest movements."
        in unknown
    )
    healthy = written(case_builder.no_incident(), tmp_path / "n")
    assert "**Answer.** No incident, confidence 0.96" in healthy
    assert "impact on users cannot be counted" in healthy


@pytest.mark.parametrize("build", CASES)
def test_every_link_leads_to_a_row_and_every_row_has_its_query(
    build: Callable[[], Case], tmp_path: Path
) -> None:
    case = build()
    text = written(case, tmp_path)
    rows = re.findall(r'^\|.* <a id="(\w+)"></a>', text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= set(rows)
    queries = dict(re.findall(r"\*\*(\w+)\*\*\n\n```sql\n(.*?)\n```", text, re.DOTALL))
    assert {key.lower() for key in queries} == set(rows)
    for key, sql in queries.items():
        assert case.rows(sql), key
    folded = text.split("<details>")[1].split("</details>")[0] if rows else ""
    assert all(sql in folded for sql in queries.values())


def test_a_terminal_shows_neither_anchors_nor_queries(tmp_path: Path) -> None:
    text = written(case_builder.diagnosed(name="<details>"), tmp_path)
    shown = plain(text)
    markup = re.sub(r"`[^`\n]*`", "", shown)
    assert not re.search(r"</?(a|details|summary)\b|<!--|\]\(|mermaid|FILTER", markup)
    assert "TODO: customers told" in shown
    assert "`fixes/01-rollback.sh`; to undo: `fixes/01-undo.sh`" in shown
    assert re.findall(r"^## (.*)$", shown, re.MULTILINE) == SECTIONS
    table = shown.split("### Hypotheses\n\n")[1].split("\n\n")[0].splitlines()
    assert (
        len(
            {
                line.index("| Class") if "| Class" in line else line.index(" | ")
                for line in table[2:]
            }
        )
        == 1
    )
    assert "| E1  | Requests wait for a slot" in shown


def test_figures_of_the_impact_come_again_from_the_printed_query(tmp_path: Path) -> None:
    case = case_builder.diagnosed()
    text = written(case, tmp_path)
    sql = re.search(r"\*\*I3\*\*\n\n```sql\n(.*?)\n```", text, re.DOTALL)
    assert sql
    reference, observed = case.rows(sql[1])[0]
    assert reference == 0
    assert observed == pytest.approx(0.996, abs=0.001)


def test_same_case_gives_the_same_bytes(tmp_path: Path) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        case = case_builder.diagnosed()
        write(case, out)
        write_html(case, out)
    first, second = (
        {p.relative_to(o): p.read_bytes() for p in o.rglob("*") if p.is_file()} for o in outs
    )
    assert first == second
    assert len(first) >= 4  # two documents and at least two charts


def test_hostile_names_make_no_markup_in_markdown(tmp_path: Path) -> None:
    calm = tokens_of(written(case_builder.diagnosed(), tmp_path / "a"))
    text = written(case_builder.diagnosed(name=case_builder.HOSTILE), tmp_path / "b")
    hostile = tokens_of(text)
    assert "onerror=alert(1)" in text
    for kind in (
        "html_block",
        "html_inline",
        "image",
        "link_open",
        "heading_open",
        "tr_open",
        "td_open",
    ):
        assert hostile.count(kind) == calm.count(kind), kind
    assert "\x1b" not in text and "\u202e" not in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


class Balance(HTMLParser):
    """Counts tags that are left open or closed out of order."""

    void = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing: it opens and closes itself, as in SVG."""


@pytest.mark.parametrize("build", CASES)
def test_report_closes_what_it_opens(build: Callable[[], Case], tmp_path: Path) -> None:
    balance = Balance()
    balance.feed(write_html(build(), tmp_path).read_text(encoding="utf-8"))
    assert (balance.open, balance.wrong) == ([], [])


def test_detection_gap_needs_an_alert_after_the_symptom() -> None:
    case = case_builder.diagnosed()
    case.execute("UPDATE alert SET start_ns = ?", [case_builder.START - 1])
    assert detection_of(case, read(case)).text.startswith(
        "No alert fired in the recordings after"
    )
    healthy = case_builder.no_incident()
    assert (
        detection_of(healthy, read(healthy)).text
        == "No incident window, hence no detection gap."
    )


@pytest.mark.parametrize(
    ("lag_s", "expected"),
    [(190, "3 min 10 s before the window began (±15 s)"), (-120, "2 min after the window began (±15 s)"),
     (20, "When the window began (±15 s)")],
)  # fmt: skip
def test_time_of_the_change_is_told_with_its_margin(
    lag_s: int, expected: str, tmp_path: Path
) -> None:
    case = case_builder.diagnosed()
    case.execute(
        "UPDATE change SET ts_ns = ? WHERE id = 'c41'", [case_builder.START - lag_s * 10**9]
    )
    assert f"{expected}, deployment/vllm-llama was changed" in written(case, tmp_path)


def test_report_ids_are_unique_and_links_arrive(tmp_path: Path) -> None:
    text = write_html(case_builder.diagnosed(), tmp_path).read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_pictures_are_written_as_svg(tmp_path: Path) -> None:
    write(case_builder.diagnosed(), tmp_path)
    pictures = sorted((tmp_path / "charts").glob("*.svg"))
    assert [p.stem for p in pictures] == ["attribution", "effects", "timeline"]
    for path in pictures:
        assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314


def test_unjudged_case_is_an_expected_failure(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="no verdict yet"):
        write(Case.create(), tmp_path)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("kv_cache_usage rose 0.58 → 0.99 (×1.7)", "kv_cache_usage rose 0.58 → 0.99 (×1.7)"),
        ("at 02:17:15 (×4.7 [4.2–5.2]).", "at 02:17:15 (×4.7 [4.2–5.2])."),
        ("see http://evil.example now", "see `http://evil.example` now"),
        ("ping @all or org/repo#1", "ping `@all` or `org/repo#1`"),
        ("a `tick`", "a `` `tick` ``"),
        ("<b> & $x$ *y* _z_ :smile:", "`<b>` `&` `$x$` `*y*` `_z_` `:smile:`"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("a|b", "`a|b`"),
    ],
)
def test_prose(raw: str, expected: str) -> None:
    assert prose(raw) == expected


def test_cells_hold_pipes_and_nothing() -> None:
    assert cell("a|b") == "`a\\|b`"
    assert cell("a\\|b") == "`a\\¦b`"  # GitHub would end the cell at a pipe here
    assert cell(None) == "–"
    table = f"| h | i |\n|---|---|\n| {cell('a|b')} | {cell(case_builder.HOSTILE)} |"
    assert tokens_of(table).count("td_open") == 2


def test_code_and_fences_cannot_be_left() -> None:
    assert code("a``b") == "```a``b```"
    block = fence("SELECT 1\n```\n# out\n~~~")
    assert tokens_of(block) == ["fence"]


def test_experiment_shows_doses_candidates_and_effects() -> None:
    case = case_builder.diagnosed()
    case.clear(["trial_arm"])
    levels = {
        "healthy": 2.0,
        "fault": 8.0,
        "fault@0.5": 4.0,
        "candidate:overload": 3.0,
        "candidate:overload@2": 5.0,
    }
    for arm, level in levels.items():
        for figure, value in (("ttft_p50", level * 1e9), ("prompt_tokens", 220.0)):
            case.execute(
                "INSERT INTO trial_arm VALUES (?, 0, 'twin', ?, ?)", [arm, figure, value]
            )
    effect = {"ratio": 4.0, "low": 3.5, "high": 4.6, "cliffs_delta": 1.0, "pairs": 6}
    details = {
        "effects": {"fault": {"ttft_p50": effect}},
        "seed": 3,
        "noise": {"ttft_p50": 0.02},
    }
    found = describe(case, Trial(cause="kv_pool_too_small", details=details))
    setups, doses, effects = found.tables
    assert setups.rows == [["twin", "ttft_p50", "2 s", "8 s (×4)", ""]]
    assert doses.rows[:3] == [
        ["kv_pool_too_small", "0.5", "×2", "×1"],
        ["kv_pool_too_small", "1", "×4", "×1"],
        ["overload", "1", "×1.5", "×1"],
    ]
    assert effects.rows == [["fault", "ttft_p50", "×4 [3.5–4.6]", "1", "6"]]
    assert found.n_steady == 1
    assert found.details == [("seed", "3"), ("noise, ttft p50", "0.02")]


@pytest.mark.parametrize(
    ("slo", "expected"),
    [
        ("e2e p99 < 2 s", 2_000_000_000),
        ("latency p95 under 300 ms", 300_000_000),
        ("e2e_p99 < 1.5 s, availability 0.999", 1_500_000_000),
        ("e2e_p99_ms 2000", 2_000_000_000),
        ("99.9 % available", None),
        (None, None),
    ],
)
def test_objective(slo: str | None, expected: int | None) -> None:
    assert objective_ns(slo) == expected
