"""Settings held against the rules of lint.toml: what is configured, and what changes set.

A finding is no cause: it says that a value is outside of what is known to be safe, or that a
change forgot its partner.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

from rca.case import Case
from rca.patch import settings_in
from rca.plain import printable

_NUMBER = re.compile(
    r"\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(m|k|ki|mi|gi|g|t|ti)?\b.*", re.IGNORECASE
)
_FACTORS = {
    "m": 1e-3, "k": 1e3, "g": 1e9, "t": 1e12, "ki": 1024.0, "mi": 1024.0**2, "gi": 1024.0**3,
    "ti": 1024.0**4,
}  # fmt: skip
_KUBERNETES = re.compile(
    r"(Deployment|StatefulSet|DaemonSet|ReplicaSet|Pod|Job|CronJob|LeaderWorkerSet|InferenceService)/"
)


@dataclass(frozen=True)
class Rule:
    """One rule of lint.toml; see the head of that file."""

    id: str
    severity: str
    unit: str
    why: str
    keys: Mapping[str, float]
    low: float | None = None
    high: float | None = None
    times: tuple[str, ...] = ()
    per: tuple[str, ...] = ()
    at_most: str | None = None
    at_least: str | None = None
    is_: tuple[str, ...] = ()
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partner: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    absent: str | None = None
    nested: bool = False
    cluster: bool = False
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A setting that holds or held; `change_id` names the change that set it, if one did."""

    subject: str
    key: str
    value: str
    source_id: int
    change_id: str | None = None
    before: str | None = None


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of lint.toml."""
    table = tomllib.loads(files("rca").joinpath("lint.toml").read_text(encoding="utf-8"))
    return tuple(_rule(name, row) for name, row in table.items())


def _rule(name: str, row: dict[str, Any]) -> Rule:
    facts = {
        k: v
        for k, v in row.items()
        if k in ("severity", "unit", "why", "low", "high", "at_least", "nested", "cluster")
    }
    return Rule(
        name,
        keys={_plain(k): float(v) for k, v in row["keys"].items()},
        times=tuple(map(_plain, row.get("times", ()))),
        per=tuple(map(_plain, row.get("per", ()))),
        at_most=_plain(row["at_most"]) if "at_most" in row else None,
        is_=tuple(row.get("is", ())),
        when={_plain(k): tuple(v) for k, v in row.get("when", {}).items()},
        partner=tuple(map(_plain, row.get("partner", ()))),
        beside=tuple(map(_plain, row.get("beside", ()))),
        absent=_plain(row["absent"]) if "absent" in row else None,
        causes=tuple(row.get("causes", ())),
        **facts,
    )


def check(case: Case) -> int:
    """Write lint_finding; returns the number of findings."""
    case.clear(["lint_finding"])
    # A change tells more than the configuration that it led to, so it comes first.
    settings = [*_changed(case), *_configured(case)]
    facts = _facts(case)
    rows: list[dict[str, Any]] = []
    for rule in rules():
        for one in settings:
            problem = (
                _problem(rule, one, settings, facts)
                if _factor(rule, one.key) is not None
                else None
            )
            if problem and not any(_told(row, rule, one) for row in rows):
                severity, expected, statement = problem
                row = {
                    "rule": rule.id, "severity": severity, "subject": one.subject,
                    "key": rule.absent or one.key, "value": "not set" if rule.absent else one.value, "expected": expected, "statement": statement,
                    "change_id": one.change_id, "source_id": one.source_id,
                    "causes": list(rule.causes) if severity == "warning" else [],
                }  # fmt: skip
                rows.append(row)
    rows.sort(key=lambda r: (r["severity"] != "warning", r["rule"], r["subject"], r["key"]))
    schema: dict[str, Any] = {"change_id": pl.String, "causes": pl.List(pl.String)}
    return (
        case.insert("lint_finding", pl.DataFrame(rows, schema_overrides=schema)) if rows else 0
    )


def _told(row: Mapping[str, Any], rule: Rule, one: Setting) -> bool:
    """Whether a finding says this already, of another record of the same setting."""
    same = (row["rule"], row["value"]) == (rule.id, "not set" if rule.absent else one.value)
    return same and _related(row["subject"], one.subject)


def _configured(case: Case) -> Iterator[Setting]:
    """The incident's settings in force: of configuration, of start-up logs, of info metrics."""
    latest: dict[tuple[str, str], Setting] = {}
    for subject, key, value, source_id in case.rows(
        "SELECT c.subject, c.key, c.value, c.source_id FROM config AS c JOIN source AS s ON s.id = c.source_id "
        "WHERE s.part = 'incident' AND c.value IS NOT NULL ORDER BY c.ts_ns NULLS FIRST, c.source_id, c.key"
    ):
        latest[subject, _plain(key)] = Setting(subject, key, value, source_id)
    for labels, source_id in case.rows(
        "SELECT labels, source_id FROM info_seen WHERE part = 'incident' AND name LIKE '%cache_config_info' "
        "ORDER BY last_ns, CAST(labels AS VARCHAR)"
    ):
        pod = labels.get("pod") or labels.get("job") or labels.get("instance") or "engine"
        for key, value in labels.items():
            latest[f"metrics/{pod}", _plain(key)] = Setting(
                f"metrics/{pod}", key, value, source_id
            )
    yield from latest.values()


