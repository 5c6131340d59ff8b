"""What a case holds as typed facts: every string of the bundle abstracted or masked."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rca.case import Case, sql_files
from rca.catalogue import Cause
from rca.judge.abstraction import changed_settings, one_of, setting, target, words
from rca.judge.redaction import Masker
from rca.signals import group_of, groups, meanings

_SOURCES = frozenset(
    {"metrics", "trace", "torch_profiler", "gpu", "nsys", "log", "alert", "change", "config"}
)
_PARTS = frozenset({"queue", "prefill", "decode", "engine, rest", "gateway and network",
                    "no engine span", "end to end", "residual"})  # fmt: skip
_CALLS = "calls of "
_OTHER_CHANGE = 0.2
_NAMELESS = 0.02
_SHOWN_GROUPS = 4
"""Operations and cohorts that a question names, each; log lines and kernels stand in lists of their own."""
_FAR_CHANGE = -1.0
_NEAR_CHANGES = 8
"""What weighs little, however much there is of it: a bundle must not crowd its own evidence out."""
_OWN_NAME = re.compile(r"[a-z, _]{1,80}")


@dataclass(frozen=True)
class Fact:
    """One row of evidence as it is shown.

    Attributes:
        shown: What is sent of it; numbers quoted must stand here.
        weight: What decides who stays when room is short.
    """

    id: str
    role: str | None
    direction: str
    strength: float
    shown: dict[str, Any]
    weight: float


@dataclass(frozen=True)
class Candidate:
    """One cause of the ranking, without its rank."""

    cause: str
    cls: str
    supports: tuple[str, ...]
    contradicts: tuple[str, ...]
    missing: tuple[str, ...]
    shown: dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """Everything that may be sent of a case."""

    evidence: list[Fact]
    candidates: list[Candidate]
    context: dict[str, Any]
    masker: Masker = field(compare=False)


def collect(case: Case, causes: dict[str, Cause]) -> Facts:
    """The facts of the first incident window; without hypotheses there are no candidates."""
    masker = Masker()
    engines = {s for (s,) in _query(case, "50_engines.sql")}
    start_ns = case.scalar(
        "SELECT start_ns FROM incident_window WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    candidates = list(_candidates(case, causes))
    required = {r for c in candidates for r in causes[c.cause].requires}
    near = _near_changes(case, {e for c in candidates for e in c.supports}, start_ns)
    evidence = list(_evidence(case, masker, start_ns, required, near))
    context = {
        "window": _window(case),
        "services": _services(masker, engines),
        "settings_that_differ": [
            {"of": target(subject, masker), **setting(key, before, after, masker)}
            for subject, key, before, after in _query(case, "40_config.sql")
        ],
        "alerts": [
            {"alert": masker.mask("alert", name), "severity": one_of(severity, "severities"),
             "seconds_after_start": number(after_s), "words": words(name)}
            for name, severity, after_s in _query(case, "30_alerts.sql")
        ],
        "log_lines_that_rose": [
            {"line": masker.mask("log", template), "level": one_of(level, "severities"),
             "before": before, "during": during, "words": words(template)}
            for template, level, before, during in _query(case, "10_logs.sql")
        ],
        "kernels": [
            {"kernel": masker.mask("kernel", name), "share_before": number(before),
             "share_during": number(during), "words": words(name)}
            for name, before, during in _query(case, "20_kernels.sql")
        ],
        "groups_of_slow_requests": [
            {"name": name, "requests": size}
            for name, size in case.rows("SELECT name, size FROM pattern WHERE kind = 'request' ORDER BY id")
            if _OWN_NAME.fullmatch(name)
        ],
        "groups_of_events": _event_groups(case, masker),
        "missing_sources": [
            code
            for (code,) in case.rows("SELECT code FROM gap ORDER BY rowid")
            if _OWN_NAME.fullmatch(code)
        ],
    }  # fmt: skip
    return Facts(evidence, candidates, context, masker)


def number(value: float | None) -> float | int | None:
    """A value with four significant digits, None when it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _query(case: Case, name: str) -> list[tuple[Any, ...]]:
    return case.rows(dict(sql_files("judge"))[name])


