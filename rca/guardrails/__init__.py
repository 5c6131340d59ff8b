"""Guard rails: Prometheus rules for incidents of this kind, their unit tests, and how early they fire.

Thresholds are the healthy level plus two and a half standard deviations, and beyond everything that
the healthy side did; a rule is kept when it fires in the incident: golden signals are tried whatever
the cause.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rca import catalogue
from rca.case import Case
from rca.durable import write_whole
from rca.guardrails.evaluator import Values, firing, values
from rca.guardrails.rule_files import Rule, rules_file, test_file
from rca.guardrails.watch import Grid, Signal, signals

__all__ = ["propose", "write_files"]

RULES_FILE, TEST_FILE = "alerts.rules.yml", "alerts.test.yml"
_SIGMAS = 2.5
_MARGIN = 0.1
_LEAST_SCRAPES = 8
_MOST_SCRAPES = 720
_WINDOWS = (300, 120, 60, 30, 15, 10, 5)


def propose(case: Case) -> None:
    """Write guard_rule and guard_file for a diagnosed incident with metrics on both sides."""
    case.clear(["guard_rule", "guard_file"])
    cause = case.scalar(
        "SELECT cause FROM verdict WHERE status = 'diagnosed' AND judge = 'rules' ORDER BY rowid DESC LIMIT 1"
    )
    grids = _grids(case)
    if cause is None or grids is None:
        return
    known = catalogue.of(case)[cause]
    wanted = {r for r, (sign, _) in known.expected.items() if sign} | set(known.requires)
    # The growth of memory is a role of its own; here it is the slope of the level.
    wanted |= {r.removesuffix("_growth") for r in wanted}
    step_s = grids["baseline"].step_ns / 1e9
    steps = _window_steps(step_s, grids["baseline"].scrapes)
    found = [
        rule
        for role, row in _table().items()
        if role in wanted or row.get("golden")
        for signal in signals(
            case, role, bool(row.get("slope")), _duration(steps * step_s), grids
        )
        for rule in _rules(case, signal, row, steps, grids)
    ]
    if not found:
        return
    case.insert("guard_rule", pl.DataFrame([_row(i, r) for i, r in enumerate(found, start=1)], infer_schema_length=None))  # fmt: skip
    note = f"a range of {_duration(steps * step_s)}, as the recordings are short; 5m fits a longer reference"
    pairs = {
        RULES_FILE: rules_file(known.id, known.cls, found, note),
        TEST_FILE: test_file(RULES_FILE, known.id, known.cls, found, grids),
    }
    case.insert("guard_file", pl.DataFrame([{"name": n, "content": c} for n, c in pairs.items()]))  # fmt: skip


def write_files(case: Case, out: Path) -> list[Path]:
    """Write the rules and their tests below OUT/fixes; those of an earlier run go."""
    folder = out / "fixes"
    for name in (RULES_FILE, TEST_FILE):
        (folder / name).unlink(missing_ok=True)
    written = []
    for name, content in case.rows("SELECT name, content FROM guard_file ORDER BY name"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content)
        written.append(folder / name)
    return written


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(
        files("rca").joinpath("guardrails", "rules.toml").read_text(encoding="utf-8")
    )


def _grids(case: Case) -> dict[str, Grid] | None:
    """Scrape times of both sides, the healthy one being the baseline; None without metrics on both."""
    step_ns = case.scalar(
        "WITH gap AS (SELECT v.ts_ns - lag(v.ts_ns) OVER (PARTITION BY v.series_id ORDER BY v.ts_ns) AS ns "
        "FROM sample AS v JOIN series_role AS r ON r.series_id = v.series_id) "
        "SELECT CAST(median(ns) AS BIGINT) FROM gap WHERE ns > 0"
    )
    end_ns = case.scalar("SELECT end_ns FROM incident_window ORDER BY id LIMIT 1")
    spans = {
        part: (first, last)
        for part, first, last in case.rows(
            "SELECT s.part, min(v.ts_ns), max(v.ts_ns) FROM sample_aligned AS v "
            "JOIN series AS e ON e.id = v.series_id JOIN source AS s ON s.id = e.source_id GROUP BY 1"
        )
    }
    if not step_ns or end_ns is None or not {"baseline", "incident"} <= spans.keys():
        return None
    step_ns = max(round(step_ns / 1e9), 1) * 1_000_000_000
    grids = {}
    for part, (first, last) in spans.items():
        until = min(last, end_ns) if part == "incident" else last
        count = min((until - first) // step_ns + 1, _MOST_SCRAPES)
        # The newest part of a long side counts: for the incident that is the window.
        grids[part] = Grid(until - (count - 1) * step_ns, step_ns, count)
    return grids if all(g.scrapes >= _LEAST_SCRAPES for g in grids.values()) else None


def _window_steps(step_s: float, count: int) -> int:
    """Scrapes in a range: of the usual lengths the longest that the reference holds four times."""
    fits = (w for w in _WINDOWS if w >= 2 * step_s and w <= count * step_s / 4)
    return max(round(next(fits, 2 * step_s) / step_s), 2)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"


def _rules(
    case: Case, signal: Signal, row: dict[str, Any], steps: int, grids: dict[str, Grid]
) -> Iterator[Rule]:
    """At most one rule of a signal, and only one that would have told of this incident."""
    sides = {}
    step_s = grids["baseline"].step_ns / 1e9
    for part in ("baseline", "incident"):
        watched = signal.watched(part)
        if watched is None:
            return
        sides[part] = [values(watched, steps, step_s, closed=c) for c in (True, False)]
    before = 0 if row.get("early") else _scrapes_before(case, grids["incident"])
    healthy = np.concatenate([*sides["baseline"], *(v[:before] for v in sides["incident"])])
    healthy = healthy[np.isfinite(healthy)]
    if len(healthy) < _LEAST_SCRAPES:
        return
    threshold = _threshold(healthy, row)
    for_steps = _for_steps(row["for_s"], step_s, grids)
    both = [firing(v, threshold, row["side"], for_steps) for v in sides["incident"]]
    fires = both[0] & both[1]
    if not fires.any():
        return
    fires_at = int(np.argmax(fires))
    quiet_at = [i for i in range(grids["incident"].scrapes) if not (both[0][i] or both[1][i])]
    yield Rule(
        signal, row["side"], float(threshold), for_steps, row["action"], fires_at,
        tuple(np.flatnonzero(fires).tolist()), tuple(quiet_at), *_lead(case, fires_at, grids["incident"]),
        _times_fired(sides["baseline"], threshold, row["side"], for_steps), grids,
    )  # fmt: skip


def _scrapes_before(case: Case, grid: Grid) -> int:
    """Scrapes of the incident's recording that lie surely before its window."""
    start, margin = case.rows(
        "SELECT start_ns, coalesce(margin_ns, 0) FROM incident_window ORDER BY id LIMIT 1"
    )[0]
    return int(np.clip((start - margin - grid.start_ns) // grid.step_ns, 0, grid.scrapes))


def _threshold(healthy: Values, row: dict[str, Any]) -> float:
    """Mean and deviations of the healthy side, and beyond all that it did."""
    up = row["side"] == "up"
    sign = 1.0 if up else -1.0
    worst = float(healthy.max() if up else healthy.min())
    level = float(healthy.mean()) + sign * _SIGMAS * float(healthy.std())
    beyond = worst + sign * _MARGIN * max(abs(worst), 1e-9)
    found = max(level, beyond, row.get("least", -np.inf)) if up else min(level, beyond)
    return float(f"{found:.6g}")


def _for_steps(for_s: float, step_s: float, grids: dict[str, Grid]) -> int:
    """Scrapes that the condition must last; at most an eighth of a short incident."""
    longest = grids["incident"].scrapes // 8
    return max(min(round(for_s / step_s), longest), 1)


def _times_fired(sides: list[Values], threshold: float, side: str, for_steps: int) -> int:
    """How often the alert goes off on the healthy side, by the reading that fires more often."""
    return max(
        int((np.diff(firing(v, threshold, side, for_steps).astype(int), prepend=0) > 0).sum())
        for v in sides
    )


def _lead(case: Case, fires_at: int, grid: Grid) -> tuple[float, str]:
    """How much earlier than the alert that fired, else than the window's start, in s."""
    alerted = case.scalar(
        "SELECT min(a.start_ns + s.shift_ns) FROM alert AS a JOIN source AS s ON s.id = a.source_id, incident_window AS w "
        "WHERE w.id = 1 AND s.part = 'incident' AND a.start_ns + s.shift_ns BETWEEN w.start_ns - 3600000000000 AND w.end_ns"
    )
    start = case.scalar("SELECT start_ns FROM incident_window ORDER BY id LIMIT 1")
    against, name = (alerted, "alert") if alerted is not None else (start, "onset")
    return (against - grid.start_ns - fires_at * grid.step_ns) / 1e9, name


def _row(number: int, rule: Rule) -> dict[str, Any]:
    grid, healthy = rule.grids["incident"], rule.grids["baseline"]
    return {
        "id": number, "alert": rule.alert, "role": rule.signal.role, "service": rule.signal.service,
        "expr": rule.signal.expr, "side": rule.side, "threshold": rule.threshold,
        "for_s": rule.for_s, "action": rule.action,
        "fires_ns": grid.start_ns + rule.fires_at * grid.step_ns,
        "lead_s": rule.lead_s, "against": rule.against, "reference_firings": rule.reference_firings,
        "reference_s": (healthy.scrapes - 1) * healthy.step_ns / 1e9,
    }  # fmt: skip
