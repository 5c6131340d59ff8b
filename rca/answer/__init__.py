"""The answer of a case: its result tables as typed records, read once, in a fixed order."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from rca.case import Case
from rca.errors import CaseError
from rca.findings import records
from rca.signals import group_of

T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """The incident, or why there is none."""

    status: str = "unknown"
    start_ns: int | None = None
    end_ns: int | None = None
    margin_ns: int | None = None
    detected_by: str | None = None
    slo: str | None = None
    score: float | None = None
    threshold: float | None = None
    note: str | None = None

    @property
    def dur_ns(self) -> int | None:
        """Length of the incident; None when it has no bounds."""
        if self.start_ns is None or self.end_ns is None:
            return None
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Evidence:
    """One row of the table `evidence`."""

    id: str
    source: str
    role: str | None
    service: str | None
    subject: str
    statement: str
    unit: str
    direction: str
    reference: float | None
    observed: float | None
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    strength: float
    n_reference: int
    n_observed: int
    onset_ns: int | None
    sql: str
    seed: int | None
    device: str | None = None

    @property
    def is_symptom(self) -> bool:
        """Whether users feel it: latency, errors."""
        return self.role in _symptoms()

    @property
    def group(self) -> tuple[str, str] | None:
        """Name in groups.toml and the group it speaks of; None where it speaks of a role or a metric."""
        return group_of(self.source, self.role, self.subject)


@dataclass(frozen=True)
class Hypothesis:
    """One row of the table `hypothesis`."""

    rank: int
    cause: str
    class_: str
    score: float
    confidence: float
    explained_share: float | None
    evidence: list[str]
    contradicting: list[str]
    competitors: list[Any]
    missing: list[Any]
    change_id: str | None
    contributing: bool = False


@dataclass(frozen=True)
class Suspect:
    """One row of the table `suspect`."""

    rank: int
    service: str | None
    metric: str
    score: float
    role: str | None
    reference: float | None
    observed: float | None
    unit: str
    spreads: float | None

    @property
    def is_symptom(self) -> bool:
        """Whether users feel it: latency, errors."""
        return self.role in _symptoms()


@dataclass(frozen=True)
class Part:
    """One row of the table `attribution`."""

    part: str
    reference_ns: float
    observed_ns: float
    delta_ns: float
    share: float | None
    evidence: str


@dataclass(frozen=True)
class Verdict:
    """The judgement in force."""

    status: str
    cause: str | None
    class_: str | None
    confidence: float
    reason: str
    judge: str


@dataclass(frozen=True)
class Juror:
    """One row of the table `judge_panel`: what a language model said beside the rules."""

    model: str
    samples: int
    scored: int
    cause: str | None
    class_: str | None
    agreement: float | None
    agrees: bool | None
    dissent: float | None
    rules_confidence: float
    tokens: int
    cost: float | None
    dropped: int
    note: str | None
    text_note: str | None


@dataclass(frozen=True)
class Fix:
    """One row of the table `fix`, without the contents of its files."""

    id: int
    kind: str
    phase: str
    target: str
    change_id: str | None
    action: str
    file: str | None
    undo: str | None
    risk: str
    reversible: bool
    time_to_effect: str
    gate: str
    gate_passed: bool | None
    explained_share: float | None
    trial: str | None
    approver: str | None
    revert_when: str | None
    strict: str | None
    confidence: float | None


@dataclass(frozen=True)
class Trial:
    """The experiment; `not_run` when the case holds none."""

    status: str = "not_run"
    cause: str | None = None
    device: str | None = None
    fault: str | None = None
    fix: str | None = None
    pairs: int = 0
    reason: str = "no experiment was asked for"
    details: dict[str, Any] | None = None


@dataclass(frozen=True)
class Gap:
    """One row of the table `gap`."""

    code: str
    statement: str
    would_decide: str | None
    record: str | None


@dataclass(frozen=True)
class GuardRule:
    """One row of the table `guard_rule`: an alerting rule and how it did on the recordings."""

    alert: str
    role: str
    service: str
    expr: str
    side: str
    threshold: float
    for_s: float
    action: str
    fires_ns: int
    lead_s: float
    against: str
    reference_firings: int
    reference_s: float


@dataclass(frozen=True)
class Change:
    """One row of the table `change`, its time on the common clock.

    `lag_error_s` and `is_checked` are those of the view `change_lag`; None without a window.
    """

    id: str
    ts_ns: int
    kind: str
    subject: str
    before: str | None
    after: str | None
    origin: str
    lag_error_s: float | None = None
    is_checked: bool | None = None


@dataclass(frozen=True)
class Answer:
    """Everything that the case concludes."""

    window: Window
    verdict: Verdict
    evidence: dict[str, Evidence]
    hypotheses: list[Hypothesis]
    suspects: list[Suspect]
    attribution: list[Part]
    fixes: list[Fix]
    trial: Trial
    gaps: list[Gap]
    changes: dict[str, Change]
    jurors: list[Juror]
    provenance: dict[str, str]
    findings: records.Findings
    other_windows: list[Window] = field(default_factory=list)
    guard_rules: list[GuardRule] = field(default_factory=list)
    recorded_until_ns: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the incident's recordings end before they show it to be over."""
        until_ns, end_ns = self.recorded_until_ns, self.window.end_ns
        if until_ns is None or end_ns is None:
            return False
        return until_ns - end_ns <= 2 * (self.window.margin_ns or 0)

    @property
    def leading(self) -> Hypothesis | None:
        """The hypothesis that the verdict names, else the best one."""
        named = [h for h in self.hypotheses if h.cause == self.verdict.cause]
        return next(iter(named or self.hypotheses), None)

    @property
    def contributing(self) -> list[str]:
        """The causes that are at work at once, where the verdict names one of several."""
        both = [h.cause for h in self.hypotheses if h.contributing]
        return both if self.verdict.status == "diagnosed" and self.verdict.cause in both else []

    def cited(self, ids: list[str]) -> list[Evidence]:
        """The evidence with these ids, in this order; ids that do not exist are left out."""
        return [self.evidence[i] for i in ids if i in self.evidence]

    def groups(self) -> list[Evidence]:
        """What is told of operations, log lines, kernels and cohorts, in the order of its numbers."""
        return [e for e in self.evidence.values() if e.group is not None]

    def strongest(self, n: int) -> list[Evidence]:
        """The n pieces of evidence that moved most, whatever the cause; groups are told by themselves."""
        moved = [
            e
            for e in self.evidence.values()
            if e.direction not in {"flat", "event"} and e.group is None
        ]
        return sorted(moved, key=lambda e: (-abs(e.strength), natural(e.id)))[:n]