def _window(case: Case) -> dict[str, Any]:
    rows = case.rows(
        "SELECT (end_ns - start_ns) / 1e9, detected_by FROM incident_window "
        "WHERE status = 'incident' ORDER BY id LIMIT 1"
    )
    if not rows:
        return {}
    seconds, by = rows[0]
    found = by if by in ("slo", "hint", "alert", "scan") else "other"
    return {"seconds": number(seconds), "found_by": found}


def _event_groups(case: Case, masker: Masker) -> list[dict[str, list[str]]]:
    """What moved, alarmed and was logged together, each group in the order of its onsets."""
    found: dict[int, dict[str, list[str]]] = {}
    for key, role, alert, template in _query(case, "60_event_groups.sql"):
        group = found.setdefault(key, {"roles": [], "alerts": [], "log_lines": []})
        if role in meanings() and role not in group["roles"]:
            group["roles"].append(role)
        if alert is not None:
            group["alerts"].append(masker.mask("alert", alert))
        if template is not None:
            group["log_lines"].append(masker.mask("log", template))
    return [group for group in found.values() if any(group.values())]


def _services(masker: Masker, engines: set[str]) -> list[dict[str, str]]:
    return [
        {"service": row["placeholder"], "kind": "engine" if row["value"] in engines else "other"}
        for row in masker.table()
        if row["placeholder"].startswith("service-") or row["value"] in engines
    ]  # fmt: skip


def _evidence(
    case: Case, masker: Masker, start_ns: int | None, required: set[str], near: dict[str, float]
) -> Iterator[Fact]:
    changes = {
        (row[0], row[5]): row
        for row in case.rows("SELECT id, kind, subject, before, after, ts_ns FROM change")
    }
    parts = {
        evidence: (part, share)
        for part, share, evidence in case.rows("SELECT part, share, evidence FROM attribution")
    }
    groups_shown: Counter[str] = Counter()
    for row in case.sql(
        "SELECT id, source, role, service, subject, unit, direction, reference, observed, effect, "
        "effect_low, effect_high, strength, n_reference, n_observed, onset_ns FROM evidence ORDER BY rowid"
    ).iter_rows(named=True):
        if not re.fullmatch(r"E[0-9]{1,6}", row["id"]) or _crowds(row, groups_shown):
            continue
        if row["direction"] == "event":
            change = changes.get((row["subject"], row["onset_ns"]))
            yield _event(row, change, masker, start_ns, near)
        else:
            yield _move(row, parts.get(row["id"]), masker, start_ns, required)


def _crowds(row: dict[str, Any], shown: Counter[str]) -> bool:
    """Whether a row speaks of a group, and enough of its kind are shown already or in another place."""
    group = group_of(row["source"], row["role"], row["subject"])
    if group is None:
        return False
    kind = group[0].partition("_")[0]
    shown[kind] += 1
    return kind not in ("call", "cohort") or shown[kind] > _SHOWN_GROUPS


def _near_changes(case: Case, matched: set[str], start_ns: int | None) -> dict[str, float]:
    """Weights of changes: those that a candidate rests on, then the few nearest to the window."""
    rows = case.rows(
        "SELECT id FROM evidence WHERE direction = 'event' ORDER BY abs(onset_ns - ?) NULLS LAST, rowid",
        [start_ns or 0],
    )
    others = [key for (key,) in rows if key not in matched]
    return {key: 1.0 for (key,) in rows if key in matched} | dict.fromkeys(
        others[:_NEAR_CHANGES], _OTHER_CHANGE
    )


def _event(
    row: dict[str, Any],
    change: tuple[Any, ...] | None,
    masker: Masker,
    start_ns: int | None,
    near: dict[str, float],
) -> Fact:
    shown: dict[str, Any] = {"id": row["id"], "kind": "change", "direction": "event"}
    if change is not None:
        _, kind, subject, before, after, ts_ns = change
        shown |= {
            "change": masker.mask("change", row["subject"]),
            "what": one_of(kind, "changes"),
            "of": target(subject, masker),
            "settings": changed_settings(before, after, masker),
            "words": words(f"{before or ''} {after or ''}"),
        }
        if start_ns is not None:
            shown["seconds_before_window"] = number((start_ns - ts_ns) / 1e9)
    return Fact(row["id"], "change", "event", 0.0, shown, near.get(row["id"], _FAR_CHANGE))


