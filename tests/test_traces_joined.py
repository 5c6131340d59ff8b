"""Traces in pieces: several files of one trace, spans exported twice, hosts whose clocks differ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from telemetry_builder import SECOND, add_source, add_span, at

from rca import clock, traces
from rca.case import Case
from rca.clock.hosts import FEWEST_CALLS, Call, settle

TRACES = 30


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def trace_id(number: int) -> str:
    return f"{number:032x}"


def gateway_and_engine(
    case: Case, *, ahead_s: float = 0.0, overrun_s: float = 0.0, one_file: bool = False
) -> tuple[int, int]:
    """Requests of which one source has the gateway's spans and one the engine's, on a clock ahead."""
    front = add_source(case, "trace")
    back = front if one_file else add_source(case, "trace")
    for n in range(TRACES):
        one, start = trace_id(n), 2.0 * n
        add_span(
            case, front, one, "gateway", "POST", start, 1.0, span="a", resource__host__name="h1"
        )
        add_span(
            case, front, one, "gateway", "call", start + 0.05, 0.9 + n % 3 / 100, span="b", parent="a",
            kind="client", resource__host__name="h1",
        )  # fmt: skip
        add_span(
            case, back, one, "vllm", "llm_request", start + 0.1 + ahead_s, 0.8 + overrun_s, span="c",
            parent="b", resource__host__name="h2", gen_ai__latency__time_to_first_token=0.2,
            gen_ai__request__id=f"r{n}",
        )  # fmt: skip
    return front, back


def test_a_caller_in_one_file_and_the_engine_in_another_are_one_request(case: Case) -> None:
    front, back = gateway_and_engine(case)
    traces.join(case)
    rows = case.rows(
        "SELECT source_id, service, engine_ns, ttft_ns FROM request ORDER BY start_ns"
    )
    assert rows == [(front, "gateway", 800_000_000, 200_000_000)] * TRACES
    gaps = case.rows("SELECT DISTINCT callee, child_ns FROM span_self WHERE name = 'call'")
    assert gaps == [("vllm", 800_000_000)]
    assert case.scalar("SELECT sum(orphans) FROM orphan_span") == 0
    # What was recorded stays where it was recorded.
    assert case.scalar("SELECT count(*) FROM span WHERE source_id = ?", (back,)) == TRACES
    assert (
        case.scalar("SELECT count(*) FROM span_aligned WHERE source_id = ?", (back,)) == TRACES
    )


def test_two_files_give_what_one_file_gives(case: Case) -> None:
    gateway_and_engine(case)
    traces.join(case)
    with Case.create() as whole:
        gateway_and_engine(whole, one_file=True)
        traces.join(whole)
        for view in ("request", "span_self", "latency_part"):
            query = f"SELECT COLUMNS(lambda c: c <> 'source_id') FROM {view} ORDER BY ALL"
            assert case.rows(query) == whole.rows(query), view


def test_the_baseline_is_never_joined_with_the_incident(case: Case) -> None:
    now, then = add_source(case, "trace"), add_source(case, "trace", "baseline")
    for source in (now, then):
        add_span(case, source, trace_id(1), "gateway", "POST", 1.0)
    traces.join(case)
    assert case.rows("SELECT part FROM request ORDER BY part") == [("baseline",), ("incident",)]


def test_counted_up_ids_are_one_trace_only_where_a_parent_says_so(case: Case) -> None:
    one, two = add_source(case, "trace"), add_source(case, "trace")
    add_span(case, one, "1", "gateway", "POST", 1.0, span="a")
    add_span(case, two, "1", "billing", "GET", 500.0, span="x")
    add_span(case, one, "2", "gateway", "POST", 3.0, span="a")
    add_span(case, two, "2", "vllm", "llm_request", 3.01, 0.05, span="b", parent="a")
    traces.join(case)
    found = case.rows("SELECT trace_id, service FROM request ORDER BY trace_id, service")
    assert found == [("1", "billing"), ("1", "gateway"), ("2", "gateway")]


def test_an_export_that_was_sent_again_counts_once(case: Case) -> None:
    first, again = add_source(case, "trace"), add_source(case, "trace")
    for source in (first, again, again):
        add_span(case, source, trace_id(1), "gateway", "POST", 1.0, span="a", tenant="t-1")
        case.execute(
            "INSERT INTO span_event VALUES (?, ?, 'a', ?, 'retry', '{}')",
            (source, trace_id(1), at(1.0)),
        )
    # A retry of the request itself is another span, and counts.
    add_span(case, again, trace_id(1), "gateway", "POST", 1.5, span="b")
    traces.join(case)
    assert case.scalar("SELECT count(*) FROM span") == 2
    assert case.scalar("SELECT count(*) FROM span_event") == 1
    assert case.rows("SELECT source_id, count FROM ingest_note WHERE code = 'span_copies'") == [
        (again, 2)
    ]
    assert case.scalar("SELECT count(*) FROM request") == 1
    traces.join(case)
    assert case.scalar("SELECT count(*) FROM span") == 2


def test_halves_of_a_call_that_share_an_id_are_no_copies(case: Case) -> None:
    """Zipkin gives the client's and the server's span of one call the same id."""
    source = add_source(case, "trace")
    add_span(case, source, trace_id(1), "a", "get", 1.0, 0.3, span="x", kind="client")
    add_span(case, source, trace_id(1), "b", "get", 1.1, 0.1, span="x", kind="server")
    traces.join(case)
    assert case.scalar("SELECT count(*) FROM span") == 2


@pytest.mark.parametrize("one_file", [True, False])
@pytest.mark.parametrize("ahead_s", [-12.0, -0.4, 3.0])
def test_a_host_whose_clock_is_off_is_set_by_the_calls_to_it(
    case: Case, ahead_s: float, one_file: bool
) -> None:
    _, back = gateway_and_engine(case, ahead_s=ahead_s, one_file=one_file)
    traces.join(case)
    clock.align(case)
    ((source, host, shift, error),) = case.rows("SELECT * FROM host_clock")
    assert (source, host) == (back, "h2")
    assert abs(shift / SECOND + ahead_s) <= error / SECOND <= 0.06
    inside = case.scalar(
        "SELECT count(*) FROM span_self WHERE name = 'call' AND child_ns > 700000000"
    )
    assert inside == TRACES
    assert "h2" in case.scalar("SELECT message FROM ingest_note WHERE code = 'host_clock'")
    clock.align(case)
    assert case.rows("SELECT shift_ns FROM host_clock") == [(shift,)]


def test_clocks_that_agree_are_left_alone(case: Case) -> None:
    gateway_and_engine(case)
    traces.join(case)
    clock.align(case)
    assert case.rows("FROM host_clock") == []
    assert not case.scalar("SELECT count(*) FROM ingest_note WHERE code LIKE 'host_clock%'")


def test_work_that_goes_on_after_the_answer_is_not_taken_for_skew(case: Case) -> None:
    """The engine's spans begin in time and end long after the caller gave up: no clock explains both."""
    gateway_and_engine(case, overrun_s=5.0)
    traces.join(case)
    clock.align(case)
    assert case.rows("FROM host_clock") == []
    assert (
        case.scalar("SELECT count(*) FROM ingest_note WHERE code = 'host_clock_unknown'") == 1
    )


