"""What the tables of findings tell, as titled lines, tables and one diagram; empty ones are left out.

Every section names the query that shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rca.answer import Answer, Evidence, wording
from rca.case import Case
from rca.findings import graph
from rca.findings.records import Indicator, Memory
from rca.plain import duration, moment, number, percent, printable, quantity, role_words, size
from rca.postmortem.gpu_sections import tell as tell_gpu
from rca.postmortem.pattern_sections import tell as tell_patterns
from rca.postmortem.section import Section
from rca.postmortem.services import tell as tell_services

_ATTRIBUTES = 8
_NAMES = 5
_ROWS = 12
_GROUPS = 5
"""Rows that each kind of group gets."""
_SMALL = 0.01
_LEAK = 0.9
_FULL = 0.9


def tell(case: Case, answer: Answer) -> list[Section]:
    """The sections of a case, those about requests first."""
    found = answer.findings
    sections = [*tell_patterns(case), *_groups(answer), *tell_gpu(case), *_lint(case)]
    if found.cohort is None or not found.cohort.is_incident:
        sections = [*_memory(answer), *sections]
    else:
        about = (_slow, _radius, _drivers, _tail, _context, _heat, _indicators, _memory, _versions,
                 _storms, _depth, _graph)  # fmt: skip
        sections = [s for tell_one in about for s in tell_one(answer)] + sections
    return [*tell_services(case, answer), *sections]


def _biased(answer: Answer) -> list[str]:
    cohort = answer.findings.cohort
    bias = cohort.bias if cohort else None
    return [f"{bias}; shares are of those."] if bias else []


def _limit(answer: Answer) -> str:
    cohort = answer.findings.cohort
    if cohort is None or cohort.limit_ns is None:
        return ""
    return f"Slow means longer than {duration(cohort.limit_ns)} ({cohort.limit_by})."


def _split(answer: Answer) -> str:
    cohort = answer.findings.cohort
    if cohort is None or cohort.split_ns is None:
        return ""
    return f"Slow here means longer than {duration(cohort.split_ns)} ({cohort.split_by})."


def _between(share: float, low: float, high: float) -> str:
    return f"{percent(share)} ({percent(low)} to {percent(high)})"


def _slow(answer: Answer) -> Iterator[Section]:
    told = [a for a in answer.findings.slow_attributes if a.is_telling][:_ATTRIBUTES]
    if told:
        rows = [
            (a.statement, f"×{number(a.lift)} ({number(a.lift_low)} to {number(a.lift_high)})", number(a.q_value))
            for a in told
        ]  # fmt: skip
        tested = f"{told[0].n_tested} attributes were tested, false discoveries held to 5 %."
        yield Section(
            "Slow requests against the rest", [_split(answer), tested, *_biased(answer)],
            ("Share", "Lift (95 %)", "q"), rows, "SELECT * FROM slow_attribute ORDER BY rank",
        )  # fmt: skip


def _radius(answer: Answer) -> Iterator[Section]:
    rows = []
    for kind in ("tenant", "model", "replica", "service"):
        named = [r for r in answer.findings.blast_radius if r.kind == kind]
        if len(named) < 2:
            continue
        for r in named[:_NAMES]:
            before = "" if r.share_reference is None else percent(r.share_reference)
            interval = _between(r.share_slow, r.share_low, r.share_high)
            ratio = f"×{number(r.ratio)}" if r.ratio is not None else ""
            rows.append(
                (f"{kind} {printable(r.name, 60)}", number(r.requests), interval, before, ratio)
            )
    if rows:
        yield Section(
            "Who was hit", [_limit(answer), *_biased(answer)],
            ("Whose", "Requests", "Slow (95 %)", "Healthy", "Against all"), rows, "SELECT * FROM blast_radius",
        )  # fmt: skip


def _drivers(answer: Answer) -> Iterator[Section]:
    drivers = answer.findings.drivers
    whole = sum(abs(d.added_ns) for d in drivers)
    rows = [
        (d.driver, duration(d.direct_ns), duration(d.queue_ns), duration(d.added_ns),
         "" if d.share is None else percent(d.share))
        for d in drivers if abs(d.added_ns) >= _SMALL * whole
    ]  # fmt: skip
    ratio = next((i for i in answer.findings.indicators if i.name == "queue_model_ratio"), None)
    lines = ["Lengths stand apart from rates; the queue is put down to what made it."]
    if ratio is not None:
        lines.append(f"{ratio.statement[:1].upper()}{ratio.statement[1:]}.")
        lines += [f"{ratio.note[:1].upper()}{ratio.note[1:]}."] if ratio.note else []
    elif any(d.driver == "queue, not explained" and d.queue_ns > 0 for d in drivers):
        lines.append(
            "The queue could not be replayed: requests are sampled, too few or too many, or hardly wait."
        )
    if rows and whole:
        yield Section(
            "What the added latency comes from", lines,
            ("Driver", "Itself", "Through the queue", "Added", "Share"), rows, "SELECT * FROM latency_driver",
        )  # fmt: skip


def _tail(answer: Answer) -> Iterator[Section]:
    parts = [p for p in answer.findings.parts if p.es95_added_ns is not None]
    whole = sum(abs(p.es95_added_ns or 0.0) for p in parts)
    rows = [
        (f"{p.part} of {printable(p.service, 60)}" if p.service else p.part,
         duration(p.mean_reference_ns), duration(p.mean_window_ns),
         duration(p.es95_reference_ns), duration(p.es95_window_ns))
        for p in parts if whole and abs(p.es95_added_ns or 0.0) >= _SMALL * whole
    ]  # fmt: skip
    if rows:
        yield Section(
            "Mean and tail of each part",
            ["The tail is the mean over the slowest twentieth (ES95), which adds up as quantiles do not."],
            ("Part", "Mean, healthy", "Mean, incident", "Tail, healthy", "Tail, incident"), rows,
            "SELECT * FROM cohort_part",
        )  # fmt: skip


def _context(answer: Answer) -> Iterator[Section]:
    bands = answer.findings.latency_by_context
    if len({b.from_tokens for b in bands}) < 2:
        return
    columns = {
        "Prompt tokens": [f"{b.from_tokens} to {b.below_tokens - 1}" for b in bands],
        "Side": ["incident" if b.side == "window" else "healthy" for b in bands],
        "Requests": [number(b.n) for b in bands],
        "First token, median": [_time(b.ttft_p50_ns) for b in bands],
        "First token, P95 (95 %)": [_time(b.ttft_p95_ns, b.ttft_p95_low_ns, b.ttft_p95_high_ns) for b in bands],
        "Between tokens, median": [_time(b.itl_p50_ns) for b in bands],
        "Between tokens, P99 (95 %)": [_time(b.itl_p99_ns, b.itl_p99_low_ns, b.itl_p99_high_ns) for b in bands],
        "Jitter (σ of the time between)": [_time(b.itl_stddev_ns) for b in bands],
        "Slow": [percent(b.share_slow) if b.share_slow is not None else "" for b in bands],
    }  # fmt: skip
    kept = {name: values for name, values in columns.items() if any(values)}
    rows = list(zip(*kept.values(), strict=True))
    yield Section(
        "By prompt length", [_limit(answer), *_biased(answer)], tuple(kept), rows[: 2 * _ROWS],
        "SELECT * FROM latency_by_context",
    )  # fmt: skip


def _time(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A latency and its interval; without an upper end the requests are too few for one."""
    if value is None:
        return ""
    if low is None:
        return duration(value)
    end = (
        f"{duration(low)} to {duration(high)}"
        if high is not None
        else f"{duration(low)} or more"
    )
    return f"{duration(value)} ({end})"


