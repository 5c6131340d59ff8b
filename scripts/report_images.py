"""Draw the screenshots of the documents anew: docs/images/*.png, from a bundled incident.

Needs Playwright's library and a Chromium (RCA_CHROMIUM, or `chromium` on PATH):
`python scripts/report_images.py [CASE]`; without a case the sample of the README is analysed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import rca
from rca.case import Case
from rca.postmortem.html import write_html

ROOT = Path(__file__).parent.parent
SAMPLE = "sample_traces/03_batch_window_mismatch"
IMAGES = ROOT / "docs" / "images"


def main(arguments: list[str]) -> int:
    """Write the images; 1 when there is no browser."""
    program = os.environ.get("RCA_CHROMIUM") or shutil.which("chromium")
    if program is None:
        print("no chromium on PATH, and RCA_CHROMIUM names none", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        html = _report(Path(folder), arguments)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--force-device-scale-factor=1"]
            )
            IMAGES.mkdir(exist_ok=True)
            for scheme in ("light", "dark"):
                _shoot(browser, html, scheme)
            browser.close()
    return 0


def _report(folder: Path, arguments: list[str]) -> Path:
    if arguments:
        with Case.open(Path(arguments[0]), read_only=True) as case:
            return write_html(case, folder)
    os.chdir(ROOT)
    with rca.analyze(SAMPLE) as case:
        return write_html(case, folder)


def _shoot(browser: Any, html: Path, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1100, "height": 1300})
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-charts=drawn]", timeout=120_000)
    page.screenshot(path=IMAGES / f"report_{scheme}.png")
    if scheme == "light":
        page.add_style_tag(content="nav { position: static !important; }")
        for name in ("attribution", "distributions", "causal"):
            figure = page.locator(f"figure[data-chart={name}]")
            if figure.count():
                figure.screenshot(path=IMAGES / f"chart_{name}.png")
    page.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
