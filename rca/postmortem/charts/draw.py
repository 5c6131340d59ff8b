"""Charts as SVG and as specifications: Altair's chart in, bytes out, no browser."""

from __future__ import annotations

import json
import re
from typing import Any

from rca.postmortem.charts.style import config
from rca.postmortem.painter import painter


def specification(chart: Any) -> dict[str, Any]:
    """The chart as a Vega-Lite specification without colours: those belong to the theme."""
    from altair.utils.schemapi import debug_mode

    # The charts are made here, so checking them against the schema of Vega-Lite each time would
    # only take longer than drawing them.
    with debug_mode(False):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("config", None)
    rounded: dict[str, Any] = _rounded(spec)
    return _renamed(rounded)


def _rounded(value: Any) -> Any:
    """The same with numbers of 12 digits: a sum's last bits depend on the order in which it was made."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def _renamed(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with views and data sets numbered: Altair's names differ between runs."""
    text = json.dumps(spec)
    for kind, found in (
        ("view", r'"(view_[0-9a-f]+_\d+)"'),
        ("rows", r'"(data-[0-9a-f]{32})"'),
    ):
        for number, name in enumerate(dict.fromkeys(re.findall(found, text))):
            text = text.replace(f'"{name}"', f'"{kind}_{number}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def svg(spec: dict[str, Any], name: str) -> str:
    """A specification drawn for light paper, as SVG text whose ids depend on its content only."""
    text = painter().svg(spec, config("light"), vega_lite_version())
    ids = dict.fromkeys(re.findall(r'\bid="([^"]+)"', text))
    names = {found: f"{name}-{number}" for number, found in enumerate(ids)}
    text = re.sub(
        r'(\bid="|url\(#|href="#)([^")]+)(?=["\)])',
        lambda match: match[1] + names.get(match[2], match[2]),
        text,
    )
    return text.strip() + "\n"


def vega_lite_version() -> str:
    """The version of Vega-Lite that the charts are written for, as `6.1`."""
    import altair as alt

    return str(alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0])