def _heat(answer: Answer) -> Iterator[Section]:
    cells = [c for c in answer.findings.slo_heat_map if c.is_safe is not None]
    if not cells:
        return
    rows = [
        (f"{c.batch_from} to {c.batch_below - 1}", f"{number(c.rate_from)} to {number(c.rate_below)}", number(c.n),
         _between(c.share_within, c.within_low, c.within_high))
        for c in cells
    ]  # fmt: skip
    safe = [c for c in cells if c.is_safe]
    best = max(safe, key=lambda c: c.rate_from, default=None)
    # Of a sample neither the rates are those of the service nor the shares sure.
    biased = [f"{line} Rates are of traced requests." for line in _biased(answer)]
    told = (
        f"The most load that kept the limit with certainty: {number(best.rate_from)} to {number(best.rate_below)} "
        f"requests/s at a batch of {best.batch_from} to {best.batch_below - 1}."
        if best
        else "No load with 100 requests kept the limit with certainty."
    )
    yield Section(
        "Load that kept the limit", [_limit(answer), *(biased or [told])],
        ("Batch", "Requests/s", "Requests", "Within (95 %)"), rows[:_ROWS], "SELECT * FROM slo_heat_map",
    )  # fmt: skip


_INDICATORS_READ = (
    "Figures that others watch. Healthy and Incident are worked out here; Out of bounds says whether the incident's value "
    "passes the figure's limit, and is empty where it has none. The last two columns say what the formula in common use "
    "gives for the incident, and why it is not relied on."
)


