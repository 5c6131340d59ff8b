"""Each metric format: a small export in, the expected rows out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.errors import BundleError, ParseError
from rca.parsers import recognise
from rca.parsers.grafana_csv import value_of
from rca.parsers.metric_rows import metric_type
from rca.parsers.prometheus_text import parse_key
from rca.parsers.stream import read_head

Read = Callable[..., Case]
_S = 1_700_000_000


def _write(path: Path, content: Any) -> Path:
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


def _answer(result: list[Any], kind: str = "matrix") -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


_SAMPLES = """SELECT s.name, p.ts_ns, p.value FROM sample p JOIN series s ON s.id = p.series_id
ORDER BY s.name, p.ts_ns"""


def test_query_range(tmp_path: Path, read_files: Read) -> None:
    result = [
        {"metric": {"__name__": "up", "job": "vllm"}, "values": [[_S, "1"], [_S + 0.439, "0"]]},
        {"metric": {"__name__": "x_total"}, "values": [[_S + 15, "1.5e3"], [_S + 30, "+Inf"]]},
    ]
    case = read_files(_write(tmp_path / "m.json", json.dumps(_answer(result), indent=2)))
    assert case.rows(_SAMPLES) == [
        ("up", _S * 10**9, 1.0),
        ("up", _S * 10**9 + 439_000_000, 0.0),
        ("x_total", (_S + 15) * 10**9, 1500.0),
        ("x_total", (_S + 30) * 10**9, math.inf),
    ]
    assert case.rows("SELECT name, labels['job'], type FROM series ORDER BY id") == [
        ("up", "vllm", "gauge"), ("x_total", None, "counter"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("1700000000.000000001", 1_700_000_000_000_000_001),
        ("1.700000000123e+09", 1_700_000_000_123_000_000),
        ("1700000000.1234567899999", 1_700_000_000_123_456_789),
        ("0", 0),
        ("-1.5", -1_500_000_000),
    ],
)
def test_times_are_exact(seconds: str, ns: int, tmp_path: Path, read_files: Read) -> None:
    text = json.dumps(_answer([{"metric": {"__name__": "a"}, "value": ["T", "1"]}], "vector"))
    case = read_files(_write(tmp_path / "m.json", text.replace('"T"', seconds)))
    assert case.rows(_SAMPLES) == [("a", ns, 1.0)]


def test_native_histograms(tmp_path: Path, read_files: Read) -> None:
    native = {
        "count": "3",
        "sum": "1.5",
        "buckets": [[0, "0.25", "0.5", "1"], [3, "-0.1", "0.1", "2"]],
    }
    result = [
        {
            "metric": {"__name__": "ttft"},
            "histograms": [[_S + 0.5, native]],
            "values": [[_S, "NaN"]],
        }
    ]
    case = read_files(_write(tmp_path / "m.json", _answer(result)))
    assert case.rows("SELECT ts_ns, count, sum, buckets FROM histogram_sample") == [
        (_S * 10**9 + 500_000_000, 3.0, 1.5,
         [{"low": 0.25, "high": 0.5, "count": 1.0}, {"low": -0.1, "high": 0.1, "count": 2.0}])
    ]  # fmt: skip
    assert case.scalar("SELECT type FROM series") == "histogram"
    assert math.isnan(case.scalar("SELECT value FROM sample"))


def test_cut_answer_keeps_complete_samples(tmp_path: Path, read_files: Read) -> None:
    values = [[_S + i, str(i)] for i in range(50)]
    text = json.dumps(_answer([{"metric": {"__name__": n}, "values": values} for n in "ab"]))
    case = read_files(_write(tmp_path / "m.json", text[:-100]))
    assert case.scalar("SELECT status FROM source") == "salvaged"
    counts = dict(
        case.rows(
            "SELECT s.name, count(*) FROM sample p JOIN series s ON s.id = series_id GROUP BY 1"
        )
    )
    assert counts["a"] == 50
    assert 40 < counts["b"] < 50


def test_dcgm_blanks_are_left_out(tmp_path: Path, read_files: Read) -> None:
    result = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_MEMORY_TEMP"},
            "values": [[_S, "9223372036854775794"], [_S + 1, "41"]],
        },
        {"metric": {"__name__": "other"}, "values": [[_S, "9223372036854775794"]]},
    ]
    case = read_files(_write(tmp_path / "m.json", _answer(result)))
    assert [r[0] for r in case.rows(_SAMPLES)] == ["DCGM_FI_DEV_MEMORY_TEMP", "other"]
    assert case.rows("SELECT code, count FROM ingest_note") == [("dcgm_unsupported", 1)]
    assert case.scalar("SELECT status FROM source") == "ok"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            {"status": "error", "errorType": "timeout", "error": "query timed out"},
            "timeout: query timed out",
        ),
        ({"status": "success", "data": ["up", "go_goroutines"]}, "list of metric names"),
        ({"status": "success", "data": {"activeTargets": []}}, "scrape targets"),
        (_answer([_S, "hi"], "string"), "a string"),  # type: ignore[arg-type]
        (_answer([{"metric": {}, "values": [["x", "1"]]}]), r"no \[time, value\]"),
        (_answer([{"metric": {}, "values": {"a": 1}}]), r"no \[time, value\]"),
        (_answer([{"metric": {}, "values": [[_S, "1"], [_S]]}]), r"no \[time, value\]"),
        (_answer([{"metric": {}, "values": [[_S, "1"], _S, "2"]}]), r"no \[time, value\]"),
        (_answer([{"metric": {}, "values": [[_S, "1"], [[_S], "2"]]}]), r"no \[time, value\]"),
    ],
)
def test_answers_without_samples(
    document: Any, reason: str, tmp_path: Path, read_files: Read
) -> None:
    with pytest.raises(BundleError, match=reason):
        read_files(_write(tmp_path / "m.json", document))


_CLASSIC = """# HELP vllm:x_seconds Time.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{le="1.0",engine="0"} 3.0 1700000000500
vllm:iteration_tokens_total_bucket{le="+Inf",engine="0"} 4.0 1700000000500
vllm:iteration_tokens_total_sum{engine="0"} 9.5 1700000000500
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{path="C:\\\\x\\n\\"q\\" } {",a=""} 1 1700000000500
# TYPE rpc summary
rpc{quantile="0.9"} NaN 1700000000500
"""


def test_classic_exposition(tmp_path: Path, read_files: Read) -> None:
    case = read_files(_write(tmp_path / "metrics", _CLASSIC))
    assert case.rows("SELECT name, type FROM series ORDER BY id") == [
        ("vllm:iteration_tokens_total_bucket", "counter"),
        ("vllm:iteration_tokens_total_bucket", "counter"),
        ("vllm:iteration_tokens_total_sum", "counter"),
        ("vllm:lora_requests_info", "gauge"),
        ("rpc", "summary"),
    ]
    assert (
        case.scalar("SELECT labels['path'] FROM series WHERE labels['a'] = ''")
        == 'C:\\x\n"q" } {'
    )
    assert case.rows("SELECT DISTINCT ts_ns FROM sample") == [(_S * 10**9 + 500_000_000,)]


def test_openmetrics_with_times(tmp_path: Path, read_files: Read) -> None:
    text = (
        "# TYPE tokens counter\n# UNIT tokens tokens\n"
        'tokens_total{pod="a"} 1 1700000000.25 # {trace_id="ab"} 0.5 1700000000.1\n'
        'tokens_total{pod="a"} 2 1.70000000125e+09\ntokens_created{pod="a"} 1.7e9 1700000000.25\n# EOF\n'
    )
    case = read_files(_write(tmp_path / "m.txt", text))
    assert case.rows(_SAMPLES) == [
        ("tokens_created", _S * 10**9 + 250_000_000, 1.7e9),
        ("tokens_total", _S * 10**9 + 250_000_000, 1.0),
        ("tokens_total", _S * 10**9 + 1_250_000_000, 2.0),
    ]
    assert case.rows("SELECT name, type, unit FROM series ORDER BY name") == [
        ("tokens_created", "gauge", "tokens"), ("tokens_total", "counter", "tokens"),
    ]  # fmt: skip


def test_exposition_without_times_is_one_instant(tmp_path: Path, read_files: Read) -> None:
    path = _write(tmp_path / "m.txt", "# TYPE up gauge\nup 1\nnot a sample line at all\n")
    os.utime(path, ns=(1, 1_700_000_000_000_000_123))
    case = read_files(path)
    assert case.rows(_SAMPLES) == [("up", 1_700_000_000_000_000_123, 1.0)]
    assert dict(case.rows("SELECT code, count FROM ingest_note")) == {
        "no_timestamps": 1,
        "bad_line": 1,
    }
    assert case.rows("SELECT status, n_elements FROM source") == [("salvaged", 2)]


def test_promtool_dump(tmp_path: Path, read_files: Read) -> None:
    text = (
        '{Hostname="a, b", __name__="up"} 1 1700000000439\n'
        '{Hostname="a, b", __name__="up"} NaN 1700000015439\n'
    )
    case = read_files(_write(tmp_path / "d.txt", text))
    assert case.rows("SELECT format FROM source") == [("promtool_dump",)]
    assert case.rows("SELECT name, labels['Hostname'] FROM series") == [("up", "a, b")]
    assert case.scalar("SELECT min(ts_ns) FROM sample") == 1_700_000_000_439_000_000
    assert "nan" in dict(case.rows("SELECT code, count FROM ingest_note"))


def test_victoriametrics_with_bare_infinities(tmp_path: Path, read_files: Read) -> None:
    lines = (
        '{"metric":{"__name__":"a","q":"[Inf,NaN]"},"values":[+Inf,-Inf,NaN,null,2.5],'
        '"timestamps":[1700000000001,1700000000002,1700000000003,1700000000004,1700000000005]}\n'
        '{"metric":{"__name__":"b"},"values":[1,2],"timestamps":[1700000000001]}\n'
    )
    case = read_files(_write(tmp_path / "v.jsonl", lines))
    assert case.rows("SELECT name, labels['q'] FROM series") == [("a", "[Inf,NaN]")]
    values = [r[0] for r in case.rows("SELECT value FROM sample ORDER BY ts_ns")]
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])
    assert math.isnan(values[3])
    assert values[4] == 2.5
    assert case.scalar("SELECT count FROM ingest_note WHERE code = 'bad_line'") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('sep=;\r\n"Time";"up"\r\n1700000000000;1\r\n1700000015000;\r\n', [("up", 1.0)]),
        ('"Time","{__name__=""up"", job=""a""}"\n2023-11-14T22:13:20Z,95%\n', [("up", 95.0)]),
        ("Time,p99\n2023-11-14 22:13:20,250 ms\n", [("p99", 0.25)]),
    ],
)
def test_grafana_csv(text: str, expected: list[Any], tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode())
    case = read_files(path)
    assert case.rows(_SAMPLES) == [(n, _S * 10**9, v) for n, v in expected]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,234.5", 1234.5), ("0,5", 0.5), ("1,234", 1234.0), ("2 mins", 120.0), ("3 KiB", 3072.0),
     ("-1.5e3", -1500.0), ("abc", None), ("12 parsecs", None)],
)  # fmt: skip
def test_formatted_cells(cell: str, value: float | None) -> None:
    assert value_of(cell) == value


def test_otlp_metrics(tmp_path: Path, read_files: Read) -> None:
    t = "1700000000000000007"
    metrics = [
        {"name": "tokens", "unit": "1", "sum": {"isMonotonic": True, "aggregationTemporality": 2,
            "dataPoints": [{"timeUnixNano": t, "asInt": "5", "attributes": [{"key": "m", "value": {"stringValue": "x"}}]}]}},
        {"name": "kv", "gauge": {"dataPoints": [{"timeUnixNano": t, "asDouble": 0.5}]}},
        {"name": "ttft", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": t, "count": "3", "sum": 2.0, "bucketCounts": ["1", "2"], "explicitBounds": [0.5]}]}},
        {"name": "e", "exponentialHistogram": {"dataPoints": [{"timeUnixNano": t, "count": "2", "sum": 1,
            "scale": 0, "positive": {"offset": 1, "bucketCounts": ["0", "2"]}}]}},
    ]  # fmt: skip
    document = {"resourceMetrics": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "vllm"}}]},
        "scopeMetrics": [{"metrics": metrics}]}]}  # fmt: skip
    case = read_files(_write(tmp_path / "m.json", document))
    assert case.rows("SELECT name, type, unit, labels['m'], labels['resource.service.name'] FROM series ORDER BY id") == [
        ("tokens", "counter", "1", "x", "vllm"), ("kv", "gauge", None, None, "vllm"),
        ("ttft", "histogram", "s", None, "vllm"), ("e", "histogram", None, None, "vllm"),
    ]  # fmt: skip
    assert case.rows(_SAMPLES) == [("kv", int(t), 0.5), ("tokens", int(t), 5.0)]
    buckets = [
        r[0] for r in case.rows("SELECT buckets FROM histogram_sample ORDER BY series_id")
    ]
    assert buckets[0] == [
        {"low": -math.inf, "high": 0.5, "count": 1.0}, {"low": 0.5, "high": math.inf, "count": 2.0},
    ]  # fmt: skip
    assert buckets[1][1] == {"low": 4.0, "high": 8.0, "count": 2.0}


@pytest.mark.parametrize(
    ("name", "told", "kind"),
    [
        ("vllm:num_requests_waiting", None, "gauge"),
        ("vllm:prompt_tokens_total", None, "counter"),
        ("x_bucket", "histogram", "counter"),
        ("x", "histogram", "histogram"),
        ("x_created", "counter", "gauge"),
        ("nv_inference_queue_duration_us", None, "counter"),
        ("nv_inference_pending_request_count", None, "gauge"),
        ("tgi_request_success", None, "counter"),
        ("DCGM_FI_DEV_GPU_UTIL", None, "gauge"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", None, "counter"),
        ("x_total", "gauge", "gauge"),
        ("x_total", "untyped", "counter"),
    ],
)
def test_types(name: str, told: str | None, kind: str) -> None:
    assert metric_type(name, told) == kind


@pytest.mark.parametrize(
    ("key", "labels"),
    [
        ("up", {"__name__": "up"}),
        ('a{x="1",y="2",}', {"__name__": "a", "x": "1", "y": "2"}),
        ('{"dotted.name", x="1"}', {"__name__": "dotted.name", "x": "1"}),
        ('a{ x = "b\\\\c" , y=""}', {"__name__": "a", "x": "b\\c", "y": ""}),
        ('{__name__="a", x="}{,"}', {"__name__": "a", "x": "}{,"}),
    ],
)
def test_series_keys(key: str, labels: dict[str, str]) -> None:
    assert parse_key(key) == labels


def test_milliseconds_where_seconds_are_due(tmp_path: Path, read_files: Read) -> None:
    result = [{"metric": {"__name__": "a"}, "values": [[_S * 1000, "1"]]}]
    with pytest.raises(BundleError, match="beyond the year 2262; are they in another unit"):
        read_files(_write(tmp_path / "m.json", _answer(result)))


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_damaged_answer_is_read_or_refused(cut: int, tmp_path: Path) -> None:
    """Whatever is taken out of the middle: rows or a ParseError, never another exception."""
    values = [[_S + i, str(i)] for i in range(20)]
    text = json.dumps(_answer([{"metric": {"__name__": "a", "b": "c"}, "values": values}]))
    path = _write(tmp_path / "m.json", text[:cut] + text[cut + 5 :])
    try:
        recognise(read_head(path)).read(path, _Nowhere())
    except ParseError as error:
        assert str(path) in str(error)


class _Nowhere:
    def insert(self, table: str, rows: Any) -> None:
        assert rows.num_rows

    def note(self, *_: Any, **__: Any) -> None: ...

    def describe(self, **_: Any) -> None: ...

    def count_elements(self, n: int) -> None:
        assert n >= 0


@pytest.mark.parametrize("form", ["lines", "data", "list"])
def test_answers_in_other_wrappings(form: str, tmp_path: Path, read_files: Read) -> None:
    a, b = ({"metric": {"__name__": n}, "values": [[_S, "1"]]} for n in "ab")
    error = {"status": "error", "errorType": "timeout", "error": "too slow"}
    text = {
        "lines": "\n".join(map(json.dumps, (_answer([a]), error, _answer([b])))),
        "data": json.dumps(_answer([a, b])["data"]),
        "list": json.dumps([a, b]),
    }[form]
    case = read_files(_write(tmp_path / "m.json", text))
    assert case.rows(_SAMPLES) == [("a", _S * 10**9, 1.0), ("b", _S * 10**9, 1.0)]
    notes = case.rows("SELECT message FROM ingest_note")
    assert notes == (
        [("an answer among others is an error of the server: timeout: too slow",)]
        if form == "lines"
        else []
    )
