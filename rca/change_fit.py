"""Recorded changes, and how well one fits a cause: in kind, words, target and time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

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
    """A change and its evidence id; `age_s` is the time from it to the onset.

    Attributes:
        unsafe: Causes that a setting it brought is known to bring about, from the rules for settings.
    """

    id: str
    evidence: str
    kind: str
    subject: str
    text: str
    age_s: float
    unsafe: frozenset[str] = frozenset()


def is_engine(name: str | None) -> bool:
    """Whether a name is that of an inference engine."""
    return bool(_ENGINE_WORDS.search(name or ""))


def changes(case: Case) -> list[Change]:
    """Changes before the onset, or so soon after it that the onset's own doubt covers them."""
    start, end, margin = case.rows(
        "SELECT start_ns, end_ns, margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )[0]
    doubt = max(4 * margin, int(settings()["onset_doubt"] * (end - start)))
    unsafe = _unsafe(case)
    rows = case.rows(
        "SELECT c.id, e.id, c.kind, c.subject, coalesce(c.before, ''), coalesce(c.after, ''), c.ts_ns "
        "FROM change AS c JOIN evidence AS e "
        "ON e.source = 'change' AND e.subject = c.id AND e.onset_ns = c.ts_ns "
        "WHERE c.ts_ns <= ? ORDER BY c.ts_ns DESC",
        (start + doubt,),
    )
    return [
        Change(
            i, e, kind, subject, f"{subject} {before} {after}", abs(start - ts) / 1e9, unsafe.get(i, frozenset())
        )
        for i, e, kind, subject, before, after, ts in rows
    ]  # fmt: skip


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
            "AND role IN ('dependency_time', 'downstream_latency', 'downstream_errors', 'network_gap')",
            (FLAT,),
        )
    )


def best_change(
    cause: Cause, known: Iterable[Change], half_life_s: float, slow: frozenset[str]
) -> tuple[Change | None, float]:
    """The change that fits best and how well, 0 to 1; more when its setting is known to be unsafe."""
    best, most = None, 0.0
    for change in known:
        fit = _fit(cause, change, slow) * math.pow(0.5, change.age_s / half_life_s)
        if fit > most + 1e-9:
            best, most = change, fit
    return best, most


def _fit(cause: Cause, change: Change, slow: frozenset[str]) -> float:
    if cause.id in change.unsafe:
        return float(settings()["unsafe_fit"])
    mark = cause.change
    if mark.kinds and change.kind not in mark.kinds:
        return 0.0
    if not _concerns(mark.concerns, change, slow):
        return 0.0
    if mark.words.search(change.text):
        return 1.0
    # A new build of the engine may hold any regression, and says nothing of which.
    new_build = change.kind == "deploy" and _BUILD_WORDS.search(change.text)
    may_hold = cause.cls == "code-regression" and mark.concerns == "engine"
    return float(settings()["fit_of_any_build"]) if new_build and may_hold else 0.0


def _concerns(whom: str, change: Change, slow: frozenset[str]) -> bool:
    engine = is_engine(change.subject)
    if whom == "engine":
        return engine
    if whom == "traffic":
        return bool(_TRAFFIC_WORDS.search(change.subject)) and not engine
    if whom == "dependency":
        return any(name in change.subject for name in slow)
    if whom == "other":
        return not engine
    return True
