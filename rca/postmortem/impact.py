"""What the incident cost, in figures that carry their own query.

Where traces are a sample, or not there at all, the metrics tell what they can; what only a sample
tells says so, and takes no part in the severity and in the error budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rca.answer import Window
from rca.case import Case, sql_files
from rca.histograms import felt
from rca.limits import objective_ns
from rca.plain import duration, number, percent, printable

_BUDGET_NS = 30 * 86_400_000_000_000
_NOISE = 0.05  # a smaller loss of throughput is not worth a claim


@dataclass(frozen=True)
class Figure:
    """One figure of the impact: `id` is cited, `sql` gives (reference, observed).

    `is_biased` when it is of a sample of the requests; the text says so.
    """

    id: str
    name: str
    text: str
    sql: str
    reference: float | None
    observed: float | None
    is_biased: bool = False


@dataclass(frozen=True)
class Severity:
    """A proposal for people, with the rule that gave it."""

    level: str
    because: str


def measure(case: Case, window: Window) -> list[Figure]:
    """Figures of the incident; none when there is no window or no request was recorded."""
    traced = bool(case.scalar("SELECT count(*) FROM request"))
    sampled = bool(case.scalar("SELECT is_sampled FROM cohort"))
    counting = _counting(case) if sampled or not traced else None
    if not window.dur_ns or not (traced or counting):
        return []
    limit_ns, limit = _limit(case, window, counting, is_biased=sampled)
    bounds: dict[str, int | str | None] = {
        "start_ns": window.start_ns, "end_ns": window.end_ns, "limit_ns": limit_ns, **(counting or {}),
    }  # fmt: skip
    figures: list[Figure] = []
    for name in _NAMES if limit_ns is not None else [n for n in _NAMES if n != "slow"]:
        for template, counted in _asked(name, counting, traced):
            sql = _bind(template, bounds)
            row = next(iter(case.rows(sql)), (None, None))
            if row[1] is not None:
                biased = sampled and not counted
                text = _text(name, row, limit, window, counted=counted, is_biased=biased)
                key = f"I{len(figures) + 1}"
                figures.append(Figure(key, name, text, sql, row[0], row[1], biased))
                break
    return figures


_NAMES = ("requests", "tenants", "failed", "slow", "tokens")


def _asked(
    name: str, counting: dict[str, str] | None, traced: bool
) -> Iterator[tuple[str, bool]]:
    """Queries of a figure, the best first, and whether it is of what the metrics count."""
    queries = dict(_queries())
    if counting and f"{name}_counted" in queries:
        yield queries[f"{name}_counted"], True
    if traced:
        yield queries[name], False


def _counting(case: Case) -> dict[str, str] | None:
    """Role and services of the histogram that counts requests, as SQL; None when there is none."""
    role, services = felt(case, "e2e_latency")
    if not services:
        return None
    names = ", ".join("'" + s.replace("'", "''") + "'" for s in sorted(services))
    return {"role": f"'{role}'", "services": names}


def _text(
    name: str,
    row: tuple[Any, ...],
    limit: str,
    window: Window,
    *,
    counted: bool,
    is_biased: bool,
) -> str:
    reference, observed = row[:2]
    if name == "requests":
        how = "requests were counted" if counted else "recorded requests arrived"
        text = f"{number(observed)} {how} in the window{_instead(reference, number)}"
    elif name == "tenants":
        text = f"{number(observed)} tenants had requests in the window"
    elif name == "failed":
        text = f"{percent(observed)} of the requests failed{_instead(reference, percent)}"
    elif name == "tokens":
        text = _tokens(reference, observed, window.dur_ns or 0)
    else:
        text = _slow(reference, observed, limit, row[2:])
        text += "" if is_biased else _budget(observed, window)
    return f"{text}; sampled, biased" if is_biased else text


def propose_severity(figures: list[Figure], slowdown: float | None) -> Severity:
    """SEV1 to SEV3: the worse of what more requests failed or were slow, and how much slower they were.

    Shares of a sample say nothing of all requests and do not count.
    """
    found = [(3, "little of it reached users, as far as the recordings show")]
    for figure in figures:
        if figure.is_biased:
            continue
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


def _limit(
    case: Case, window: Window, counting: dict[str, str] | None, *, is_biased: bool
) -> tuple[int | None, str]:
    given = objective_ns(window.slo)
    if given is not None:
        return given, f"the objective's {duration(given)}"
    name = "healthy_p99_counted" if counting else "healthy_p99"
    limit_ns, n = case.rows(_bind(dict(_queries())[name], counting or {}))[0]
    if not n or limit_ns is None:
        return None, ""
    how = " by the histogram" if counting else ", sampled, biased" if is_biased else ""
    return limit_ns, f"{duration(limit_ns)}, the healthy p99{how}"


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


def _slow(
    reference: float | None, observed: float, limit: str, bounds: tuple[float, ...]
) -> str:
    text = f"{percent(observed)} of the requests took longer than {limit}{_instead(reference, percent)}"
    if bounds and bounds[1] > bounds[0]:
        low, high = (percent(b) for b in bounds)
        text += f", {low} to {high} as the histogram's bucket holds the limit"
    return text


def _budget(observed: float, window: Window) -> str:
    """How far the objective's budget is overspent; nothing when it is kept or not known."""
    named = re.search(r"p([0-9]{2}(?:\.[0-9]+)?)", window.slo or "", re.IGNORECASE)
    budget = 1 - float(named[1]) / 100 if named else 0.0
    if budget <= 0 or observed <= budget:
        return ""
    spent = observed / budget * (window.dur_ns or 0) / _BUDGET_NS
    return (
        f": {number(observed / budget)} times the {percent(budget)} that the objective leaves, "
        f"{percent(spent)} of a budget of 30 days at even traffic"
    )


def _instead(reference: float | None, tell: Any) -> str:
    return "" if reference is None else f" ({tell(reference)} when healthy)"


def _queries() -> list[tuple[str, str]]:
    return [
        (printable(name).split("_", 1)[1].removesuffix(".sql"), text)
        for name, text in sql_files("postmortem")
    ]


def _bind(template: str, bounds: Mapping[str, int | str | None]) -> str:
    """The query with its integers and names written in, so that it can be run again as it is printed."""
    for name, value in bounds.items():
        template = template.replace(f"${name}", str(value))
    return template.strip().removesuffix(";")
