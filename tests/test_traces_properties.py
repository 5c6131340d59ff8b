"""Spans written as Jaeger and OTLP JSON and read again are the same spans."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rca.parsers import recognise
from rca.parsers.json_text import read_lines, repair
from rca.parsers.span_rows import (
    BATCH_ROWS,
    Gathered,
    Place,
    SpanColumns,
    SpanRow,
    SpanRows,
    joined,
    joined_each,
)
from rca.parsers.stream import Blocks, read_head

_KINDS = ["internal", "server", "client", "producer", "consumer"]
_text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
_scalar = st.one_of(
    _text,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
_span_id = st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}")
_trace_id = st.integers(1, 2**128 - 1).map(lambda n: f"{n:032x}")
_spans = st.lists(
    st.fixed_dictionaries(
        {
            "trace_id": _trace_id,
            "span_id": _span_id,
            "parent_id": st.none() | _span_id,
            "service": _text.filter(bool),
            "name": _text,
            "kind": st.sampled_from(_KINDS),
            "start_us": st.integers(1, 4_000_000_000_000_000),
            "dur_us": st.integers(0, 604_800_000_000),  # a week is the longest that is sound
            "error": st.booleans(),
            "attributes": st.dictionaries(_text.map(lambda t: "a." + t), _scalar, max_size=4),
        }
    ),
    min_size=1,
    max_size=6,
)


def _as_jaeger(spans: list[dict[str, Any]]) -> dict[str, Any]:
    def tag(key: str, value: Any) -> dict[str, Any]:
        kind = {str: "string", bool: "bool", int: "int64", float: "float64"}[type(value)]
        return {"key": key, "type": kind, "value": value}

    return {"data": [
        {"traceID": s["trace_id"], "processes": {"p": {"serviceName": s["service"], "tags": []}},
         "spans": [{
            "traceID": s["trace_id"], "spanID": s["span_id"], "operationName": s["name"],
            "references": [] if s["parent_id"] is None else [
                {"refType": "CHILD_OF", "traceID": s["trace_id"], "spanID": s["parent_id"]}],
            "startTime": s["start_us"], "duration": s["dur_us"], "processID": "p",
            "tags": [tag(k, v) for k, v in s["attributes"].items()]
                + [tag("span.kind", s["kind"])] + [tag("error", True)] * s["error"]}]}
        for s in spans]}  # fmt: skip


def _as_otlp(spans: list[dict[str, Any]]) -> dict[str, Any]:
    def value(v: Any) -> dict[str, Any]:
        name = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}[
            type(v)
        ]
        return {name: str(v) if name == "intValue" else v}

    return {"resourceSpans": [
        {"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": s["service"]}}]},
         "scopeSpans": [{"spans": [{
            "traceId": s["trace_id"], "spanId": s["span_id"], "parentSpanId": s["parent_id"] or "",
            "name": s["name"], "kind": _KINDS.index(s["kind"]) + 1,
            "startTimeUnixNano": str(s["start_us"] * 1000),
            "endTimeUnixNano": str((s["start_us"] + s["dur_us"]) * 1000),
            "attributes": [{"key": k, "value": value(v)} for k, v in s["attributes"].items()],
            "status": {"code": 2} if s["error"] else {}}]}]}
        for s in spans]}  # fmt: skip


class _Recorder:
    """A sink that keeps the rows of spans."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def insert(self, table: str, rows: Any) -> None:
        assert table == "span"
        self.spans += rows.to_pylist()

    def note(self, level: str, code: str, message: str, **_: Any) -> None:
        raise AssertionError(f"{level} {code}: {message}")

    def describe(self, **_: Any) -> None:
        raise AssertionError("nothing is said of the file's making")

    def count_elements(self, n: int) -> None:
        assert n == len(self.spans)


def _read(document: dict[str, Any]) -> list[dict[str, Any]]:
    sink = _Recorder()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spans.json"
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        recognise(read_head(path)).read(path, sink)
    for row in sink.spans:
        told = json.loads(row["attributes"])
        row["attributes"] = {k: v for k, v in told.items() if k.startswith("a.")}
    return sink.spans


def _expected(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "trace_id": s["trace_id"], "span_id": s["span_id"], "parent_id": s["parent_id"],
            "service": s["service"], "name": s["name"], "kind": s["kind"],
            "start_ns": s["start_us"] * 1000, "dur_ns": s["dur_us"] * 1000,
            "status": "error" if s["error"] else "unset", "attributes": s["attributes"],
            "flaw": None,
        }
        for s in spans
    ]  # fmt: skip


