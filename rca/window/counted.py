"""Objectives held against what the metrics count: where traces are a sample, or are not there at all.

The share over a limit comes from the buckets of a latency histogram. A claim is made of what lies in
buckets above the limit as a whole; what is told is the share with the bucket that holds the limit
cut in proportion, and that bucket's bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rca import sampling
from rca.case import Case, sql_text
from rca.histograms import felt
from rca.plain import duration, percent, printable
from rca.signals import EMPTY, Signal, Times
from rca.window.objective import Broken, Objective, Spent, broken, overspends, worst

_WHOLE = ("incident", "baseline")


class Held(NamedTuple):
    """What became of the objectives.

    Attributes:
        broken: Those that the incident side broke, worst first.
        unchecked: Those of which no recording tells, and why.
    """

    broken: list[Broken]
    unchecked: list[tuple[Objective, str]]


def hold(case: Case, objectives: Sequence[Objective], signals: Sequence[Signal]) -> Held:
    """Objectives against single requests where all were traced, else against what the metrics count."""
    if not objectives:
        return Held([], [])
    sampled = sampling.read(case).why
    traced = {s.role for s in signals if s.source == "trace" and len(s.incident.ts_ns)}
    by_requests = [o for o in objectives if o.role in traced and not sampled]
    found, unchecked = broken(by_requests, signals), []
    for objective in objectives:
        if objective in by_requests:
            continue
        told = [*_by_metrics(case, objective)]
        found += [one for one in told if isinstance(one, Broken)]
        doubts = [one for one in told if isinstance(one, str)]
        if not told:
            doubts = [_nothing(objective, sampled if objective.role in traced else None)]
        unchecked += [(objective, doubt) for doubt in doubts[:1]]
    return Held(sorted(found, key=lambda b: -b.score), unchecked)


def _nothing(objective: Objective, sampled: str | None) -> str:
    lacking = "no counter of the metrics tells of it"
    return f"{sampled}, and {lacking}" if sampled else lacking


def _by_metrics(case: Case, objective: Objective) -> Iterator[Broken | str | None]:
    """One item for each service that tells of it: how it was broken, why that is not known, or None."""
    if objective.role == "error_share":
        yield from _failed(case, objective)
    elif objective.role == "generation_throughput":
        yield from _throughput(case, objective)
    else:
        yield from _latency(case, objective)


class _Counts(NamedTuple):
    """Rows of a service in the order of time: all, surely, about and at most over the limit."""

    spent: Spent
    about: Spent
    at_most: Spent
    bucket: tuple[float | None, float | None]


_NONE = Spent(EMPTY.ts_ns, EMPTY.ts_ns, EMPTY.num, EMPTY.den)


def _latency(case: Case, objective: Objective) -> Iterator[Broken | str | None]:
    role, services = felt(case, objective.role)
    now, healthy = (_counts(case, part, role, objective.limit) for part in _WHOLE)
    for service in sorted(services & now.keys()):
        counts = now[service]
        before = healthy[service].spent if service in healthy else _NONE
        found = worst(objective, counts.spent, before)
        yield from [_told(one, service, counts) for one in found]
        if not found:
            sure = overspends(objective, counts.spent) or not overspends(
                objective, counts.at_most
            )
            yield None if sure else _doubt(service, counts)


def _counts(case: Case, part: str, role: str, limit_s: float) -> dict[str, _Counts]:
    rows = case.rows(
        "SELECT service, ts_ns, n, n_surely, n_about, n_at_most, bucket_from, bucket_to "
        "FROM latency_over(?, ?, ?) WHERE n > 0 ORDER BY service, ts_ns",
        (part, role, limit_s),
    )
    found: dict[str, _Counts] = {}
    for service in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == service]
        ends = np.array([row[1] for row in own], np.int64)
        n, surely, about, at_most = (
            np.array([row[i] for row in own], np.float64) for i in (2, 3, 4, 5)
        )
        starts = _starts(ends)
        sides = [Spent(starts, ends, n, over) for over in (surely, about, at_most)]
        found[service] = _Counts(sides[0], sides[1], sides[2], own[0][6:8])
    return found


def _starts(ends: Times) -> Times:
    """A scrape counts from the one before it on."""
    step = int(np.median(np.diff(ends))) if len(ends) > 1 else 0
    return np.concatenate((ends[:1] - step, ends[:-1]))


def _told(one: Broken, service: str, counts: _Counts) -> Broken:
    """The claim with the share that the histogram tells, and how far its buckets leave that open."""
    inside = (counts.spent.start_ns >= one.start_ns) & (counts.spent.end_ns <= one.end_ns)
    low, share, high = (
        float(side.over[inside].sum() / side.n[inside].sum())
        for side in (counts.spent, counts.about, counts.at_most)
    )
    of = f" of {printable(service, 60)}" if service else ""
    observed = "observations" if one.objective.role == "itl" else "requests"
    what = f"of {observed} over it by the histogram{of}"
    if high > low:
        what += f"; {percent(low)} to {percent(high)}, as {_bucket(counts)} holds the limit"
    return one._replace(share=share, what=what)


def _bucket(counts: _Counts) -> str:
    low, high = ((b or 0.0) * 1e9 for b in counts.bucket)
    if not np.isfinite(high):
        return f"its last bucket, above {duration(low)},"
    return f"its bucket from {duration(low)} to {duration(high)}"


def _doubt(service: str, counts: _Counts) -> str:
    of = f" of {printable(service, 60)}" if service else ""
    return (
        f"{percent(counts.spent.share())} to {percent(counts.at_most.share())} of what the histogram{of} counted "
        f"was over it: {_bucket(counts)} holds the limit"
    )


def _failed(case: Case, objective: Objective) -> Iterator[Broken | None]:
    """Failed requests of the services where requests come in, else of all that count them."""
    sides = [_failures(case, part) for part in _WHOLE]
    roots = {s for (s,) in case.rows("SELECT DISTINCT service FROM request")}
    for service in sorted((sides[0].keys() & roots) or sides[0].keys()):
        found = worst(objective, sides[0][service], sides[1].get(service, _NONE))
        of = f" of {printable(service, 60)}" if service else ""
        yield from [
            one._replace(what=f"of requests failed by the counters{of}") for one in found
        ]
        yield from [None] if not found else []


def _failures(case: Case, part: str) -> dict[str, Spent]:
    rows = case.rows(sql_text("window", "failed"), (part,))
    found: dict[str, Spent] = {}
    for service in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == service and row[2] > 0]
        ends = np.array([row[1] for row in own], np.int64)
        n, over = (np.array([row[i] for row in own], np.float64) for i in (2, 3))
        found[service] = Spent(_starts(ends), ends, n, over)
    return found


def _throughput(case: Case, objective: Objective) -> Iterator[Broken | None]:
    sides = [_under(case, part, objective) for part in _WHOLE]
    for name in sorted(sides[0]):
        found = worst(objective, sides[0][name], sides[1].get(name, _NONE))
        of = f" of {printable(' '.join(name).strip(), 80)}" if any(name) else ""
        what = f"of the time under load below it{of}"
        yield from [one._replace(what=what) for one in found]
        yield from [None] if not found else []


def _under(case: Case, part: str, objective: Objective) -> dict[tuple[str, str], Spent]:
    """Steps under load, and those of them below the floor, by service and replica."""
    rows = case.rows(sql_text("window", "throughput"), (part, objective.of_each))
    found: dict[tuple[str, str], Spent] = {}
    for name in dict.fromkeys(row[:2] for row in rows):
        own = [row[2:] for row in rows if row[:2] == name and row[5]]
        starts, ends = (np.array([row[i] for row in own], np.int64) for i in (0, 1))
        under = np.array([row[2] < objective.limit for row in own], np.float64)
        found[name] = Spent(starts, ends, np.ones(len(own)), under)
    return found
