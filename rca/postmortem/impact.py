"""What the incident cost, in figures that carry their own query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rca.answer import Window
from rca.case import Case, sql_files
from rca.limits import objective_ns
from rca.plain import duration, number, percent, printable

_BUDGET_NS = 30 * 86_400_000_000_000
_NOISE = 0.05  # a smaller loss of throughput is not worth a claim


@dataclass(frozen=True)
class Figure:
    """One figure of the impact: `id` is cited, `sql` gives (reference, observed)."""

    id: str
    name: str
    text: str
    sql: str
    reference: float | None
    observed: float | None


@dataclass(frozen=True)
class Severity:
    """A proposal for people, with the rule that gave it."""

    level: str
    because: str


def measure(case: Case, window: Window) -> list[Figure]:
    """Figures of the incident; none when there is no window or no request was recorded."""
    if not window.dur_ns or not case.scalar("SELECT count(*) FROM request"):
        return []
    limit_ns, limit = _limit(case, window)
    bounds = {"start_ns": window.start_ns, "end_ns": window.end_ns, "limit_ns": limit_ns}
    texts = {
        "requests": lambda r, o: (
            f"{number(o)} recorded requests arrived in the window{_instead(r, number)}"
        ),
        "tenants": lambda r, o: f"{number(o)} tenants had requests in the window",
        "failed": lambda r, o: f"{percent(o)} of the requests failed{_instead(r, percent)}",
        "slow": lambda r, o: _slow(r, o, limit, window),
        "tokens": lambda r, o: _tokens(r, o, window.dur_ns or 0),
    }
    figures: list[Figure] = []
    for name, template in _queries():
        if name not in texts or (name == "slow" and limit_ns is None):
            continue
        sql = _bind(template, bounds)
        rows = case.rows(sql)
        if rows and rows[0][1] is not None:
            reference, observed = rows[0]
            figures.append(
                Figure(
                    f"I{len(figures) + 1}",
                    name,
                    texts[name](reference, observed),
                    sql,
                    reference,
                    observed,
                )
            )
    return figures


def propose_severity(figures: list[Figure], slowdown: float | None) -> Severity:
    """SEV1 to SEV3: the worse of what more requests failed or were slow, and how much slower they were."""
    found = [(3, "little of it reached users, as far as the recordings show")]
    for figure in figures:
        if figure.name in {"failed", "slow"} and figure.observed is not None:
            more = figure.observed - (figure.reference or 0.0)
            level = 1 if more >= 0.5 else 2 if more >= 0.1 else 3
            found.append((level, f"{figure.text} ({figure.id})"))
    if slowdown is not None:
        found.append(
            (1 if slowdown >= 10 else 2 if slowdown >= 3 else 3, f"latency ×{number(slowdown)}")
        )
    level, because = min(found, key=lambda f: f[0])
    return Severity(f"SEV{level}", because)


def _limit(case: Case, window: Window) -> tuple[int | None, str]:
    given = objective_ns(window.slo)
    if given is not None:
        return given, f"the objective's {duration(given)}"
    sql = dict(_queries())["healthy_p99"]
    limit_ns, n = case.rows(sql)[0]
    return (limit_ns, f"{duration(limit_ns)}, the healthy p99") if n else (None, "")


def _tokens(reference: float | None, observed: float, dur_ns: int) -> str:
    text = f"{number(observed)} tokens/s were generated in the recorded requests"
    if reference is None:
        return text
    text += f", {number(reference)} when healthy"
    if observed > (1 - _NOISE) * reference:
        return text
    return (
        text + f": about {number((reference - observed) * dur_ns / 1e9)} tokens were not served"
    )


def _slow(reference: float | None, observed: float, limit: str, window: Window) -> str:
    text = f"{percent(observed)} of the requests took longer than {limit}{_instead(reference, percent)}"
    named = re.search(r"p([0-9]{2}(?:\.[0-9]+)?)", window.slo or "", re.IGNORECASE)
    budget = 1 - float(named[1]) / 100 if named else 0.0
    if budget <= 0 or observed <= budget:
        return text
    spent = observed / budget * (window.dur_ns or 0) / _BUDGET_NS
    return (
        f"{text}: {number(observed / budget)} times the {percent(budget)} that the objective leaves, "
        f"{percent(spent)} of a budget of 30 days at even traffic"
    )


def _instead(reference: float | None, tell: Any) -> str:
    return "" if reference is None else f" ({tell(reference)} when healthy)"


def _queries() -> list[tuple[str, str]]:
    return [
        (printable(name).split("_", 1)[1].removesuffix(".sql"), text)
        for name, text in sql_files("postmortem")
    ]


def _bind(template: str, bounds: dict[str, int | None]) -> str:
    """The query with its integers written in, so that it can be run again as it is printed."""
    for name, value in bounds.items():
        template = template.replace(f"${name}", str(value))
    return template.strip().removesuffix(";")
