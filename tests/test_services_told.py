"""What documents and terminal say of services: suspects beyond the cause, and the golden signals."""

from __future__ import annotations

import io
from collections.abc import Iterable

import case_builder
import polars as pl
from case_builder import END, SECOND, START
from rich.console import Console

from rca.answer import read, suspicion
from rca.answer.summary import render
from rca.case import Case
from rca.postmortem.golden import tell as tell_golden
from rca.postmortem.services import tell


def suspects(case: Case, rows: Iterable[tuple[str | None, str, float, str | None]]) -> Case:
    case.clear(["suspect"])
    found = [
        {"rank": i + 1, "service": service, "metric": metric, "score": score, "role": role,
         "reference": 2.0, "observed": 6.0, "unit": "as exported", "spreads": 40.0}
        for i, (service, metric, score, role) in enumerate(rows)
    ]  # fmt: skip
    case.insert("suspect", pl.DataFrame(found, infer_schema_length=None))
    return case


def titles(case: Case) -> list[str]:
    return [s.title for s in tell(case, read(case))]


def terminal(case: Case) -> str:
    out = io.StringIO()
    render(case, Console(file=out, width=200, no_color=True))
    return out.getvalue()


def test_of_an_unknown_cause_the_first_suspect_is_told_with_its_values() -> None:
    case = suspects(
        case_builder.unknown(),
        [("orders", "GET /cart", 6.9, "span_self"), ("users", "cpu", 1.2, None), ("orders", "cpu", 0.9, None)],
    )  # fmt: skip
    assert (
        "SUSPECT    most changed: service orders, metric own time of GET /cart 2 → 6, 40 of its usual spreads away\n"
        in terminal(case)
    )
    section = next(s for s in tell(case, read(case)) if s.title == "Suspects")
    assert section.rows == [
        ("orders", "6.9", "own time of GET /cart", "2", "6", "40", "cpu"),
        ("users", "1.2", "cpu", "2", "6", "40", ""),
    ]


def test_beside_a_cause_only_what_it_leaves_open_is_told() -> None:
    case = suspects(
        case_builder.diagnosed(), [("vllm", "kv", 9.0, None), ("db", "cpu", 3.1, None)]
    )
    assert suspicion.unexplained(read(case)) == ["db"]
    assert (
        "Not in the evidence for the cause: db."
        in next(s for s in tell(case, read(case)) if s.title == "Suspects").lines
    )
    for rows in (
        [
            ("vllm", "kv", 9.0, None),
            ("vllm", "cpu", 8.0, None),
        ],  # the service that the cause names
        [("vllm", "kv", 9.0, None), ("db", "cpu", 2.9, None)],  # far behind it
        [("vllm", "kv", 9.0, None), ("gateway", "e2e", 8.0, "e2e_latency")],  # what users feel
        [("db", "cpu", 0.9, None)],  # nothing left its range
    ):
        assert "Suspects" not in titles(suspects(case, rows)), rows
    assert "SUSPECT" not in terminal(case)


def test_a_case_without_suspects_says_nothing_of_them() -> None:
    case = case_builder.unknown()
    case.clear(["suspect"])
    assert "SUSPECT" not in terminal(case)
    assert "Suspects" not in titles(case)


def test_golden_signals_stand_healthy_against_incident() -> None:
    case = case_builder.diagnosed()
    (section,) = tell_golden(case, read(case))
    rows = {row[0]: row[1:] for row in section.rows}
    assert rows["vllm"][0] == "e2e latency 1.29 s → 6.09 s E7"
    assert rows["vllm"][3] == "KV usage 58 % → 99 % E2"
    window = (END - START) / SECOND
    count = case.scalar(
        f"SELECT sum(requests) FROM golden_signals WHERE part = 'incident' AND ts_ns + 15000000000 > {START} AND ts_ns <= {END}"
    )
    before, after = (
        float(part.removesuffix("/s")) for part in rows["all requests"][1].split(" → ")
    )
    assert after > 0 and abs(after - count / window) < 0.1 * after
    assert before > 0


def test_without_an_incident_there_are_no_golden_signals() -> None:
    for case in (case_builder.no_incident(), case_builder.gpu_only()):
        assert list(tell_golden(case, read(case))) == []
