"""report.html in a browser: nothing is loaded, everything is drawn, the timeline moves.

Needs Playwright's library and a Chromium: RCA_CHROMIUM, or `chromium` on PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import case_builder
import pytest
from test_charts import with_studies

from rca.pipeline import Options, analyze
from rca.postmortem.charts import PLANS
from rca.postmortem.html import write_html

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
CHARTS = ["attribution", "distributions", "effects", "timeline"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = os.environ.get("RCA_CHROMIUM") or shutil.which("chromium")
    if not program:
        pytest.skip("no chromium on PATH, and RCA_CHROMIUM names none")
    with sync_api.sync_playwright() as playwright:
        # Without the sandbox: tests also run as root in containers, on pages made here.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    return write_html(case_builder.diagnosed(name=case_builder.HOSTILE), out)


class Opened:
    """A page with what it said and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1100, "height": 1000}, **options)
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("dialog", lambda d: self.said.append(f"dialog: {d.message}"))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-charts=drawn]", timeout=60_000)

    def zoom(self) -> list[float]:
        found = self.page.evaluate(
            "report.views.timeline.signal('zoom_at') || JSON.parse(document.getElementById('chart-timeline-range').textContent)"
        )
        return [float(v) for v in found]


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    found = Opened(browser, report)
    yield found
    found.page.close()


def test_every_chart_is_drawn_and_nothing_is_loaded(opened: Opened, report: Path) -> None:
    assert opened.said == []
    assert opened.asked == [report.as_uri()]
    assert sorted(opened.page.evaluate("Object.keys(report.views)")) == CHARTS
    for name in CHARTS:
        box = opened.page.locator(f"figure[data-chart={name}] .live").bounding_box()
        assert box["width"] > 300
        assert box["height"] > 60
        assert (
            opened.page.locator(f"figure[data-chart={name}] .live")
            .locator("svg, canvas")
            .count()
        )


def test_the_policy_lets_no_other_script_run(opened: Opened) -> None:
    opened.page.evaluate(
        """() => { const added = document.createElement('script');
        added.textContent = 'window.broken = 1';
        document.body.append(added);
        document.body.insertAdjacentHTML('beforeend', '<i id="late" onclick="window.broken = 2">x</i>');
        document.getElementById('late').click(); }"""
    )
    assert opened.page.evaluate("window.broken") is None
    assert all("Content Security Policy" in line for line in opened.said)
    opened.said.clear()


def test_the_timeline_zooms_and_moves_by_keys_buttons_and_wheel(opened: Opened) -> None:
    page, (first, last) = opened.page, opened.zoom()
    page.focus("figure[data-chart=timeline]")
    page.keyboard.press("+")
    page.wait_for_timeout(200)
    low, high = opened.zoom()
    assert high - low == pytest.approx((last - first) / 2)
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(200)
    assert opened.zoom()[0] == pytest.approx(low + (high - low) / 4)
    page.click("button[data-act=all]")
    page.wait_for_timeout(200)
    assert opened.zoom() == [pytest.approx(first), pytest.approx(last)]
    box = page.locator("figure[data-chart=timeline] canvas").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 120)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Shift")
    page.wait_for_timeout(300)
    low, high = opened.zoom()
    assert first < low < high < last
    page.click("button[data-act=all]")


def test_a_click_on_a_request_shows_it_with_its_query(opened: Opened) -> None:
    page = opened.page
    page.evaluate("scrollTo(0, 0)")
    spot = page.evaluate(
        """() => { const view = report.views.timeline, found = [];
        const walk = (item, x, y) => { if (!item) return;
          if (item.marktype === 'symbol') for (const i of item.items)
            if (i.datum && i.datum.trace) found.push([x + i.x, y + i.y]);
          if (item.marktype === 'group') for (const g of item.items)
            for (const child of g.items) walk(child, x + (g.x || 0), y + (g.y || 0)); };
        const [left, top] = view.origin(), inset = view.padding();
        walk(view.scenegraph().root, 0, 0);
        return [found[100][0] + left + inset.left, found[100][1] + top + inset.top]; }"""
    )
    box = page.locator("figure[data-chart=timeline] canvas").bounding_box()
    page.mouse.click(box["x"] + spot[0], box["y"] + spot[1])
    picked = page.locator(".picked")
    picked.wait_for(state="visible", timeout=5_000)
    assert "SELECT service, name, start_ns, dur_ns FROM span WHERE trace_id = '" in (
        picked.locator("pre").inner_text()
    )
    assert picked.locator("dd").count() == 8


