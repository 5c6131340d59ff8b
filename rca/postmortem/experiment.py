"""The experiment in tables: set-ups side by side, doses and candidates, effects over pairs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from statistics import median
from typing import Any

from rca.answer import Trial
from rca.case import Case
from rca.plain import duration, number, percent

RUNS_SQL = "SELECT arm, pair, engine, figure, value FROM trial_arm ORDER BY ALL"
_ORDER = ("healthy", "control", "fault", "fix", "placebo")
_MOVED = math.log(1.05)
_KEY_FIGURES = 5
_DETAILS = 60
_DETAIL_WORDS = {
    "budget_s": "wall time allowed, s",
    "claim": "what it can tell of",
    "dose_response.doses": "doses tried",
    "dose_response.figure": "figure that answers to the dose",
    "dose_response.log_ratios": "logarithm of its ratio to healthy, by dose",
    "dose_response.monotone": "whether it grows with the dose",
    "left_out": "candidates left out",
}
_LATENCY = re.compile(r"(ttft|itl|e2e|request|dependency|queue)_(p\d+|mean)$")
_Medians = dict[tuple[str, str], dict[str, float]]  # (engine, figure) → arm → median


@dataclass(frozen=True)
class Table:
    """A table of the document: all cells are text."""

    title: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Experiment:
    """Everything shown of a trial.

    Attributes:
        tables: Tables that have rows, in the order of reading.
        n_steady: Figures that no set-up moved and that are left out.
        details: Settings and fidelity as name and value.
    """

    tables: list[Table]
    n_steady: int
    details: list[tuple[str, str]]


def describe(case: Case, trial: Trial) -> Experiment:
    """The tables of the trial of a case; all empty when nothing ran."""
    medians = _medians(case)
    details = dict(trial.details or {})
    effects, ranks = details.pop("effects", {}), details.pop("ranks", [])
    setups = {
        key: {a: v for a, v in arms.items() if _is_setup(a)} for key, arms in medians.items()
    }
    moved = {key: arms for key, arms in setups.items() if _is_moved(arms)}
    tables = [
        _setups(moved),
        _doses(medians, trial.cause or "fault"),
        _effects(effects),
        _ranks(ranks),
        _fidelity(case),
        *_what_if(case),
    ]
    n_steady = len(medians) - len(moved)
    named = [(_words(key), value) for key, value in flat(details)[:_DETAILS]]
    return Experiment([t for t in tables if t.rows], n_steady, named)


def _words(key: str) -> str:
    """The name of a detail for people; one that has none here as it is, without its signs."""
    return _DETAIL_WORDS.get(key) or key.replace(".", ", ").replace("_", " ")


def _fidelity(case: Case) -> Table:
    """How true to the recordings the model's healthy service was."""
    kept = {True: "yes", False: "no", None: ""}
    rows = [
        [quantity, observed or "unknown", modelled, kept[is_kept], source, note]
        for quantity, observed, modelled, is_kept, source, note in case.rows(
            "SELECT quantity, observed, modelled, kept, source, note FROM trial_fidelity"
        )
    ]
    head = ["Quantity", "Recorded", "Model", "Kept", "Source", "Note"]
    return Table("Fidelity: the model's healthy service beside the recorded one", head, rows)


def _what_if(case: Case) -> list[Table]:
    """What each study recommends, with all figures of the setting."""
    tables: dict[str, list[list[str]]] = {}
    devices: dict[str, dict[str, None]] = {}
    for study, setting, load, engine, figure, value, unit, device in case.rows(
        "SELECT study, setting, load, engine, figure, value, unit, device FROM what_if "
        "WHERE recommended ORDER BY study, rowid"
    ):
        shown = {"ns": duration, "share": percent}.get(unit, number)(value)
        at = "" if load is None else f"×{number(load)}"
        tables.setdefault(study, []).append([setting, at, engine, figure, shown])
        devices.setdefault(study, {})[device] = None
    head = ["Setting", "Load", "Engine", "Figure", "Value"]
    return [
        Table(
            f"What if, {study}: what the model recommends ({'; '.join(devices[study])})",
            head,
            rows,
        )
        for study, rows in tables.items()
    ]