_quiet = settings(max_examples=100)


@_quiet
@given(_spans)
def test_jaeger_round_trip(spans: list[dict[str, Any]]) -> None:
    assert _read(_as_jaeger(spans)) == _expected(spans)


@_quiet
@given(_spans)
def test_otlp_round_trip(spans: list[dict[str, Any]]) -> None:
    assert _read(_as_otlp(spans)) == _expected(spans)


@_quiet
@given(_spans, st.floats(0, 1))
def test_a_cut_document_is_mended_to_whole_spans(
    spans: list[dict[str, Any]], where: float
) -> None:
    text = json.dumps(_as_jaeger(spans)).encode()
    mended = repair(text[: int(len(text) * where)], 4)
    if mended is not None:
        kept = [
            span
            for trace in json.loads(mended).get("data", [])
            for span in trace.get("spans", [])
        ]
        assert kept == [t["spans"][0] for t in _as_jaeger(spans)["data"]][: len(kept)]


_attributes = st.dictionaries(
    st.sampled_from(["a", "}\n", '"}', "é"]), st.text(max_size=6) | _scalar
)
_resources = st.sampled_from([b"{}", b'{"resource.x":1}', b'{"resource.y":"}"}'])
_ids = st.text("0aF5", max_size=5) | _span_id | st.sampled_from(["0" * 16, "é", "7uGbfsPBsXQ="])


@given(st.lists(st.tuples(_attributes, _resources)))
def test_joined_at_once_as_one_by_one(told: list[tuple[dict[str, Any], bytes]]) -> None:
    found = joined_each([a for a, _ in told], [r for _, r in told])
    assert found == [joined(attributes, resource) for attributes, resource in told]


@given(st.lists(st.tuples(_ids, st.none() | _ids), max_size=8))
def test_columns_as_rows(told: list[tuple[str, str | None]]) -> None:
    """Ids are in normal form whether they came by rows or by columns, a bad one among them or not."""
    ids, parents = [a for a, _ in told], [b for _, b in told]
    n = len(told)
    assert SpanColumns._fields == SpanRow.__struct_fields__
    columns = SpanColumns(
        ids, ids, parents, ["s"] * n, ["n"] * n, [None] * n, [1] * n, [2] * n, ["ok"] * n, [b"{}"] * n
    )  # fmt: skip
    by_columns, by_rows = _Kept(), _Kept()
    rows = SpanRows(by_columns)
    rows.add_columns(columns)
    rows.flush()
    for one, parent in told:  # a batch of one has no other id that decides for it
        rows = SpanRows(by_rows)
        rows.add(SpanRow(one, one, parent, "s", "n", None, 1, 2, "ok", b"{}"))
        rows.flush()
    assert by_columns.rows == by_rows.rows


class _Kept:
    """A sink that keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def insert(self, table: str, rows: Any) -> None:
        assert table == "span"
        self.rows += rows.to_pylist()

    def count_elements(self, n: int) -> None: ...

    def note(self, level: str, code: str, message: str, **more: Any) -> None: ...

    def describe(self, **facts: Any) -> None: ...


@given(st.lists(st.integers(0, 2 * BATCH_ROWS), max_size=4))
def test_gathered_spans_keep_their_order(sizes: list[int]) -> None:
    handed: list[tuple[int, bytes]] = []

    def write(spans: list[int], places: list[Place]) -> None:
        assert 0 < len(spans) == len(places) < BATCH_ROWS
        handed.extend(
            (span, resource) for span, (_, resource) in zip(spans, places, strict=True)
        )

    gathered = Gathered(write)
    for number, size in enumerate(sizes):
        gathered.add(list(range(size)), [(None, b"%d" % number)] * size)
    gathered.flush()
    assert handed == [(k, b"%d" % n) for n, size in enumerate(sizes) for k in range(size)]


@given(st.lists(st.sampled_from([b"a", b" ", b"\r", b"\n"]), max_size=30), st.integers(1, 9))
def test_lines_across_blocks(parts: list[bytes], block_bytes: int) -> None:
    data = b"".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes(data)
        lines = list(read_lines(Blocks(path, block_bytes)))
    assert lines == [line.strip() for line in data.split(b"\n") if line.strip()]
