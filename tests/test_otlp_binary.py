"""OTLP in binary, built field by field: one request, many with their lengths, cut ones."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import gpu_recordings as recordings
import pytest
from otlp_bytes import attribute, fixed, put, request, varint

from rca.case import Case
from rca.errors import ParseError
from rca.parsers import recognise
from rca.parsers.stream import read_head
from rca.pipeline import read

T = 1_755_753_377_000_000_001

GAUGE = put(1, "vllm:num_requests_waiting") + put(2, "waiting requests") + put(3, "1") + put(5, put(
    1, fixed(3, T) + fixed(4, 7.5) + attribute(7, "engine", put(3, 2))))  # fmt: skip
COUNTER = put(1, "requests_total") + put(7, put(
    1, fixed(3, T) + fixed(6, -3)) + put(2, 2) + put(3, 1))  # fmt: skip
HISTOGRAM = put(1, "e2e_seconds") + put(9, put(1, b"".join((
    fixed(3, T), fixed(4, 5), fixed(5, 4.25),
    put(6, struct.pack("<3Q", 2, 3, 0)), put(7, struct.pack("<2d", 0.5, 1.0)),
))) + put(2, 2))  # fmt: skip
EXPONENTIAL = put(1, "itl_seconds") + put(10, put(1, b"".join((
    fixed(3, T), fixed(4, 4), fixed(5, 9.0), put(6, 1), fixed(7, 1),  # scale -1 and offset 1 in zigzag
    put(8, put(1, 2) + put(2, b"\x01\x02")),
))))  # fmt: skip
SUMMARY = put(1, "gc_seconds") + put(11, put(
    1, fixed(3, T) + fixed(4, 1) + fixed(5, 2.0) + put(6, fixed(1, 0.5) + fixed(2, 0.01))))  # fmt: skip
METRICS = (GAUGE, COUNTER, HISTOGRAM, EXPONENTIAL, SUMMARY)
RECORD = b"".join((
    fixed(1, T), put(2, 17), put(3, "ERROR"), put(5, put(1, "KV cache is full: 97 %")),
    attribute(6, "tags", put(5, put(1, put(1, "a")) + put(1, put(2, 1)))),
    put(9, bytes(range(16))), put(10, bytes(range(8))), fixed(11, T + 5),
))  # fmt: skip
SPAN = (
    put(1, bytes(range(1, 17)))
    + put(2, bytes(range(1, 9)))
    + put(5, "decode")
    + fixed(7, T)
    + fixed(8, T + 9)
)


def write(path: Path, *requests: bytes, framing: str = "none") -> Path:
    """The requests as a file holds them."""
    lengths = {"none": lambda _: b"", "four": lambda n: struct.pack(">I", n), "varint": varint}
    path.write_bytes(b"".join(lengths[framing](len(r)) + r for r in requests))
    return path


def samples(case: Case) -> list[tuple[object, ...]]:
    return case.rows("""
        SELECT s.name, s.type, s.labels['resource.service.name'], v.ts_ns, v.value
        FROM series AS s JOIN sample AS v ON v.series_id = s.id ORDER BY s.name""")  # fmt: skip


def test_each_kind_of_metric(tmp_path: Path) -> None:
    case = recordings.read(write(tmp_path / "metrics.bin", request(*METRICS)))
    assert case.rows("SELECT format, kind, status FROM source") == [
        ("otlp_proto_metrics", "metrics", "ok")
    ]
    assert samples(case) == [
        ("gc_seconds", "summary", "chat", T, 0.01),
        ("requests_total", "counter", "chat", T, -3.0),
        ("vllm:num_requests_waiting", "gauge", "chat", T, 7.5),
    ]
    assert case.scalar("SELECT labels['engine'] FROM series WHERE unit = '1'") == "2"
    found = case.rows("""
        SELECT name, count, sum, [(b.low, b.high, b.count) FOR b IN buckets]
        FROM histogram_sample JOIN series ON id = series_id ORDER BY name""")  # fmt: skip
    infinity = math.inf
    assert found == [
        ("e2e_seconds", 5, 4.25, [(-infinity, 0.5, 2), (0.5, 1, 3), (1, infinity, 0)]),
        ("itl_seconds", 4, 9, [(0, 0, 1), (4, 16, 1), (16, 64, 2)]),
    ]


def test_log_records(tmp_path: Path) -> None:
    late = fixed(11, T + 7) + put(5, put(3, 12))  # only observed, and its body is a number
    case = recordings.read(write(tmp_path / "logs.bin", request(RECORD, late)))
    assert case.rows("SELECT ts_ns, service, level, message, template FROM log ORDER BY ts_ns") == [
        (T, "chat", "error", "KV cache is full: 97 %", "KV cache is full: <*>"),
        (T + 7, "chat", None, "12", "<*>"),
    ]  # fmt: skip
    fields = case.rows(
        "SELECT fields ->> 'trace_id', fields ->> '$.tags[0]' FROM log ORDER BY ts_ns"
    )
    assert fields[0] == (bytes(range(16)).hex(), "a")
    assert case.rows("SELECT format, kind FROM source") == [("otlp_proto_logs", "log")]


@pytest.mark.parametrize("framing", ["four", "varint"])
@pytest.mark.parametrize(
    ("item", "format_name", "table"),
    [
        (SPAN, "otlp_proto", "span"),
        (GAUGE, "otlp_proto_metrics", "sample"),
        (RECORD, "otlp_proto_logs", "log"),
    ],
)
def test_files_of_many_requests_with_their_lengths(
    item: bytes, format_name: str, table: str, framing: str, tmp_path: Path
) -> None:
    services = [f"chat-{i}" + "x" * (i % 3 * 90) for i in range(900)]  # more than a head holds
    path = write(
        tmp_path / "many", *(request(item, service=s) for s in services), framing=framing
    )
    case = recordings.read(path)
    assert case.rows("SELECT format, status FROM source") == [(format_name, "ok")]
    assert case.scalar(f"SELECT count(*) FROM {table}") == 900
    path.write_bytes(path.read_bytes()[:-20])
    case = recordings.read(path)
    assert case.scalar(f"SELECT count(*) FROM {table}") == 899
    assert case.scalar("SELECT status FROM source") == "salvaged"


@pytest.mark.parametrize(
    ("item", "table"), [(SPAN, "span"), (GAUGE, "sample"), (RECORD, "log")]
)
def test_a_cut_request_keeps_what_is_complete(item: bytes, table: str, tmp_path: Path) -> None:
    data = request(*[item] * 1000)
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) * 6 // 10 + 3])
    case = recordings.read(path)
    kept = case.scalar(f"SELECT count(*) FROM {table}")
    assert 595 <= kept <= 600
    assert recordings.notes(case)["truncated"] == 1


def test_other_binary_files_are_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "other"
    for data in (
        b"\n" * 50, b"\x00\x00\x00\x05hello", b"\x0a\x03abc\x12\x00", bytes(range(256)),
        put(1, put(1, b"") + put(2, put(2, put(1, "name")))), put(1, put(1, "x") + put(2, 5)),
    ):  # fmt: skip
        path.write_bytes(data)
        try:
            found = recognise(read_head(path)).name
        except ParseError:
            continue
        assert not found.startswith("otlp_proto")


def test_what_a_sampler_decided_is_kept(tmp_path: Path) -> None:
    times = fixed(7, 1_780_000_000_000_000_000) + fixed(8, 1_780_000_001_000_000_000)
    span = put(1, bytes(range(16))) + put(2, bytes(range(1, 9))) + put(3, "ot=th:8") + times
    resource = put(1, attribute(1, "service.name", put(1, "chat")))
    (tmp_path / "t.pb").write_bytes(put(1, resource + put(2, put(2, span))))
    with read([tmp_path / "t.pb"]) as case:
        assert case.rows("SELECT kept_share FROM sampler_mark") == [(0.5,)]
