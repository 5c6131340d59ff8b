"""Tables of findings that stay empty for want of a recording: what it would have shown, how to get it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rca.case import Case
from rca.gaps.blind_spots import Gap
from rca.plain import number, printable

_FEWEST = 10
_LEAK = 0.9
_ATTRIBUTES = (
    ("tenant", "tenant", "tenant.id"),
    ("input_tokens", "prompt length", "gen_ai.usage.input_tokens"),
)


def find(case: Case) -> list[Gap]:
    """Blind spots of the findings of a case."""
    looks: tuple[Callable[[Case], Iterator[Gap]], ...] = (
        _attributes,
        _totals,
        _allocator,
        _captures,
    )
    return [gap for look in looks for gap in look(case)]


def _attributes(case: Case) -> Iterator[Gap]:
    counts = case.rows(
        f"SELECT count(*), {', '.join(f'count({a[0]})' for a in _ATTRIBUTES)} "
        "FROM cohort_request WHERE side = 'window'"
    )[0]
    lacking = [a for a, n in zip(_ATTRIBUTES, counts[1:], strict=True) if not n]
    # Requests of other systems than an engine have no tokens, and are told apart by their calls.
    engines = case.scalar("SELECT count(engine_ns) FROM cohort_request WHERE side = 'window'")
    if counts[0] >= _FEWEST and engines and lacking:
        words = " and no ".join(a[1] for a in lacking)
        yield Gap(
            "request_attributes",
            f"requests carry no {words}",
            "whose requests were slow, and whether long ones were",
            f"set {' and '.join(a[2] for a in lacking)} on the span of each request",
        )


def _totals(case: Case) -> Iterator[Gap]:
    kinds = [k for (k,) in case.rows(
        "SELECT kind FROM memory_use WHERE part = 'incident' AND kind <> 'allocator' "
        "GROUP BY kind HAVING count(total_bytes) = 0 ORDER BY kind"
    )]  # fmt: skip
    if kinds and _grows(case):
        where = {
            "host": "container_spec_memory_limit_bytes (cAdvisor)",
            "gpu": "DCGM_FI_DEV_FB_FREE",
        }
        yield Gap(
            "no_memory_total",
            f"memory in use is recorded for {' and '.join(kinds)}, how much there is in all is not",
            "how long until it is full",
            f"scrape {' and '.join(where[k] for k in kinds)} too",
        )


def _allocator(case: Case) -> Iterator[Gap]:
    if _grows(case) and not case.scalar(
        "SELECT count(*) FROM memory_use WHERE kind = 'allocator'"
    ):
        yield Gap(
            "no_allocator",
            "memory grows, and no profile says what was allocated and what was only held reserved",
            "a leak against fragmentation",
            "profile with torch.profiler.profile(profile_memory=True, with_stack=True)",
        )


def _grows(case: Case) -> bool:
    """Whether some memory grows as a leak does."""
    return bool(
        case.scalar(
            "SELECT count(*) FROM memory_use WHERE part = 'incident' AND kind <> 'allocator' "
            "AND growth_bytes_per_s > 0 AND r_squared >= ?",
            (_LEAK,),
        )
    )


def _captures(case: Case) -> Iterator[Gap]:
    if not case.scalar("SELECT EXISTS (SELECT 1 FROM gpu_op WHERE flaw IS NULL)"):
        return
    rows = case.rows(
        "SELECT s.path, count(*) OVER () FROM source AS s "
        "WHERE s.part = 'incident' AND EXISTS (SELECT 1 FROM gpu_op AS o WHERE o.source_id = s.id) "
        "AND NOT EXISTS (SELECT 1 FROM in_flight AS f WHERE f.part = s.part "
        "AND f.start_ns < s.last_ns + s.shift_ns AND f.end_ns > s.first_ns + s.shift_ns) "
        "AND EXISTS (SELECT 1 FROM in_flight WHERE part = 'incident') ORDER BY s.id LIMIT 1"
    )
    if rows:
        path, n = rows[0]
        more = f" and {number(n - 1)} more" if n > 1 else ""
        yield Gap(
            "capture_without_requests",
            f"no request was traced during the GPU capture {printable(path, 80)}{more}",
            "whose requests the GPU time went to",
            "capture while the incident lasts, with tracing on and both clocks synchronised",
        )
