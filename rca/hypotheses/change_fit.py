"""Recorded changes, and how well one fits a cause: in kind, words, target and time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rca.case import Case
from rca.catalogue import Cause
from rca.weights import FLAT, settings

_ENGINE_WORDS = re.compile(
    r"engine|vllm|sglang|triton|tgi|llm|inference-server|model-server", re.IGNORECASE
)
_BUILD_WORDS = re.compile(r"image|version|digest|build|sha256|v?[0-9]+\.[0-9]+", re.IGNORECASE)
_TRAFFIC_WORDS = re.compile(
    r"tenant|flag|quota|rate|traffic|campaign|frontend|gateway", re.IGNORECASE
)


@dataclass(frozen=True)
class Change:
    """A change and its evidence id.

    Attributes:
        age_s: Time from when it took effect to the onset: a rollout does nothing before its restart.
        unsafe: Causes that a setting it brought is known to bring about, from the rules for settings.
        of_engine: Whether its subject is an inference engine: by the telemetry, else by its name.
    """

    id: str
    evidence: str
    kind: str
    subject: str
    text: str
    age_s: float
    unsafe: frozenset[str] = frozenset()
    of_engine: bool | None = None


def is_engine(name: str | None) -> bool:
    """Whether a name is that of an inference engine."""
    return bool(_ENGINE_WORDS.search(name or ""))


def engines(case: Case) -> frozenset[str]:
    """Services that the telemetry shows to be inference engines, whatever they are called."""
    return frozenset(s for (s,) in case.rows("SELECT service FROM engine_service ORDER BY 1"))


def of_engine(case: Case) -> Callable[[str], bool]:
    """Whether the subject of a change is an engine: a service of that name, or a model it serves."""
    known = engines(case)
    others = {
        s
        for (s,) in case.rows(
            "SELECT service FROM series_role UNION SELECT service FROM span ORDER BY 1"
        )
        if s and s not in known
    }
    models = [
        m
        for (m,) in case.rows(
            "SELECT DISTINCT labels['model_name'] FROM series WHERE labels['model_name'] IS NOT NULL"
        )
        if m
    ]

    def told(subject: str) -> bool:
        name = subject.rsplit("/", 1)[-1]
        if name in others:
            return False
        return name in known or any(m in subject for m in models) or is_engine(subject)

    return told


def changes(case: Case) -> list[Change]:
    """Changes before the onset, or so soon after it that the onset's own doubt covers them."""
    start, end, margin = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )[0]
    doubt = max(4 * margin, int(settings()["onset_doubt"] * (end - start)))
    unsafe, about_engine = _unsafe(case), of_engine(case)
    rows = case.rows(
        "SELECT c.id, e.id, c.kind, c.subject, coalesce(c.before, ''), coalesce(c.after, ''), c.ts_ns, "
        "coalesce(c.effective_ns, c.ts_ns) "
        "FROM change AS c JOIN evidence AS e "
        "ON e.source = 'change' AND e.subject = c.id AND e.onset_ns = c.ts_ns "
        "WHERE c.ts_ns <= ? ORDER BY c.ts_ns DESC",
        (start + doubt,),
    )
    return [
        Change(
            i, e, kind, subject, f"{subject} {before} {after}", _age_s(start, ts, effective), unsafe.get(i, frozenset()), about_engine(subject),
        )
        for i, e, kind, subject, before, after, ts, effective in rows
    ]  # fmt: skip


def _age_s(onset_ns: int, made_ns: int, effective_ns: int) -> float:
    """Time between the onset and a change that was made and took effect later; 0 in between."""
    return max(onset_ns - effective_ns, made_ns - onset_ns, 0) / 1e9


def _unsafe(case: Case) -> dict[str, frozenset[str]]:
    """Change → causes that the settings it brought are known for."""
    found: dict[str, frozenset[str]] = {}
    for change_id, causes in case.rows(
        "SELECT change_id, causes FROM lint_finding WHERE change_id IS NOT NULL ORDER BY change_id"
    ):
        found[change_id] = found.get(change_id, frozenset()) | frozenset(causes or ())
    return found


def half_life(case: Case) -> float:
    """Half-life of a change's weight, s: short recordings have their changes close to the onset."""
    numbers = settings()
    span = case.scalar(
        "SELECT max(last_ns) - min(first_ns) FROM source WHERE part = 'incident' AND kind IN ('metrics', 'trace')"
    )
    share = numbers["change_half_life_share"] * (span or 0) / 1e9
    return float(min(numbers["change_half_life_s"], share) or numbers["change_half_life_s"])


def slow_dependencies(case: Case) -> frozenset[str]:
    """Services whose calls have become slow, as their callers or their spans say."""
    return frozenset(
        service
        for (service,) in case.rows(
            "SELECT DISTINCT service FROM evidence WHERE strength >= ? AND service IS NOT NULL "
            "AND NOT calls_engine(service) AND role IN ('dependency_time', 'downstream_latency', 'downstream_errors', 'network_gap')",
            (FLAT,),
        )
    )


class Match(NamedTuple):
    """A change that fits a cause.

    Attributes:
        fit: How well, 0 to 1; more when its setting is known to be unsafe. Old changes fit less.
        own: Whether it speaks of this cause, and is not just a new build that may hold any regression.
    """

    change: Change | None = None
    fit: float = 0.0
    own: bool = False


def best_change(
    cause: Cause, known: Iterable[Change], half_life_s: float, slow: frozenset[str]
) -> Match:
    """The change that fits best."""
    best = Match()
    for change in known:
        fit, own = _fit(cause, change, slow)
        fit *= math.pow(0.5, change.age_s / half_life_s)
        if fit > best.fit + 1e-9:
            best = Match(change, fit, own)
    return best


def _fit(cause: Cause, change: Change, slow: frozenset[str]) -> tuple[float, bool]:
    if cause.id in change.unsafe:
        return float(settings()["unsafe_fit"]), True
    mark = cause.change
    if mark.kinds and change.kind not in mark.kinds:
        return 0.0, False
    if not _concerns(mark.concerns, change, slow):
        return 0.0, False
    if mark.words.search(f"{change.kind} {change.text}"):
        return 1.0, True
    # A new build of the engine may hold any regression, and says nothing of which.
    new_build = change.kind == "deploy" and _BUILD_WORDS.search(change.text)
    may_hold = mark.build and _concerns("engine", change, slow)
    return (float(settings()["fit_of_any_build"]) if new_build and may_hold else 0.0), False


def _concerns(whom: str, change: Change, slow: frozenset[str]) -> bool:
    engine = is_engine(change.subject) if change.of_engine is None else change.of_engine
    if whom == "engine":
        return engine
    if whom == "traffic":
        return bool(_TRAFFIC_WORDS.search(change.subject)) and not engine
    if whom == "dependency":
        return any(name in change.subject for name in slow)
    if whom == "other":
        return not engine
    return True
