"""What GPU captures tell beyond the shares of busy time: idle causes, owners, changed kernels, waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rca.answer import bound
from rca.case import Case
from rca.plain import duration, number, percent, printable
from rca.postmortem.section import Section

_ROWS = 12
_MOST_CALLS = 3_000_000
"""Calls of a case beyond which ranges and waits are left to a query: they take seconds for each million."""
_IDLE = {
    "no request": "no request in flight",
    "sync, then host": "a thread waited for the GPU, then launched anew",
    "launch": "launch latency, up to 8 µs a gap",
    "queued": "launched, held back on the device",
    "host": "the host had not launched yet",
    "launch not recorded": "its launch is not in the capture",
}


def tell(case: Case) -> list[Section]:
    """Sections about GPU captures; none without GPU work."""
    if not case.scalar("SELECT EXISTS (SELECT 1 FROM gpu_op WHERE flaw IS NULL)"):
        return []
    calls = case.scalar("SELECT count(*) FROM cpu_op WHERE kind IN ('runtime', 'driver')")
    inside = [*_ranges(case), *_waits(case)] if calls <= _MOST_CALLS else [_left_out(calls)]
    return [*_bound(case), *_idle(case), *_owners(case), *_kernels(case), *inside]


def _bound(case: Case) -> Iterator[Section]:
    sides = bound.shares(case)
    parts = [part for part in ("baseline", "incident") if part in sides]
    rows = [
        (told, *(percent(sides[part].get(state, 0.0)) for part in parts))
        for state, told in bound.STATES.items()
        if any(sides[part].get(state, 0.0) for part in parts)
    ]
    if rows:
        names = {"baseline": "Healthy", "incident": "Incident"}
        said = [f"{names[part]}: {bound.name(sides[part])}." for part in parts]
        yield Section(
            "What the GPUs were bound by",
            [*said, "Shares of the devices' spans; where several hold at once, the first in this order counts."],
            ("State", *(names[part] for part in parts)), rows, "SELECT * FROM gpu_bound",
        )  # fmt: skip


def _left_out(calls: int) -> Section:
    """What is not worked out for large captures, and how to have it."""
    return Section(
        "Ranges and waits of large captures",
        [
            f"GPU time by range and operators that wait for the GPU were left out: {calls:,} calls are more than the "
            f"{_MOST_CALLS:,} up to which every document looks for them. This query and the view gpu_range show them."
        ],
        query="SELECT * FROM implicit_sync ORDER BY total_ns DESC",
    )


def _idle(case: Case) -> Iterator[Section]:
    found = case.rows(
        "SELECT s.part, i.cause, CAST(sum(i.ns) AS BIGINT), sum(i.gaps), max(i.longest_ns), "
        "sum(i.ns) / (SELECT sum(b.span_ns) FROM gpu_breakdown AS b JOIN source AS o ON o.id = b.source_id "
        "WHERE o.part = s.part AND b.device IS NOT NULL) "
        "FROM gpu_idle AS i JOIN source AS s ON s.id = i.source_id GROUP BY s.part, i.cause "
        "ORDER BY s.part DESC, 3 DESC, 2"
    )
    rows = [
        (part, _IDLE[cause], duration(ns), number(gaps), duration(longest), percent(share) if share else "")
        for part, cause, ns, gaps, longest, share in found
    ]  # fmt: skip
    if rows:
        yield Section(
            "Why the GPUs were idle", ["On the union of each device's streams."],
            ("Side", "Cause", "Idle", "Gaps", "Longest", "Of the span"), rows,
            "SELECT * FROM gpu_idle",
        )  # fmt: skip


def _owners(case: Case) -> Iterator[Section]:
    found = case.rows(
        "SELECT coalesce(tenant, ''), coalesce(model, ''), count(*), CAST(sum(gpu_ns) AS BIGINT), "
        "sum(gpu_ns) / nullif(sum(sum(gpu_ns)) OVER (), 0) FROM gpu_request AS r "
        "JOIN source AS s ON s.id = r.source_id WHERE s.part = 'incident' "
        "GROUP BY ALL ORDER BY 4 DESC, 1, 2 LIMIT ?",
        (_ROWS,),
    )
    rows = [
        (printable(tenant, 60), printable(model, 60), number(n), duration(ns), percent(share))
        for tenant, model, n, ns, share in found
    ]
    if rows:
        yield Section(
            "Whose the GPU time was",
            ["While several requests are served, the GPU's busy time is shared alike among them."],
            ("Tenant", "Model", "Requests", "GPU time", "Share"), rows, "SELECT * FROM gpu_request",
        )  # fmt: skip


def _ranges(case: Case) -> Iterator[Section]:
    found = case.rows(
        "SELECT r.kind, r.name, sum(r.ops), CAST(sum(r.gpu_ns) AS BIGINT), CAST(sum(r.self_ns) AS BIGINT) "
        "FROM gpu_range AS r JOIN source AS s ON s.id = r.source_id WHERE s.part = 'incident' "
        "GROUP BY r.kind, r.name ORDER BY 4 DESC, 2 LIMIT ?",
        (_ROWS,),
    )
    rows = [
        (printable(name, 100), kind, number(ops), duration(gpu), duration(own))
        for kind, name, ops, gpu, own in found
    ]
    if rows:
        yield Section(
            "GPU time by range", [], ("Range", "Kind", "Operations", "GPU time", "Not in a range inside"),
            rows, "SELECT * FROM gpu_range ORDER BY gpu_ns DESC",
        )  # fmt: skip


def _kernels(case: Case) -> Iterator[Section]:
    counts = case.rows(
        "SELECT change, count(*) FROM kernel_change GROUP BY change ORDER BY change"
    )
    found = case.rows(
        "SELECT change, name, n_baseline, n_incident, count_ratio, time_ratio, time_low, time_high, "
        "share_baseline, share_incident "
        "FROM kernel_change WHERE change <> 'same' "
        "ORDER BY abs(share_incident - share_baseline) DESC, name LIMIT ?",
        (_ROWS,),
    )
    rows = [
        (change, printable(name, 100), f"{number(before)} → {number(after)}",
         f"×{number(count)}" if count else "", _ratio(time, low, high), f"{percent(old)} → {percent(new)}")
        for change, name, before, after, count, time, low, high, old, new in found
    ]  # fmt: skip
    if counts:
        told = ", ".join(f"{n} {change}" for change, n in counts)
        yield Section(
            "Kernels against the baseline", [f"By what changed: {told}.", *_method(row[4] for row in rows)],
            ("Change", "Kernel", "Runs", "Count against the rest", "Time at the same shape", "Share of kernel time"),
            rows, "SELECT * FROM kernel_change",
        )  # fmt: skip


def _ratio(time: float | None, low: float | None, high: float | None) -> str:
    if not time:
        return ""
    return f"×{number(time)}" + (f" [{number(low)}–{number(high)}]" if low and high else "")


def _method(ratios: Iterable[str]) -> list[str]:
    """How the intervals of a table come about, or why there is none."""
    told = [ratio for ratio in ratios if ratio]
    lines = []
    if any("[" in ratio for ratio in told):
        lines.append(
            "Intervals are 95 % of the mean time per run, from the spread of twenty stretches of each side in their "
            "order (no resampling, so no seed); one that holds 1 is no change for certain."
        )
    if any("[" not in ratio for ratio in told):
        lines.append("Without an interval: fewer than 40 runs of the same shapes on a side.")
    return lines


def _waits(case: Case) -> Iterator[Section]:
    found = case.rows(
        "SELECT w.op, w.call, sum(w.count), CAST(sum(w.total_ns) AS BIGINT) FROM implicit_sync AS w "
        "JOIN source AS s ON s.id = w.source_id WHERE s.part = 'incident' "
        "GROUP BY w.op, w.call ORDER BY 4 DESC, 1, 2 LIMIT ?",
        (_ROWS,),
    )
    rows = [
        (printable(op, 80), printable(call, 60), number(count), duration(total))
        for op, call, count, total in found
    ]
    if rows:
        yield Section(
            "Operators that wait for the GPU without saying so", [],
            ("Operator", "Call", "Times", "Waited"), rows, "SELECT * FROM implicit_sync",
        )  # fmt: skip
