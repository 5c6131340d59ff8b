"""The golden signals as a table: latency, traffic, errors, saturation, healthy against incident, by service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rca.answer import Answer, Evidence, natural
from rca.case import Case, sql_text
from rca.plain import duration, number, percent, printable, quantity, role_words
from rca.postmortem.section import Section

_SERVICES = 8
_HEAD = ("Whose", "Latency", "Traffic", "Errors", "Saturation")
_SIGNALS: tuple[tuple[str, ...], ...] = (
    ("e2e_latency", "gateway_latency", "callee_time", "dependency_time", "downstream_latency", "engine_call_time"),
    ("arrival_rate", "finish_rate", "downstream_rate", "calls_per_request", "generation_throughput"),
    ("error_share", "error_rate", "downstream_errors", "abort_rate"),
    ("kv_usage", "waiting", "pool_waiters", "cpu_pressure", "cfs_throttling", "disk_busy", "gpu_util", "gpu_throttled",
     "container_cpu", "process_cpu", "gpu_memory", "host_memory"),
)  # fmt: skip
_SATURATION = 3
_LINE = "Healthy → incident; the letter and number name the evidence, of which the strongest is shown where several fit."
_STEPS = "All requests: sums over steps of 15 s by their end; P99 over the last thousand requests, 95 % of it in brackets."


def tell(case: Case, answer: Answer) -> Iterator[Section]:
    """The table of an incident; none without one, or where no service has two of the four."""
    if answer.window.dur_ns is None or answer.verdict.status == "no_incident":
        return
    services = _by_service(answer)
    rows = [(printable(name, 60), *map(_cell, found)) for name, found in services[:_SERVICES]]
    every = _all_requests(case, answer)
    if every:
        rows.insert(0, every)
    if rows:
        more = len(services) - _SERVICES
        lines = [_LINE, *([_STEPS] if every else [])]
        lines += [f"{more} more services are in the table evidence."] if more > 0 else []
        yield Section(
            "Golden signals",
            lines,
            _HEAD,
            rows,
            "SELECT * FROM golden_signals ORDER BY part, ts_ns",
        )


def _by_service(answer: Answer) -> list[tuple[str, list[Evidence | None]]]:
    """Services and the evidence on each signal, those that moved most first."""
    of: dict[str, list[Evidence]] = {}
    for one in answer.evidence.values():
        if one.service and one.role and one.reference is not None and one.observed is not None:
            of.setdefault(one.service, []).append(one)
    found = [
        (name, [_chosen(known, i) for i in range(len(_SIGNALS))]) for name, known in of.items()
    ]
    kept = [row for row in found if sum(e is not None for e in row[1]) > 1]
    return sorted(kept, key=lambda row: (-max(abs(e.strength) for e in row[1] if e), row[0]))


def _chosen(known: Sequence[Evidence], signal: int) -> Evidence | None:
    """Of latency, traffic and errors the first role that there is, of saturation what moved most."""
    roles = _SIGNALS[signal]
    fitting = [e for e in known if e.role in roles]
    place = {role: i for i, role in enumerate(roles)}
    strongest = signal == _SATURATION
    return min(
        fitting,
        key=lambda e: (
            -abs(e.strength) if strongest else 0.0,
            place[e.role or ""],
            natural(e.id),
        ),
        default=None,
    )


def _cell(one: Evidence | None) -> str:
    if one is None:
        return ""
    before, after = (quantity(v, one.unit) for v in (one.reference, one.observed))
    values = f"{before} → {after}" if before != after else f"steady at {after}"
    return f"{role_words(one.role or '')} {values} {printable(one.id, 12)}"


def _all_requests(case: Case, answer: Answer) -> tuple[str, ...] | None:
    """The row of all requests; None unless both sides have some."""
    window = answer.window
    start, end = window.start_ns, window.end_ns
    if start is None or end is None:
        return None
    sides = case.rows(
        sql_text("report", "golden_signals"), (start, end, start - (window.margin_ns or 0))
    )
    if len(sides) != 2 or not all(side[1] for side in sides):
        return None
    (_, *old), (_, *new) = sides
    rates = [f"{number(side[3])}/s" for side in (old, new)]
    return (
        "all requests", " → ".join(map(_latency, (old, new))), " → ".join(rates),
        " → ".join(percent(side[2]) for side in (old, new)), _held(old, new),
    )  # fmt: skip


def _latency(side: Sequence[Any]) -> str:
    mean, p99, low, high = side[1], *side[4:7]
    told = f"mean {duration(mean)}"
    return (
        told
        if p99 is None
        else f"{told}, P99 {duration(p99)} [{duration(low)}–{duration(high)}]"
    )


def _held(old: Sequence[Any], new: Sequence[Any]) -> str:
    """What caches and clocks hold back, where both sides recorded it."""
    names = ("prefix hits", "cache hits", "throttled")
    return ", ".join(
        f"{name} {percent(before)} → {percent(after)}"
        for name, before, after in zip(names, old[7:], new[7:], strict=True)
        if before is not None and after is not None
    )