def _changed(case: Case) -> Iterator[Setting]:
    for change_id, subject, before, after, source_id in case.rows(
        "SELECT c.id, c.subject, c.before, c.after, c.source_id FROM change AS c "
        "JOIN source AS s ON s.id = c.source_id WHERE s.part = 'incident' ORDER BY c.ts_ns, c.id"
    ):
        old = {_plain(s.key): s.value for s in settings_in(before)}
        for new in settings_in(after):
            before_it = old.get(_plain(new.key))
            if before_it != new.value:
                yield Setting(subject, new.key, new.value, source_id, change_id, before_it)
            else:  # told, but not set by this change
                yield Setting(subject, new.key, new.value, source_id)


def _facts(case: Case) -> dict[str, float]:
    tokens = case.scalar(
        "SELECT avg(input_tokens + coalesce(output_tokens, 0)) FROM request WHERE input_tokens IS NOT NULL"
    )
    return {} if tokens is None else {"request_tokens": float(tokens)}


def _problem(
    rule: Rule, one: Setting, settings: list[Setting], facts: Mapping[str, float]
) -> tuple[str, str, str] | None:
    """(severity, what would be safe, sentence), None when the setting is safe or cannot be judged."""
    if not _speaks(rule, one, settings):
        return None
    if rule.partner:
        return _partner_problem(rule, one, settings)
    if rule.absent:
        return _absent_problem(rule, one, settings)
    if rule.is_:
        bad = (rule.severity, f"not {_text(one.value)}", _sentence(rule, one, None))
        return bad if _text(one.value) in rule.is_ else None
    return _range_problem(rule, one, settings, facts)


def _speaks(rule: Rule, one: Setting, settings: list[Setting]) -> bool:
    """Whether the settings beside this one are those that the rule is for."""
    met = not rule.when or any(
        (other := _other(one, key, settings)) and _text(other.value) in values
        for key, values in rule.when.items()
    )
    beside = (_other(one, key, settings) for key in rule.beside)
    return met and (not rule.beside or any(b and number(b.value) != 0 for b in beside))


def _range_problem(
    rule: Rule, one: Setting, settings: list[Setting], facts: Mapping[str, float]
) -> tuple[str, str, str] | None:
    """A value that is below what is safe, or above it."""
    value = _measure(rule, one, settings)
    if value is None:
        return None
    low, high = rule.low, rule.high
    if rule.at_most and (limit := _other(one, rule.at_most, settings)):
        high = number(limit.value)
    if rule.at_least:
        low = facts.get(rule.at_least)
    if (low is None or value >= low) and (high is None or value <= high):
        return None
    return rule.severity, _range(low, high, rule.unit), _sentence(rule, one, value)