def flat(details: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as `a.b` and a value."""
    rows: list[tuple[str, str]] = []
    for key, value in details.items():
        if isinstance(value, dict):
            rows += flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", _shown(value)))
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return number(float(value))
    if isinstance(value, list):
        return ", ".join(_shown(v) for v in value) or "none"
    return value if isinstance(value, str) else json.dumps(value)


def _medians(case: Case) -> _Medians:
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for engine, figure, arm, value in case.rows(
        "SELECT engine, figure, arm, value FROM trial_arm WHERE isfinite(value) ORDER BY ALL"
    ):
        values.setdefault((engine, figure), {}).setdefault(arm, []).append(value)
    return {key: {arm: median(v) for arm, v in arms.items()} for key, arms in values.items()}


def _is_moved(arms: dict[str, float]) -> bool:
    healthy = arms.get("healthy", 0.0)
    return any(
        abs(_log(value, healthy)) > _MOVED for arm, value in arms.items() if arm != "control"
    )


def _log(value: float, healthy: float) -> float:
    if value == healthy:
        return 0.0
    return math.log(value / healthy) if value > 0 and healthy > 0 else math.inf


def _setups(medians: _Medians) -> Table:
    """Figures down, set-ups across, with what two equal set-ups differ by."""
    there = {arm for arms in medians.values() for arm in arms}
    names = [n for n in _ORDER if n in there] + sorted(there - set(_ORDER))
    rows = [
        [engine, figure, *(_cell(figure, arms, name) for name in names), _floor(arms)]
        for (engine, figure), arms in medians.items()
    ]
    return Table(
        "Set-ups: medians over the runs (ratio to healthy)",
        ["Engine", "Figure", *names, "A/A floor"],
        rows,
    )


def _cell(figure: str, arms: dict[str, float], arm: str) -> str:
    if arm not in arms:
        return ""
    shown = duration(arms[arm]) if _LATENCY.match(figure) else number(arms[arm])
    return shown if arm == "healthy" else f"{shown}{_times(arms, arm, ' (×{})')}"


def _times(arms: dict[str, float], arm: str, form: str) -> str:
    healthy = arms.get("healthy")
    return form.format(number(arms[arm] / healthy)) if healthy and arm in arms else ""


def _floor(arms: dict[str, float]) -> str:
    healthy, control = arms.get("healthy"), arms.get("control")
    return percent(abs(control / healthy - 1)) if healthy and control is not None else ""


def _doses(medians: _Medians, cause: str) -> Table:
    """Causes and doses down, the figures that the fault moves most across."""
    chosen = [k for k, arms in medians.items() if arms.get("healthy") and "fault" in arms]
    chosen = [k for k in chosen if not all(map(_is_setup, medians[k]))]
    chosen.sort(key=lambda k: (-abs(_log(medians[k]["fault"], medians[k]["healthy"])), k))
    chosen = chosen[:_KEY_FIGURES]
    tried = {a for k in chosen for a in medians[k] if a == "fault" or not _is_setup(a)}
    rows = [
        [*_dosed(arm, cause), *(_times(medians[k], arm, "×{}") for k in chosen)]
        for arm in sorted(
            tried, key=lambda a: (_dosed(a, cause)[0], float(_dosed(a, cause)[1]))
        )
    ]
    head = ["Cause", "Dose", *(f"{figure} ({engine})" for engine, figure in chosen)]
    return Table("Doses and other candidates: ratio to healthy", head, rows)


def _is_setup(arm: str) -> bool:
    return "@" not in arm and not arm.startswith("candidate:")


def _dosed(arm: str, cause: str) -> tuple[str, str]:
    """Cause and dose of an arm such as `candidate:ID@0.5`; without a dose it is 1."""
    name, _, dose = arm.removeprefix("candidate:").partition("@")
    known = re.fullmatch(r"[0-9]+(\.[0-9]+)?", dose)
    return cause if name == "fault" else name, dose if known else "1"


def _effects(effects: dict[str, dict[str, dict[str, Any]]]) -> Table:
    rows = [
        [
            arm,
            figure,
            f"×{number(e['ratio'])} [{number(e['low'])}–{number(e['high'])}]",
            _delta(e.get("cliffs_delta")),
            str(e["pairs"]),
        ]
        for arm, figures in sorted(effects.items())
        for figure, e in sorted(figures.items())
        if {"ratio", "low", "high", "pairs"} <= set(e)
    ]
    return Table(
        "Effects over pairs of runs",
        ["Set-up", "Figure", "Ratio to healthy, 95 % interval", "Cliff's delta", "Pairs"],
        rows,
    )


def _delta(value: Any) -> str:
    """How seldom the runs of two set-ups overlap: 1 or -1 never, 0 when they are alike."""
    return "" if value is None else number(float(value))


def _ranks(ranks: list[dict[str, Any]]) -> Table:
    rows = [
        [
            _shown(r.get("cause")),
            _shown(r.get("dose")),
            _shown(r.get("likeness")),
            _shown(r.get("worst_figure")),
        ]
        for r in ranks
    ]
    return Table(
        "Which cause looks most like the incident",
        ["Cause", "Dose", "Likeness, -1 to 1", "Worst in"],
        rows,
    )
