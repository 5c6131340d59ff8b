"""Rows are written beside the parser, in their order, and what fails there fails the source."""

from __future__ import annotations

import threading

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from rca import case_sink
from rca.case import Case
from rca.case_sink import CaseSink


@pytest.fixture(autouse=True)
def each_batch_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_sink, "_BATCH_BYTES", 0)


def rows(*pids: int) -> pa.Table:
    return pa.table({"pid": list(pids), "name": [f"p{pid}" for pid in pids]})


def test_all_rows_are_there_when_the_sink_ends_and_are_counted() -> None:
    with Case.create() as case:
        with case.transaction(), CaseSink(case, 7) as sink:
            for n in range(0, 40, 2):
                sink.insert("process", rows(n))
                sink.insert("process", pl.DataFrame({"pid": [n + 1], "name": ["frame"]}))
        assert sink.n_rows == 40
        assert case.rows("SELECT pid FROM process WHERE source_id = 7 ORDER BY rowid") == [
            (n,) for n in range(40)
        ]


def test_rows_that_wait_go_before_a_frame_of_the_same_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(case_sink, "_BATCH_BYTES", 1 << 30)
    with Case.create() as case:
        with case.transaction(), CaseSink(case, 1) as sink:
            sink.insert("process", rows(1, 2))
            sink.insert("process", pl.DataFrame({"pid": [3], "name": ["frame"]}))
            sink.insert("process", rows(4))
        assert case.rows("SELECT pid FROM process ORDER BY rowid") == [(1,), (2,), (3,), (4,)]


def test_the_second_source_of_series_begins_after_the_first() -> None:
    labels = pa.array([[], []], pa.map_(pa.string(), pa.string()))
    series = pa.table(
        {"id": [0, 1], "name": ["a", "b"], "type": ["gauge"] * 2, "labels": labels}
    )
    with Case.create() as case:
        for number in (1, 2):
            with case.transaction(), CaseSink(case, number) as sink:
                sink.insert("series", series)
                sink.insert(
                    "sample", pa.table({"series_id": [1], "ts_ns": [5], "value": [1.0]})
                )
        assert case.rows("SELECT series_id FROM sample ORDER BY ALL") == [(1,), (3,)]


def test_what_fails_beside_the_parser_fails_the_source_and_leaves_no_thread() -> None:
    with Case.create() as case:
        with pytest.raises(duckdb.Error), case.transaction(), CaseSink(case, 1) as sink:
            sink.insert("process", rows(1))
            sink.insert("process", pa.table({"no_such_column": [1]}))
            sink.insert("process", rows(2))
        assert case.rows("SELECT count(*) FROM process") == [(0,)]
    assert threading.active_count() == 1


def test_a_parser_that_fails_waits_for_what_is_being_written() -> None:
    with Case.create() as case:
        with pytest.raises(KeyError), case.transaction(), CaseSink(case, 1) as sink:
            sink.insert("process", rows(*range(200_000)))
            raise KeyError("parser")
        assert case.rows("SELECT count(*) FROM process") == [(0,)]
        case.insert("process", rows(1), source_id=2)  # the connection is free
        assert case.rows("SELECT count(*) FROM process") == [(1,)]