def _indicators(answer: Answer) -> Iterator[Section]:
    shown = [i for i in answer.findings.indicators if i.name != "queue_model_ratio"]
    rows = [
        (role_words(i.name) + (f", {i.subject}" if i.subject else ""),
         "" if i.reference is None else quantity(i.reference, i.unit),
         "" if i.observed is None else quantity(i.observed, i.unit),
         {True: "yes", False: "no", None: ""}[i.is_flagged],
         "" if i.common is None else quantity(i.common, i.unit), i.common_formula or "")
        for i in shown
    ]  # fmt: skip
    if rows:
        yield Section(
            "Indicators",
            [_INDICATORS_READ, *(i.statement[:1].upper() + i.statement[1:] + "." for i in shown if i.is_flagged or _is_open(i))],
            ("Figure", "Healthy", "Incident", "Out of bounds", "By the usual formula", "That formula, and its flaw"),
            rows, "SELECT * FROM indicator",
        )  # fmt: skip


def _is_open(one: Indicator) -> bool:
    """Whether it has a limit, and the recordings do not say which side of it the value is on."""
    return one.bound is not None and one.is_flagged is None


def _is_filling(one: Memory) -> bool:
    """Whether there is news in how full it is; an allocator fills what it reserved."""
    return one.kind != "allocator" and (one.used_share or 0.0) >= _FULL


def _memory(answer: Answer) -> Iterator[Section]:
    beside_incident = answer.window.dur_ns is not None
    grown = [
        m for m in answer.findings.memory
        if m.part == "incident" and (m.r_squared or 0.0) >= _LEAK and (m.growth_bytes_per_s or 0.0) > 0
    ]  # fmt: skip
    full = [
        m for m in answer.findings.memory
        if m.part == "incident" and m.used_share is not None and (beside_incident or _is_filling(m))
    ]  # fmt: skip
    rows = [
        (_whose(m), f"{size(m.first_bytes)} → {size(m.last_bytes)}",
         f"{size(m.growth_bytes_per_s)}/s since {moment(m.since_ns)}" if m in grown else "",
         number(m.r_squared) if m in grown else "",
         f"{percent(m.used_share)} of {size(m.total_bytes)}" if m.used_share is not None else "not recorded")
        for m in answer.findings.memory if m in grown or m in full
    ]  # fmt: skip
    if rows:
        yield Section(
            "Memory", ["Growth is the slope of the line that fits best, R² how much of the course it explains."],
            ("Memory", "Level", "Growth", "R²", "Used of all"), rows[:_ROWS], "SELECT * FROM memory_use",
        )  # fmt: skip


def _whose(memory: Memory) -> str:
    device = memory.device or (f"all {memory.devices} devices" if memory.devices else "")
    return printable(
        " ".join(filter(None, (memory.kind, memory.service, memory.replica, device))), 120
    )