def test_evidence_can_be_searched_and_its_query_copied(opened: Opened) -> None:
    page = opened.page
    page.fill("#find", "kv pool")
    assert page.locator("#evidence-table tbody tr:visible").count() == 1
    assert page.locator("#found").inner_text() == "1 shown"
    page.fill("#find", "")
    row = page.locator("#E2")
    row.locator("summary").click()
    row.locator("button.copy").click()
    row.get_by_text("Copied").wait_for(timeout=5_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_in_both_themes(browser: Any, report: Path, scheme: str) -> None:
    found = Opened(browser, report, color_scheme=scheme)
    low = found.page.evaluate(_LOW_CONTRAST)
    found.page.close()
    assert low == []


def test_without_scripts_the_pictures_stand_there(browser: Any, report: Path) -> None:
    found = Opened(browser, report, java_script_enabled=False)
    for name in CHARTS:
        assert found.page.locator(f"figure[data-chart={name}] .still svg").is_visible()
    assert not found.page.locator("button[data-act=all]").is_visible()
    assert found.asked == [report.as_uri()]
    found.page.close()


def test_on_paper_the_pictures_stand_there(opened: Opened) -> None:
    opened.page.emulate_media(media="print")
    assert opened.page.locator("figure[data-chart=timeline] .still svg").is_visible()
    assert not opened.page.locator("nav").is_visible()
    opened.page.emulate_media(media="screen")


@pytest.mark.parametrize(
    "build", [case_builder.unknown, case_builder.no_incident, case_builder.gpu_only]
)
def test_other_answers_open_as_well(browser: Any, build: Any, tmp_path: Path) -> None:
    path = write_html(build(), tmp_path)
    found = Opened(browser, path)
    assert (found.said, found.asked) == ([], [path.as_uri()])
    found.page.close()


@pytest.mark.slow
def test_every_kind_of_chart_is_drawn_under_the_policy(browser: Any, tmp_path: Path) -> None:
    """On a recorded incident with everything in it, as `rca trial` leaves it."""
    sample = Path(__file__).parent.parent / "sample_traces" / "02_kv_pool_too_small"
    effect = '{"ratio": 4.0, "low": 3.5, "high": 4.6, "pairs": 6}'
    with analyze([sample], options=Options(trial_budget_s=None)) as case:
        case.execute(
            "UPDATE trial SET status = 'validated', details = ?",
            [f'{{"effects": {{"fault": {{"ttft_p50": {effect}}}}}}}'],
        )
        path = write_html(with_studies(case), tmp_path)
    found = Opened(browser, path)
    assert (found.said, found.asked) == ([], [path.as_uri()])
    drawn = set(found.page.evaluate("Object.keys(report.views)"))
    assert drawn == {p.name for p in PLANS} - {"streams"}  # there is no GPU in the sample
    for name in drawn:
        live = found.page.locator(f"figure[data-chart={name}] .live")
        assert live.locator("svg, canvas").count()
        assert live.bounding_box()["height"] > 60
    found.page.close()


@pytest.mark.slow
def test_a_million_operations_are_put_together_and_it_is_said(
    browser: Any, tmp_path: Path
) -> None:
    case = case_builder.gpu_only()
    case.execute(
        "INSERT INTO gpu_op (source_id, id, kind, name, device, stream, start_ns, dur_ns) "
        "SELECT 1, 10 + i, 'kernel', 'kernel_' || i % 400, i % 8, 7 + i % 3, "
        "(SELECT min(start_ns) FROM gpu_op) + i * 1000, 700 FROM range(1_000_000) t(i)"
    )
    path = write_html(case, tmp_path)
    assert path.stat().st_size < 8_000_000
    found = Opened(browser, path)
    assert (found.said, found.asked) == ([], [path.as_uri()])
    assert (
        "GPU streams: 12 of 24, 500,00"
        in found.page.locator("figure[data-chart=timeline] figcaption").inner_text()
    )
    took = found.page.evaluate("performance.now()")
    print(f"{path.stat().st_size:,} bytes, all charts drawn {took:.0f} ms after it was opened")
    found.page.close()


# Words below the contrast of WCAG 2.2 AA (4.5, large ones 3): text and contrast.
_LOW_CONTRAST = """() => {
  const numbers = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0.5) return c; } return [255, 255, 255]; };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !e.checkVisibility() || e.closest('svg, script')) continue;
    const style = getComputedStyle(e), a = light(numbers(style.color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) low.push([e.tagName, e.textContent.slice(0, 40), ratio]);
  }
  return low; }"""
