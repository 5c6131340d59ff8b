"""The drawing libraries that report.html carries, taken from the package vl-convert-python."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from rca.durable import cache_folder, write_whole
from rca.postmortem.charts.draw import vega_lite_version

NOTICE = (
    "Charts are drawn by Vega, Vega-Lite, Vega-Embed, Vega-Tooltip and Vega-Interpreter (University of "
    "Washington Interactive Data Lab, BSD 3-Clause) and D3 (Mike Bostock, ISC), as the package "
    "vl-convert-python bundles them."
)


@lru_cache(maxsize=1)
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed with its interpreter of expressions, as one script.

    Bundling takes seconds, so the result is kept below the user's cache folder where one can be
    written; its name holds the versions that made it.
    """
    kept = _cache()
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = _bundle()
    # Where the folder cannot be written to, the next report bundles again.
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, text)
    return text


def _bundle() -> str:
    import vl_convert

    text: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=vega_lite_version()
    )
    # Inside a script element only these would end or nest it; in strings they mean the same.
    return text.replace("</script", "<\\/script").replace("<!--", "\\x3C!--")


def _cache() -> Path:
    name = f"vega-embed-{version('vl-convert-python')}-{vega_lite_version()}.js"
    return cache_folder() / name
