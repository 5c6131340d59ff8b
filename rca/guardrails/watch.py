"""Signals as Prometheus can watch them: expressions over the bundle's own metrics, and their series."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rca.case import Case
from rca.guardrails.evaluator import Values, Watched
from rca.roles import sources

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAMING = ("job", "service", "namespace", "server_address")
_GAUGES = ("gauge", "gnum", "gden")
_MOST_SERIES = 60


class Series(NamedTuple):
    """One series of one side, as PromQL names it, on the grid of scrapes."""

    name: str
    values: Values


class Signal(NamedTuple):
    """A role of one service as PromQL; `series` by side, those over the line first."""

    role: str
    service: str
    expr: str
    how: str
    mean: bool
    scale: float
    series: dict[str, tuple[list[Series], list[Series]]]

    def watched(self, part: str) -> Watched | None:
        """The side's series for the evaluator; None where it has none."""
        top, bottom = self.series.get(part, ([], []))
        if not top or (self.how in ("ratio", "gratio") and not bottom):
            return None
        stacked = [np.array([s.values for s in side]) for side in (top, bottom or top[:0])]
        return Watched(self.how, self.mean, self.scale, stacked[0], stacked[1])


class Grid(NamedTuple):
    """Scrape times of one side: start, step and number."""

    start_ns: int
    step_ns: int
    scrapes: int


def signals(
    case: Case, role: str, slope: bool, window: str, grids: dict[str, Grid]
) -> Iterator[Signal]:
    """The role of every service that has series for it on both sides."""
    rows = case.rows(
        "SELECT r.service, s.name, r.how, r.scale, r.combine, count(*) FROM series_role AS r "
        "JOIN series AS s ON s.id = r.series_id WHERE r.role = ? GROUP BY ALL ORDER BY count(*) DESC, s.name",
        (role,),
    )
    for service in sorted({r[0] for r in rows}):
        found = _signal(case, role, service, [r for r in rows if r[0] == service], slope, window, grids)  # fmt: skip
        if found:
            yield found


def _signal(
    case: Case,
    role: str,
    service: str,
    rows: list[tuple[Any, ...]],
    slope: bool,
    window: str,
    grids: dict[str, Grid],
) -> Signal | None:
    by_how: dict[str, tuple[str, float]] = {}
    for _, name, how, scale, _, _ in rows:
        if _METRIC.fullmatch(name):
            by_how.setdefault(how, (name, scale))
    mean = rows[0][4] == "mean"
    pairs = {"num": ("den", "ratio"), "gnum": ("gden", "gratio")}
    top = next((h for h in ("num", "gnum", "rate", "gauge") if h in by_how), None)
    if top is None or (top in pairs and pairs[top][0] not in by_how):
        return None
    bottom = pairs[top][0] if top in pairs else None
    how = pairs[top][1] if top in pairs else ("slope" if slope and top == "gauge" else top)
    sides: dict[str, tuple[list[Series], list[Series]]] = {}
    selectors = {}
    for which in (top, bottom):
        if which is None:
            continue
        name = by_how[which][0]
        matched = _matched(case, role, service, name, which)
        selector, kept = _selector(role, name, which, matched)
        selectors[which] = selector
        for part, grid in grids.items():
            lists = sides.setdefault(part, ([], []))
            chosen = [(i, labels) for i, p, labels in kept if p == part][:_MOST_SERIES]
            lists[which == bottom].extend(_series(case, name, chosen, grid))
    scale = by_how[top][1]
    expr = _expr(how, mean, window, selectors[top], selectors.get(bottom or ""))
    return Signal(role, service, f"{expr} * {scale!r}" if scale != 1 else expr, how, mean, scale, sides)  # fmt: skip


def _matched(
    case: Case, role: str, service: str, name: str, how: str
) -> list[tuple[int, str, dict[str, str]]]:
    return case.rows(
        "SELECT s.id, src.part, s.labels FROM series_role AS r JOIN series AS s ON s.id = r.series_id "
        "JOIN source AS src ON src.id = s.source_id WHERE r.role = ? AND r.service = ? AND s.name = ? "
        "AND r.how = ? ORDER BY s.id",
        (role, service, name, how),
    )


def _selector(
    role: str, name: str, how: str, series: list[tuple[int, str, dict[str, str]]]
) -> tuple[str, list[tuple[int, str, dict[str, str]]]]:
    """The metric with what tells these series from others: the labels that name the service."""
    first = series[0][2]
    common = {
        k: v for k, v in first.items()
        if k in _NAMING and all(labels.get(k) == v for _, _, labels in series)
    }  # fmt: skip
    parts = [f"{k}={json.dumps(v)}" for k, v in sorted(common.items())]
    parts += [f"{k}=~{json.dumps(v)}" for k, v in sorted(sources(role, name, how).items())]
    plain = [s for s in series if all(_LABEL.fullmatch(k) for k in s[2])]
    return f"{name}{{{', '.join(parts)}}}" if parts else name, plain


def _expr(how: str, mean: bool, window: str, top: str, bottom: str | None) -> str:
    if how == "ratio":
        return f"sum(rate({top}[{window}])) / sum(rate({bottom}[{window}]))"
    if how == "rate":
        return f"sum(rate({top}[{window}]))"
    if how == "slope":
        return f"sum(deriv({top}[{window}]))"
    over = "avg" if mean else "sum"
    if how == "gratio":
        return f"{over}(avg_over_time({top}[{window}])) / {over}(avg_over_time({bottom}[{window}]))"
    return f"{over}(avg_over_time({top}[{window}]))"


def _series(
    case: Case, name: str, chosen: list[tuple[int, dict[str, str]]], grid: Grid
) -> Iterator[Series]:
    for key, labels in chosen:
        values = np.full(grid.scrapes, np.nan)
        for ts_ns, value in case.rows(
            "SELECT ts_ns, value FROM sample_aligned WHERE series_id = ? AND isfinite(value) ORDER BY ts_ns",
            (key,),
        ):
            slot = round((ts_ns - grid.start_ns) / grid.step_ns)
            if 0 <= slot < grid.scrapes:
                values[slot] = value
        told = ", ".join(f"{k}={json.dumps(v)}" for k, v in sorted(labels.items()))
        yield Series(f"{name}{{{told}}}", values)