def _versions(answer: Answer) -> Iterator[Section]:
    if not any(v.is_skewed for v in answer.findings.versions):
        return
    rows = [
        (f"model {printable(v.model, 40)}, {v.kind} {printable(v.partner or 'unknown', 40)}",
         "do not belong together" if v.is_skewed else "belong together", number(v.requests),
         f"{moment(v.first_ns)} – {moment(v.last_ns)}", percent(v.share_slow) if v.share_slow is not None else "")
        for v in answer.findings.versions
    ]  # fmt: skip
    yield Section(
        "Versions that met", [], ("Versions", "", "Requests", "Seen (UTC)", "Slow"), rows[:_ROWS],
        "SELECT * FROM version_window",
    )  # fmt: skip


def _storms(answer: Answer) -> Iterator[Section]:
    rows = [
        (moment(s.start_ns), duration(s.end_ns - s.start_ns), printable(s.reason or "not said", 60), number(s.n),
         number(s.n_keys), f"{number(s.per_s)}/s, usually {number(s.usual_per_s)}/s")
        for s in answer.findings.storms
    ]  # fmt: skip
    if rows:
        yield Section(
            "Bursts of cache invalidations", [], ("Begin (UTC)", "Length", "Reason", "Invalidations", "Keys", "Rate"),
            rows[:_ROWS], "SELECT * FROM invalidation_storm",
        )  # fmt: skip


def _depth(answer: Answer) -> Iterator[Section]:
    levels = answer.findings.call_depth
    if not any((d.hop_ratio or 1.0) > 1.2 for d in levels):
        return
    rows = [
        (str(d.depth), "" if d.per_request_reference is None else number(d.per_request_reference),
         number(d.per_request), f"×{number(d.hop_ratio)}" if d.hop_ratio is not None else "",
         duration(d.mean_ns), percent(d.failed_share))
        for d in levels
    ]  # fmt: skip
    yield Section(
        "Calls multiply on the way down", [],
        ("Depth", "Calls a request, healthy", "Incident", "Against the level above", "Mean time", "Failed"),
        rows[:_ROWS], "SELECT * FROM call_depth",
    )  # fmt: skip


def _groups(answer: Answer) -> Iterator[Section]:
    shown: dict[str, list[Evidence]] = {}
    for item in answer.groups():
        shown.setdefault((item.group or ("", ""))[0].partition("_")[0], []).append(item)
    rows = [
        (wording.movement(e), e.direction, moment(e.onset_ns) if e.onset_ns is not None else "",
         printable(e.statement.rpartition("; ")[2], 80) if kind == "cohort" else "", e.id)
        for kind, of_kind in shown.items() for e in of_kind[:_GROUPS]
    ]  # fmt: skip
    if rows and answer.window.status != "none":
        told = (
            "Operations, log lines, kernels and cohorts of requests that left their own range. "
            "No cause is scored on them."
        )
        yield Section(
            "What else moved", [told, *_biased(answer)],
            ("What", "Direction", "Since (UTC)", "The others", "Evidence"), rows,
            "SELECT * FROM evidence WHERE role IS NULL AND source <> 'change' ORDER BY rowid",
        )  # fmt: skip


def _graph(answer: Answer) -> Iterator[Section]:
    edges = answer.findings.edges
    if answer.verdict.status == "diagnosed" and edges:
        yield Section(
            "Cause and effect",
            ["A lag stands where both onsets were measured and lie further apart than two of their steps."],
            query="SELECT * FROM causal_edge ORDER BY id", diagram=graph.mermaid(edges),
        )  # fmt: skip


def _lint(case: Case) -> Iterator[Section]:
    rows = case.rows(
        "SELECT severity, subject, key, value, expected, statement FROM lint_finding "
        "ORDER BY severity = 'warning' DESC, subject, key, rule LIMIT ?",
        (_ROWS,),
    )
    if rows:
        yield Section(
            "Settings outside of what is safe",
            ["Whether or not they made this incident."],
            ("Weight", "Where", "Setting", "Value", "Safe", "Why"),
            [tuple(printable(v, 200) for v in row) for row in rows],
            "SELECT * FROM lint_finding",
        )
