"""Each trace format: a small recording in, the expected rows out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.errors import BundleError
from rca.parsers.span_rows import normal_id

Read = Callable[..., Case]
_TRACE, _ROOT, _CHILD = (
    "5b8efff798038103d269b633813fc60c",
    "eee19b7ec3c1b174",
    "00f067aa0ba902b7",
)
_T0 = 1_700_000_000_123_456


def _jaeger() -> dict[str, Any]:
    tags = [
        {"key": "span.kind", "type": "string", "value": "server"},
        {"key": "error", "type": "bool", "value": True},
        {"key": "big", "type": "int64", "value": "9223372036854775222"},
        {"key": "gen_ai.latency.e2e", "type": "float64", "value": 0.25},
    ]
    root = {
        "traceID": _TRACE, "spanID": _ROOT, "operationName": "POST /v1", "references": [],
        "startTime": _T0, "duration": 250_000, "tags": tags, "processID": "p1",
        "logs": [{"timestamp": _T0 + 5, "fields": [
            {"key": "event", "type": "string", "value": "first_chunk"},
            {"key": "n", "type": "int64", "value": 3}]}],
        "warnings": ["This span's timestamps were adjusted by 5ms"],
    }  # fmt: skip
    child = {
        "traceID": _TRACE, "spanID": _CHILD, "operationName": "llm_request",
        "references": [
            {"refType": "FOLLOWS_FROM", "traceID": "ff", "spanID": "ee"},
            {"refType": "CHILD_OF", "traceID": _TRACE, "spanID": _ROOT},
        ],
        "startTime": _T0 + 1, "duration": 0, "tags": None, "logs": None, "processID": "p2",
        "warnings": None,
    }  # fmt: skip
    processes = {
        "p1": {"serviceName": "gateway", "tags": [{"key": "host.name", "value": "node-a"}]},
        "p2": {"serviceName": "vllm", "tags": []},
    }
    return {
        "data": [
            {
                "traceID": _TRACE,
                "spans": [root, child],
                "processes": processes,
                "warnings": None,
            }
        ],
        "total": 0,
        "limit": 0,
        "errors": None,
    }


def _otlp(upper: bool = False) -> dict[str, Any]:
    spans = [
        {"traceId": _TRACE.upper() if upper else _TRACE, "spanId": _ROOT, "parentSpanId": "",
         "name": "POST /v1", "kind": 2, "startTimeUnixNano": str(_T0 * 1000 + 7),
         "endTimeUnixNano": (_T0 + 250_000) * 1000,
         "attributes": [
            {"key": "s", "value": {"stringValue": "x"}}, {"key": "i", "value": {"intValue": "7"}},
            {"key": "f", "value": {"doubleValue": 0.5}}, {"key": "b", "value": {"boolValue": False}},
            {"key": "l", "value": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "y"}]}}},
            {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"intValue": 2}}]}}}],
         "events": [{"timeUnixNano": str(_T0 * 1000 + 9), "name": "first_chunk"}],
         "links": [{"traceId": "ff", "spanId": "ee"}],
         "status": {"code": "STATUS_CODE_ERROR", "message": "boom"}},
    ]  # fmt: skip
    resource = {"attributes": [
        {"key": "service.name", "value": {"stringValue": "gateway"}},
        {"key": "host.name", "value": {"stringValue": "node-a"}},
    ]}  # fmt: skip
    return {
        "resourceSpans": [
            {
                "resource": resource,
                "scopeSpans": [
                    {"scope": {"name": "vllm.otel", "version": "1"}, "spans": spans}
                ],
            }
        ]
    }


def _write(path: Path, content: Any) -> Path:
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


_ROWS = "SELECT span_id, parent_id, service, name, kind, start_ns, dur_ns, status FROM span ORDER BY start_ns"


def test_jaeger(tmp_path: Path, read_files: Read) -> None:
    case = read_files(_write(tmp_path / "anything.bin", _jaeger()))
    assert case.rows(_ROWS) == [
        (_ROOT, None, "gateway", "POST /v1", "server", _T0 * 1000, 250_000_000, "error"),
        (_CHILD, _ROOT, "vllm", "llm_request", None, _T0 * 1000 + 1000, 0, "unset"),
    ]
    [(big, host)] = case.rows(
        "SELECT CAST(attributes ->> 'big' AS BIGINT), attributes ->> '$.\"resource.host.name\"' "
        "FROM span WHERE parent_id IS NULL"
    )
    assert (big, host) == (9_223_372_036_854_775_222, "node-a")
    assert case.rows("SELECT ts_ns, name, CAST(attributes ->> 'n' AS INT) FROM span_event") == [
        (_T0 * 1000 + 5000, "first_chunk", 3)
    ]
    assert case.rows(
        "SELECT span_id, linked_trace_id, linked_span_id, attributes ->> 'ref_type' FROM span_link"
    ) == [(_CHILD, "ff", "ee", "FOLLOWS_FROM")]
    assert case.scalar("SELECT count FROM ingest_note WHERE code = 'clock_skew_adjusted'") == 1


def test_jaeger_cut_short_keeps_every_complete_span(tmp_path: Path, read_files: Read) -> None:
    text = json.dumps(_jaeger())
    path = _write(tmp_path / "cut.json", text[: text.index("FOLLOWS_FROM")])
    case = read_files(path)
    assert case.rows("SELECT span_id FROM span") == [(_ROOT,)]
    assert case.scalar("SELECT status FROM source") == "salvaged"
    assert case.scalar("SELECT count(*) FROM ingest_note WHERE code = 'truncated'") == 1


def test_jaeger_compressed_and_cut(tmp_path: Path, read_files: Read) -> None:
    document = _jaeger()
    document["data"] *= 400
    whole = gzip.compress(json.dumps(document).encode(), 1)
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: len(whole) - 200])
    case = read_files(path)
    assert case.scalar("SELECT status FROM source") == "salvaged"
    assert 700 <= case.scalar("SELECT count(*) FROM span") < 800


def test_jaeger_bad_trace_is_counted_and_the_others_kept(
    tmp_path: Path, read_files: Read
) -> None:
    document = _jaeger()
    document["data"].append({"traceID": "1", "spans": [{"traceID": 3}]})
    case = read_files(_write(tmp_path / "a.json", document))
    assert case.scalar("SELECT count(*) FROM span") == 2
    assert case.scalar("SELECT count FROM ingest_note WHERE code = 'bad_trace'") == 1


def test_jaeger_error_answer(tmp_path: Path, read_files: Read) -> None:
    answer = {"data": None, "total": 0, "errors": [{"code": 404, "msg": "trace not found"}]}
    with pytest.raises(BundleError, match="trace not found"):
        read_files(_write(tmp_path / "a.json", answer))


_TOLD = [(_ROOT, None, "gateway", "POST /v1", "server", _T0 * 1000 + 7, 249_999_993, "error")]


@pytest.mark.parametrize("upper", [False, True])
def test_otlp(upper: bool, tmp_path: Path, read_files: Read) -> None:
    case = read_files(_write(tmp_path / "t.json", json.dumps(_otlp(upper), indent=1)))
    assert case.rows(_ROWS) == _TOLD
    assert case.scalar("SELECT trace_id FROM span") == _TRACE
    attributes = json.loads(case.scalar("SELECT attributes FROM span"))
    assert attributes == {
        "s": "x", "i": 7, "f": 0.5, "b": False, "l": [1, "y"], "m": {"k": 2},
        "otel.status_description": "boom",
        "resource.service.name": "gateway", "resource.host.name": "node-a",
        "otel.scope.name": "vllm.otel", "otel.scope.version": "1",
    }  # fmt: skip
    assert case.rows("SELECT ts_ns, name FROM span_event") == [(_T0 * 1000 + 9, "first_chunk")]
    assert case.rows("SELECT linked_trace_id, linked_span_id FROM span_link") == [("ff", "ee")]


@pytest.mark.parametrize(
    ("state", "kept"),
    [("vendor=x,ot=th:c;rv:1", "vendor=x,ot=th:c;rv:1"), ("vendor=x", None), (None, None)],
)
def test_otlp_keeps_what_a_sampler_decided(
    state: str | None, kept: str | None, tmp_path: Path, read_files: Read
) -> None:
    document = _otlp()
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["traceState"] = state
    case = read_files(_write(tmp_path / "t.json", json.dumps(document)))
    told = "SELECT DISTINCT attributes ->> '$.tracestate' FROM span ORDER BY 1 NULLS LAST"
    assert case.rows(told)[0] == (kept,)


@pytest.mark.parametrize("wrap", ["result", "trace"])
def test_otlp_wrapped(wrap: str, tmp_path: Path, read_files: Read) -> None:
    assert read_files(_write(tmp_path / "t.json", {wrap: _otlp()})).rows(_ROWS) == _TOLD


def test_tempo_batches(tmp_path: Path, read_files: Read) -> None:
    case = read_files(_write(tmp_path / "t.json", {"batches": _otlp()["resourceSpans"]}))
    assert case.rows(_ROWS) == _TOLD


def test_otlp_lines_with_a_damaged_one(tmp_path: Path, read_files: Read) -> None:
    line = json.dumps(_otlp())
    case = read_files(_write(tmp_path / "t.log", f"{line}\n\n{line[:200]}\n{line}\n"))
    assert case.rows("SELECT count(*), count(DISTINCT span_id) FROM span") == [(2, 1)]
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_line", 1)]
    assert case.rows("SELECT status, n_elements FROM source") == [("salvaged", 3)]


def test_otlp_single_object_cut_short(tmp_path: Path, read_files: Read) -> None:
    document = _otlp()
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] *= 3
    text = json.dumps(document)
    case = read_files(
        _write(tmp_path / "t.json", text[: text.rindex('"attributes": [{"key": "s"')])
    )
    assert case.scalar("SELECT count(*) FROM span") == 2
    assert case.scalar("SELECT service FROM span LIMIT 1") == "gateway"
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_otlp_without_service_says_so(tmp_path: Path, read_files: Read) -> None:
    document = _otlp()
    document["resourceSpans"][0]["resource"] = {}
    case = read_files(_write(tmp_path / "t.json", document))
    assert case.scalar("SELECT service FROM span") is None
    assert case.scalar("SELECT count FROM ingest_note WHERE code = 'no_service'") == 1


def test_zipkin_shared_and_incomplete_spans(tmp_path: Path, read_files: Read) -> None:
    spans = [
        {"traceId": "a1", "id": "b1", "name": "get", "kind": "CLIENT", "timestamp": _T0, "duration": 9,
         "localEndpoint": {"serviceName": "web"}, "tags": {"error": "timeout"}},
        {"traceId": "a1", "id": "b1", "kind": "SERVER", "shared": True, "timestamp": _T0 + 1,
         "localEndpoint": {"serviceName": "api"}},
        {"traceId": "a1", "id": "b2", "parentId": "b1", "localEndpoint": {"serviceName": "api"},
         "annotations": [{"timestamp": _T0, "value": "retry"}]},
    ]  # fmt: skip
    case = read_files(_write(tmp_path / "z.json", [spans]))
    query = "SELECT span_id, service, kind, start_ns, dur_ns, status FROM span ORDER BY start_ns NULLS LAST"
    assert case.rows(query) == [
        ("b1", "web", "client", _T0 * 1000, 9000, "error"),
        ("b1", "api", "server", _T0 * 1000 + 1000, None, "unset"),
        ("b2", "api", None, None, None, "unset"),
    ]
    assert dict(case.rows("SELECT code, count FROM ingest_note")) == {
        "shared_ids": 1,
        "no_start": 1,
    }
    assert case.rows("SELECT name FROM span_event") == [("retry",)]


def test_elasticsearch_lines_and_answers(tmp_path: Path, read_files: Read) -> None:
    [trace] = _jaeger()["data"]
    documents = [
        {
            **span,
            "process": trace["processes"][span["processID"]],
            "tag": {"k8s@pod@name": "pod-1"},
        }
        for span in trace["spans"]
    ]
    lines = read_files(_write(tmp_path / "lines.json", "\n".join(map(json.dumps, documents))))
    answer = {
        "took": 3,
        "hits": {"total": 2, "hits": [{"_id": "x", "_source": d} for d in documents]},
    }
    for case in (lines, read_files(_write(tmp_path / "answer.json", answer))):
        assert case.rows("SELECT format, status FROM source") == [("jaeger_es", "ok")]
        assert case.rows("SELECT service, attributes ->> '$.\"k8s.pod.name\"' FROM span ORDER BY 1") == [
            ("gateway", "pod-1"), ("vllm", "pod-1"),
        ]  # fmt: skip
    many = "\n".join(
        json.dumps({**d, "spanID": f"{n:016x}"}) for n in range(1, 999) for d in documents
    )
    packed = gzip.compress(many.encode())
    cut = tmp_path / "lines.json.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    case = read_files(cut)
    assert case.rows("SELECT status FROM source") == [("salvaged",)]
    assert {"truncated", "bad_span"} <= {
        c for (c,) in case.rows("SELECT code FROM ingest_note")
    }


def test_console_exporter(tmp_path: Path, read_files: Read) -> None:
    span = {
        "name": "step", "context": {"trace_id": "0x" + _TRACE, "span_id": "0x" + _ROOT},
        "kind": "SpanKind.INTERNAL", "parent_id": None,
        "start_time": "2023-11-14T22:13:20.123456Z", "end_time": "2023-11-14T22:13:21.000000Z",
        "status": {"status_code": "OK"}, "attributes": {"a": 1}, "events": [], "links": [],
        "resource": {"attributes": {"service.name": "engine"}, "schema_url": ""},
    }  # fmt: skip
    text = (
        json.dumps(span, indent=4)
        + "\nINFO: something else was printed\n"
        + json.dumps(span, indent=4)
    )
    case = read_files(_write(tmp_path / "out.txt", text + '\n{\n    "name": "cut'))
    assert case.scalar("SELECT count(*) FROM span") == 2
    assert case.rows(_ROWS)[0] == (
        _ROOT, None, "engine", "step", "internal", 1_700_000_000_123_456_000, 876_544_000, "ok",
    )  # fmt: skip
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_span", 1)]


@pytest.mark.parametrize(
    ("told", "normal"),
    [
        ("5B8EFFF798038103D269B633813FC60C", _TRACE),
        ("0x5b8efff798038103d269b633813fc60c", _TRACE),
        ("W47/95gDgQPSabYzgT/GDA==", _TRACE),
        ("7uGbfsPBsXQ=", _ROOT),
        ("0000000000000000", None),
        ("", None),
        (None, None),
        ("not-hex!", "not-hex!"),
    ],
)
def test_ids(told: str | None, normal: str | None) -> None:
    assert normal_id(told) == normal


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"trace_id": "ab", "span_id": "cd", "start": 1}\n{"trace_id": "ab"}', "snake_case"),
        ('[{"id": "t", "messages": [{"role": "user"}]}]', "conversations"),
        (
            '{"traceId": "a", "spanId": "b", "severityText": "INFO", "body": "x"}',
            "Data Prepper",
        ),
        ("export default [{}]", "source code"),
        ("<!DOCTYPE html><html>login</html>", "web page"),
        ("", "empty"),
        ("It got slow at noon.\nNobody knows why: we asked everyone.\n", "text without"),
        ('{"hello": 1}', "'hello'"),
        ("{]", "damaged"),
    ],
)
def test_look_alikes(content: str, reason: str, tmp_path: Path, read_files: Read) -> None:
    with pytest.raises(BundleError, match=reason):
        read_files(_write(tmp_path / "file", content))


def test_times_beyond_int64_are_left_out_and_said(tmp_path: Path, read_files: Read) -> None:
    document = _jaeger()
    document["data"][0]["spans"][1]["startTime"] = 2**62
    case = read_files(_write(tmp_path / "a.json", document))
    assert case.rows("SELECT span_id FROM span") == [(_ROOT,)]
    assert case.rows("SELECT count FROM ingest_note WHERE code = 'bad_time'") == [(1,)]
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_binary_metrics_are_not_taken_for_spans(tmp_path: Path, read_files: Read) -> None:
    def part(field: int, content: bytes) -> bytes:
        return bytes([field << 3 | 2, len(content)]) + content

    metric = part(1, b"vllm:num_requests_waiting") + part(2, b"Requests that wait.")
    path = tmp_path / "metrics.bin"
    path.write_bytes(part(1, part(2, part(2, metric))))
    with pytest.raises(BundleError):
        read_files(path)