def _move(
    row: dict[str, Any],
    part: tuple[str, float | None] | None,
    masker: Masker,
    start_ns: int | None,
    required: set[str],
) -> Fact:
    role = row["role"] if row["role"] in meanings() else None
    shown: dict[str, Any] = {"id": row["id"]}
    if role:
        shown |= {
            "role": role,
            "meaning": meanings()[role].meaning,
            "unit": meanings()[role].unit,
        }
    elif group := group_of(row["source"], row["role"], row["subject"]):
        told = groups()[group[0]]
        shown |= {
            "group": masker.mask("metric", group[1]),
            "meaning": told.meaning,
            "unit": told.unit,
            "words": words(group[1]),
        }
    elif part or str(row["subject"]).startswith("latency:"):
        shown |= _latency_part(str(row["subject"]).removeprefix("latency:"), part, masker)
    else:
        shown |= {
            "metric": masker.mask("metric", row["subject"]),
            "words": words(row["subject"]),
        }
    if row["service"]:
        shown["service"] = masker.mask("service", row["service"])
    shown["source"] = row["source"] if row["source"] in _SOURCES else "other"
    shown["direction"] = row["direction"]
    shown |= {key: number(row[key]) for key in ("reference", "observed")}
    for name, key in (
        ("ratio", "effect"),
        ("ratio_low", "effect_low"),
        ("ratio_high", "effect_high"),
    ):
        if row[key] is not None and abs(row[key]) < 30:
            shown[name] = number(math.exp(row[key]))
    shown |= {"strength": number(row["strength"]), "n": [row["n_reference"], row["n_observed"]]}
    if row["onset_ns"] is not None and start_ns is not None:
        shown["onset_s"] = number((row["onset_ns"] - start_ns) / 1e9)
    needed = role in required or bool(part)
    known = 1.0 if role or part else _NAMELESS
    weight = max(known * abs(row["strength"]), 0.25 if needed else 0.0)
    return Fact(row["id"], role, row["direction"], row["strength"], shown, weight)  # fmt: skip


def _latency_part(
    name: str, part: tuple[str, float | None] | None, masker: Masker
) -> dict[str, Any]:
    callee = name.removeprefix(_CALLS)
    if name in _PARTS:
        shown: dict[str, Any] = {"latency_part": name, "unit": "ns"}
    elif callee != name:
        shown = {"latency_part": f"{_CALLS}{masker.mask('service', callee)}", "unit": "ns"}
    else:
        shown = {"latency_part": masker.mask("metric", name), "unit": "ns"}
    if part and part[1] is not None:
        shown["share_of_added_latency"] = number(part[1])
    return shown


def _candidates(case: Case, causes: dict[str, Cause]) -> Iterator[Candidate]:
    for cause, share, evidence, contradicting, missing in case.rows(
        "SELECT cause, explained_share, evidence, contradicting, missing FROM hypothesis ORDER BY rank"
    ):
        known = causes.get(cause)
        if known is None:
            continue
        roles = tuple(m["role"] for m in json.loads(missing) if m["role"] in meanings())
        sides = {"up": 1, "down": -1, "unmoved": 0}
        yield Candidate(
            cause,
            known.cls,
            tuple(json.loads(evidence)),
            tuple(json.loads(contradicting)),
            roles,
            {
                "cause": cause, "class": known.cls, "title": known.title, "definition": known.definition,
                "expects": {
                    name: [r for r, (sign, _) in known.expected.items() if sign == value]
                    for name, value in sides.items()
                },
                "requires_one_of": sorted(known.requires),
                "share_of_added_latency": number(share), "not_recorded": list(roles),
            },
        )  # fmt: skip
