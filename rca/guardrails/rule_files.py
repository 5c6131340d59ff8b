"""The rule file and promtool's unit test of it, as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from rca.guardrails.watch import Grid, Series, Signal
from rca.plain import printable
from rca.signals import limit_of

_CHECKS = 12
_RUNBOOK = "rca causes {cause}"


@dataclass(frozen=True)
class Rule:
    """One alert and how it did on the recordings.

    Attributes:
        fires_at: Scrape of the incident at which it fires first.
        firing, quiet: Scrapes at which it surely fires, and surely does not.
        lead_s: How much earlier that is than what `against` names.
    """

    signal: Signal
    side: str
    threshold: float
    for_steps: int
    action: str
    fires_at: int
    firing: tuple[int, ...]
    quiet: tuple[int, ...]
    lead_s: float
    against: str
    reference_firings: int
    grids: dict[str, Grid]

    @property
    def record(self) -> str:
        """Name of the recording rule."""
        return f"rca:{_plain(self.signal.service or 'all')}:{_plain(self.signal.role)}"

    @property
    def alert(self) -> str:
        """Name of the alert."""
        words = f"{self.signal.service} {self.signal.role}".replace("_", " ")
        return "Rca" + "".join(w.capitalize() for w in re.findall(r"[A-Za-z0-9]+", words))

    @property
    def for_s(self) -> float:
        """How long the condition must last, s."""
        return self.for_steps * self.grids["incident"].step_ns / 1e9

    @property
    def condition(self) -> str:
        """What the alert compares."""
        return f"{self.record} {'>' if self.side == 'up' else '<'} {self.threshold!r}"


def _plain(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", text)


def _annotations(rule: Rule, cause: str) -> dict[str, str]:
    where = f" of {printable(rule.signal.service, 60)}" if rule.signal.service else ""
    side = "above" if rule.side == "up" else "below"
    name, limit = limit_of(rule.signal.role, rule.threshold, rule.signal.how == "slope")
    return {
        "summary": _literal(f"{name}{where} is {side} {limit}"),
        "action": rule.action,
        "runbook": _RUNBOOK.format(cause=cause),
    }


def _literal(text: str) -> str:
    """Text that Prometheus' templates leave as it is."""
    return text.replace("{{", "{ {").replace("}}", "} }")


def _labels(cls: str) -> dict[str, str]:
    return {"severity": "page", "rca_class": cls}


def rules_file(cause: str, cls: str, rules: list[Rule], note: str) -> str:
    """Recording and alerting rules of one group."""
    entries: list[dict[str, Any]] = [{"record": r.record, "expr": r.signal.expr} for r in rules]
    entries += [
        {
            "alert": r.alert, "expr": r.condition, "for": f"{round(r.for_s)}s",
            "labels": _labels(cls), "annotations": _annotations(r, cause),
        }
        for r in rules
    ]  # fmt: skip
    step_s = round(rules[0].grids["incident"].step_ns / 1e9)
    group = {"name": f"rca-{cause}", "interval": f"{step_s}s", "rules": entries}
    head = (
        f"# Proposed by rca for incidents like {cause} ({cls}); read it before you load it.\n"
        "# Thresholds: healthy mean + 2.5 standard deviations, and beyond all that the healthy side did.\n"
        f"# Ranges: {note}.\n# Test: promtool test rules alerts.test.yml\n"
    )
    return head + _yaml({"groups": [group]})


def test_file(
    name: str, cause: str, cls: str, rules: list[Rule], grids: dict[str, Grid]
) -> str:
    """promtool's test: silent on the healthy side, firing in the incident, on the recorded series."""
    tests = [_test(cause, cls, rules, part, grids[part]) for part in ("baseline", "incident")]
    step_s = round(grids["incident"].step_ns / 1e9)
    head = "# Series are those of the recordings. Run: promtool test rules alerts.test.yml\n"
    document = {"rule_files": [name], "evaluation_interval": f"{step_s}s", "tests": tests}
    return head + _yaml(document)


def _test(cause: str, cls: str, rules: list[Rule], part: str, grid: Grid) -> dict[str, Any]:
    step_s = round(grid.step_ns / 1e9)
    series: dict[str, Series] = {}
    for rule in rules:
        for side in rule.signal.series[part]:
            series |= {s.name: s for s in side}
    checks = [
        {
            "eval_time": f"{at * step_s}s", "alertname": rule.alert,
            "exp_alerts": [
                {"exp_labels": _labels(cls), "exp_annotations": _annotations(rule, cause)}
            ] if fires else [],
        }
        for rule in rules
        for at, fires in _checked(rule, part, grid)
    ]  # fmt: skip
    inputs = [{"series": s.name, "values": _values(s)} for s in series.values()]
    told = "healthy side" if part == "baseline" else "incident"
    return {
        "name": told,
        "interval": f"{step_s}s",
        "input_series": inputs,
        "alert_rule_test": checks,
    }


def _checked(rule: Rule, part: str, grid: Grid) -> Iterator[tuple[int, bool]]:
    """Scrapes to look at, spread out, with whether the alert fires there."""
    if part == "baseline":
        yield from ((at, False) for at in _spread(range(grid.scrapes)))
        return
    yield from ((at, False) for at in _spread(rule.quiet)[:4])
    yield from ((at, True) for at in _spread(rule.firing)[:4])


def _spread(at: Any) -> list[int]:
    many = list(at)
    picked: Any = np.linspace(0, len(many) - 1, min(_CHECKS, len(many))) if many else []
    return sorted({many[round(float(i))] for i in picked})


def _values(series: Series) -> str:
    return " ".join("_" if np.isnan(v) else repr(float(v)) for v in series.values)


def _yaml(document: dict[str, Any]) -> str:
    # The C library writes the same, seven times faster, where PyYAML was built with it.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, width=10_000)
    return text