def read(case: Case) -> Answer:
    """The answer of a case.

    Raises:
        CaseError: The case was never judged.
    """
    verdicts = _records(case, Verdict, "verdict", "ORDER BY rowid")
    if not verdicts:
        raise CaseError(
            "holds no verdict yet",
            path=str(case.path) if case.path else None,
            hint="run: rca analyze",
        )
    windows = _records(case, Window, "incident_window", "ORDER BY id")
    trials = _records(case, Trial, "trial", "LIMIT 1")
    evidence = sorted(_records(case, Evidence, "evidence", ""), key=lambda e: natural(e.id))
    return Answer(
        window=windows[0] if windows else Window(),
        verdict=verdicts[-1],
        evidence={e.id: e for e in evidence},
        hypotheses=_records(case, Hypothesis, "hypothesis", "ORDER BY rank, cause"),
        suspects=_records(case, Suspect, "suspect", "ORDER BY rank, metric"),
        attribution=_records(
            case, Part, "attribution", "ORDER BY part = 'residual', delta_ns DESC, part"
        ),
        fixes=_records(case, Fix, "fix", "ORDER BY id"),
        trial=trials[0] if trials else Trial(),
        gaps=_records(case, Gap, "gap", "ORDER BY rowid"),
        changes={c.id: c for c in _changes(case)},
        jurors=_records(case, Juror, "judge_panel", "ORDER BY rowid"),
        provenance=dict(case.rows("SELECT key, value FROM provenance ORDER BY key, value")),
        findings=records.read(case),
        other_windows=[w for w in windows[1:] if w.dur_ns],
        guard_rules=_records(case, GuardRule, "guard_rule", "ORDER BY id"),
        recorded_until_ns=case.scalar(
            "SELECT max(last_ns + shift_ns) FROM source "
            "WHERE part = 'incident' AND kind IN ('metrics', 'trace')"
        ),
    )


def natural(text: str) -> tuple[Any, ...]:
    """Sort key that puts E2 before E10."""
    return tuple(
        (0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"([0-9]+)", text) if p
    )


@lru_cache(maxsize=1)
def _symptoms() -> frozenset[str]:
    roles: dict[str, Any] = {}
    for name in ("roles.toml", "signals.toml"):
        roles |= tomllib.loads(files("rca").joinpath(name).read_text(encoding="utf-8"))
    return frozenset(name for name, role in roles.items() if role.get("layer") == "symptom")


def finite(value: Any) -> Any:
    """The value, None in place of NaN and infinities, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def _records(case: Case, kind: type[T], table: str, order: str) -> list[T]:
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    columns = ", ".join(n.rstrip("_") for n in names)
    json_columns = {"competitors", "missing", "contradicting", "details"}
    if kind is Hypothesis:
        json_columns.add("evidence")
    rows = case.rows(f"SELECT {columns} FROM {table} {order}")
    return [
        kind(
            **{
                n: json.loads(v) if n in json_columns and v else finite(v)
                for n, v in zip(names, r, strict=True)
            }
        )
        for r in rows
    ]


def _changes(case: Case) -> list[Change]:
    rows = case.rows(
        "SELECT c.id, c.ts_ns + s.shift_ns, c.kind, c.subject, c.before, c.after, c.origin, "
        "l.lag_error_s, l.is_checked FROM change c JOIN source s ON s.id = c.source_id "
        "LEFT JOIN (SELECT DISTINCT * FROM change_lag) AS l "
        "ON l.id = c.id AND l.source_id = c.source_id AND l.ts_ns = c.ts_ns "
        "WHERE s.part = 'incident' ORDER BY 2, 1"
    )
    return [Change(*row) for row in rows]