def test_a_few_calls_say_nothing_of_a_clock(case: Case) -> None:
    gateway_and_engine(case, ahead_s=4.0)
    case.execute("DELETE FROM span WHERE trace_id >= ?", (trace_id(FEWEST_CALLS - 1),))
    traces.join(case)
    clock.align(case)
    assert case.rows("FROM host_clock") == []


def test_a_clock_is_known_through_the_hosts_between() -> None:
    a, b, c = (1, "a"), (1, "b"), (2, "c")
    found = settle(
        [
            Call("incident", a, b, 50, 2 * SECOND, 3 * SECOND),
            Call("incident", b, c, 40, -SECOND, SECOND),
            Call("incident", a, c, 30, 2 * SECOND, 2 * SECOND),
        ]
    )
    assert found[a] == (0, 0)
    assert found[b] == (-5 * SECOND // 2, SECOND // 2)
    assert found[c] == (-5 * SECOND // 2, 3 * SECOND // 2)


def cut_recording(case: Case, *, gateway: bool = True) -> int:
    """Requests of ten seconds through a gateway; those of the last and first moments lack its span."""
    source = add_source(case, "trace")
    for n in range(60):
        one = trace_id(n)
        if gateway and 3 <= n < 57:
            add_span(case, source, one, "gateway", "POST", 1.0 * n, 3.0, span="a")
        parent = "a" if gateway or n >= 3 else None
        add_span(
            case, source, one, "vllm", "llm_request", n + 0.5, 2.0, span="b", parent=parent,
            gen_ai__request__id=f"r{n}",
        )  # fmt: skip
    return source


def test_requests_that_the_recording_cuts_off_are_not_counted(case: Case) -> None:
    cut_recording(case)
    assert case.rows("SELECT service, count(*) FROM request GROUP BY 1") == [("gateway", 54)]
    # The engine did serve them.
    assert case.scalar("SELECT count(*) FROM engine_span") == 60


def test_a_context_that_is_lost_in_the_middle_still_counts(case: Case) -> None:
    source = cut_recording(case)
    case.execute("DELETE FROM span WHERE service = 'gateway' AND trace_id = ?", (trace_id(30),))
    assert case.rows("SELECT service, count(*) FROM request GROUP BY 1 ORDER BY 1") == [
        ("gateway", 53),
        ("vllm", 1),
    ]
    assert source == 1


def test_where_the_caller_was_never_recorded_engine_spans_are_the_requests(case: Case) -> None:
    cut_recording(case, gateway=False)
    assert case.rows("SELECT service, count(*) FROM request GROUP BY 1") == [("vllm", 60)]
