"""How charts look: named roles of marks, once for light and once for dark paper.

A chart says what a mark is (`healthy`, `incident`, `window`), never its colour. So one definition
serves notebook, SVG and both themes of the report. Colours keep apart for colour-blind readers
(blue against vermilion, as Okabe and Ito choose them) and always come with a shape, a dash or a
place of their own.
"""

from __future__ import annotations

from typing import Any

WIDTH = 640
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

_PALETTES = {
    "light": {
        "paper": "#ffffff", "ink": "#1f2328", "soft": "#57606a", "grid": "#e4e7eb",
        "healthy": "#6e7781", "incident": "#b3261e", "accent": "#0a58a8", "window": "#f7dcd8",
        "ramp": ["#f3f5f7", "#c9d8ea", "#86add4", "#3d7ab8", "#0b3d73"],
        "diverging": ["#0a58a8", "#9cc1e6", "#f3f5f7", "#f0a999", "#b3261e"],
        "category": ["#0a58a8", "#b3261e", "#7a5c00", "#5b3a8c", "#1b7a50", "#6e7781"],
    },
    "dark": {
        "paper": "#15181c", "ink": "#e6e9ec", "soft": "#a9b1ba", "grid": "#2c3238",
        "healthy": "#9aa4ae", "incident": "#ff8a75", "accent": "#79b8ff", "window": "#4a2522",
        "ramp": ["#20262c", "#25486b", "#2f73b0", "#63a9e8", "#d3e9ff"],
        "diverging": ["#79b8ff", "#2c5f94", "#20262c", "#8c3d31", "#ff8a75"],
        "category": ["#79b8ff", "#ff8a75", "#e3c04d", "#c6a4ff", "#6fd3a5", "#9aa4ae"],
    },
}  # fmt: skip


def config(theme: str = "light") -> dict[str, Any]:
    """The configuration of Vega-Lite for a theme, 'light' or 'dark'."""
    p = _PALETTES[theme]
    words = {
        "labelColor": p["soft"],
        "titleColor": p["ink"],
        "labelFont": FONT,
        "titleFont": FONT,
    }
    return {
        "background": p["paper"],
        "font": FONT,
        "view": {"stroke": p["grid"], "continuousWidth": WIDTH},
        "axis": {
            **words, "gridColor": p["grid"], "domainColor": p["soft"], "tickColor": p["soft"],
            "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
            "labelLimit": 260,
        },
        "legend": {**words, "labelFontSize": 11, "titleFontSize": 11, "symbolStrokeWidth": 2},
        "header": words,
        "title": {"color": p["ink"], "font": FONT, "fontSize": 12, "anchor": "start",
                  "fontWeight": 600, "subtitleColor": p["soft"], "subtitleFont": FONT},
        "line": {"color": p["ink"], "strokeWidth": 1.4},
        "text": {"color": p["ink"], "font": FONT, "fontSize": 10},
        "range": {"category": p["category"], "ramp": p["ramp"], "heatmap": p["ramp"],
                  "diverging": p["diverging"], "ordinal": p["ramp"]},
        "style": _styles(p),
    }  # fmt: skip


def _styles(p: dict[str, Any]) -> dict[str, Any]:
    """Marks by what they stand for; `color` because Vega-Lite asks a style for nothing else."""
    outlined = {"stroke": p["ink"], "strokeWidth": 0.5}
    return {
        "stem": {"color": p["ink"], "strokeWidth": 1.4},
        "healthy": {"color": p["healthy"], "strokeWidth": 2},
        "healthy_fill": {"color": p["healthy"], **outlined},
        "incident": {"color": p["incident"], "strokeWidth": 2},
        "incident_fill": {"color": p["incident"], **outlined},
        "residual_fill": {"color": p["paper"], "stroke": p["ink"], "strokeWidth": 1},
        "window": {"color": p["window"], "fillOpacity": 0.75},
        "band": {"color": p["accent"], "fillOpacity": 0.22},
        "middle": {"color": p["accent"], "strokeWidth": 1.8},
        "dots": {"color": p["ink"], "fillOpacity": 0.5},
        "change": {"color": p["soft"], "strokeDash": [4, 3], "strokeWidth": 1},
        "mark_point": {"color": p["accent"], **outlined},
        "node": {"color": p["paper"], "stroke": p["ink"], "strokeWidth": 1.5},
        "text": {"color": p["ink"]},
        "inverse_text": {"color": p["paper"]},
    }