def _partner_problem(
    rule: Rule, one: Setting, settings: list[Setting]
) -> tuple[str, str, str] | None:
    """A change of a setting whose partner was not changed with it, by any change of the workload."""
    if one.change_id is None or one.before is None:
        return None
    partners = [
        s
        for s in settings
        if _plain(s.key) in rule.partner and _related(one.subject, s.subject)
        and _text(s.value) not in ("", "null", "none")
    ]  # fmt: skip
    if any(s.change_id for s in partners):
        return None
    names = " or ".join(rule.partner)
    if not partners:
        # Engines take the tokenizer of the model unless one is set: then nothing is forgotten there.
        return "notice", f"{names} to follow", _sentence(rule, one, None)
    kept = partners[0]
    told = f"{_sentence(rule, one, None)}; {printable(kept.key, 60)} stays {printable(kept.value, 60)}"
    return rule.severity, f"{names} changed with it", told


def _absent_problem(
    rule: Rule, one: Setting, settings: list[Setting]
) -> tuple[str, str, str] | None:
    """A container of Kubernetes for which a setting was not made; the file says all that there is."""
    mine = {_plain(s.key) for s in settings if s.subject == one.subject}
    if one.change_id or rule.absent in mine or not _KUBERNETES.match(one.subject):
        return None
    return (
        rule.severity,
        "set",
        f"{printable(one.subject, 60)} has no {rule.absent}: {rule.why}",
    )


def _factor(rule: Rule, key: str) -> float | None:
    """Factor of a setting that a rule reads, None for others."""
    plain = _plain(key)
    return rule.keys.get(
        plain, rule.keys.get(plain.rpartition(".")[2]) if rule.nested else None
    )


def _measure(rule: Rule, one: Setting, settings: list[Setting]) -> float | None:
    """The setting in the rule's unit, None when a part of it is not known."""
    value = number(one.value)
    if value is None:
        return None
    value *= _factor(rule, one.key) or 0.0
    for key in rule.times:
        other = _other(one, key, settings, anywhere=rule.cluster)
        factor = number(other.value) if other else None
        if factor is None:
            return None
        value *= factor
    for key in rule.per:
        divisor = number(other.value) if (other := _other(one, key, settings)) else None
        if not divisor:
            return None
        value /= divisor
    return value


def number(text: str) -> float | None:
    """A number as configuration writes it ('500m', '512M', '4Gi', '0.9'), None when it is none."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    unit = found[2] or ""
    return float(found[1]) * (1e6 if unit == "M" else _FACTORS.get(unit.lower(), 1.0))


def _other(
    one: Setting, key: str, settings: list[Setting], *, anywhere: bool = False
) -> Setting | None:
    """Another setting of the same workload; the same subject comes first.

    Args:
        anywhere: Of any workload, wherever the key stands in nested settings.
    """
    known = [
        s for s in settings
        if (_plain(s.key) == key and _related(one.subject, s.subject))
        or (anywhere and f".{_plain(s.key)}".endswith(f".{key}"))
    ]  # fmt: skip
    return next((s for s in known if s.subject == one.subject), known[0] if known else None)


def _sentence(rule: Rule, one: Setting, value: float | None) -> str:
    shown = printable(one.value, 60)
    measured = f" ({value:.4g} {rule.unit})" if value is not None and rule.unit else ""
    return f"{printable(one.key, 60)} of {printable(one.subject, 60)} is {shown}{measured}: {rule.why}"


def _range(low: float | None, high: float | None, unit: str) -> str:
    if low is not None and high is not None:
        words = f"{low:.4g} to {high:.4g}"
    else:
        words = f"at least {low:.4g}" if low is not None else f"at most {high or 0:.4g}"
    return f"{words} {unit}".strip()


def _plain(key: str) -> str:
    return key.strip().lstrip("-").replace("-", "_").lower()


def _text(value: str) -> str:
    return value.strip().strip("\"'").lower()


def _workload(subject: str) -> str:
    """The name in a subject, without its kind and a replica's ending."""
    return re.sub(
        r"(-[a-z0-9]{8,10}-[a-z0-9]{5}|-\d+)$", "", subject.rsplit("/", 1)[-1].lower()
    )


def _related(subject: str, other: str) -> bool:
    a, b = _workload(subject), _workload(other)
    return a == b or (bool(a) and a in b) or (bool(b) and b in a)
