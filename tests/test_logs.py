"""Logs: engines, servers and JSON records; figures in the lines; settings logged at the start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.errors import BundleError
from rca.parsers.log_rows import template

Read = Callable[..., Case]
_NS = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20
_VLLM = """\
Triton is not here.
(APIServer pid=7) INFO 11-14 22:13:20 [api_utils.py:286] non-default args: {'model': 'm', 'max_num_seqs': 16, 'enforce_eager': True, 'seed': None, 'served_model_name': ['a'], 'profiler_config': ProfilerConfig(profiler='torch', dirs=[1, 2])}
(EngineCore pid=8) INFO 11-14 22:13:21 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m', dtype=torch.bfloat16, enable_prefix_caching=True
(EngineCore pid=8) INFO 11-14 22:13:22 [kv_cache_utils.py:1] GPU KV cache size: 24,576 tokens, Maximum concurrency: 12.00x
(APIServer pid=7) INFO 11-14 22:13:30 [loggers.py:335] Engine 000: Avg prompt throughput: 317.7 tokens/s, Avg generation throughput: 143.1 tokens/s, Running: 2 reqs, Waiting: 5 reqs, GPU KV cache usage: 91.7%, Prefix cache hit rate: 62.0%
(APIServer pid=7) WARNING 11-14 22:13:31 [x.py:1] Sequence group cmpl-0a1b2c3d4e is preempted at /var/log/x.log by 10.0.0.7:80
INFO:     10.0.0.7:39232 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
"""


def _read_text(text: str, path: Path, read_files: Read) -> Case:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(1, _NS + 3600 * 10**9))
    return read_files(path)


def test_vllm(tmp_path: Path, read_files: Read) -> None:
    case = _read_text(_VLLM, tmp_path / "anything.txt", read_files)
    rows = case.rows("SELECT ts_ns, service, level, message FROM log")
    assert [r[:3] for r in rows] == [
        (None, None, None),
        (_NS, "APIServer", "info"),
        (_NS + 10**9, "EngineCore", "info"),
        (_NS + 2 * 10**9, "EngineCore", "info"),
        (_NS + 10 * 10**9, "APIServer", "info"),
        (_NS + 11 * 10**9, "APIServer", "warning"),
        (None, None, "info"),
    ]
    [stats] = [
        json.loads(f)
        for (f,) in case.rows("SELECT fields FROM log WHERE message LIKE 'Engine 000%'")
    ]
    assert stats == {
        "at": "loggers.py:335", "pid": 7, "engine": "000", "prompt_throughput": 317.7,
        "generation_throughput": 143.1, "running": 2, "waiting": 5, "kv_cache_usage": 0.917,
        "prefix_cache_hit_rate": 0.62,
    }  # fmt: skip
    [access] = [
        json.loads(f)
        for (f,) in case.rows("SELECT fields FROM log WHERE message LIKE '%POST%'")
    ]
    assert access == {
        "client": "10.0.0.7:39232",
        "method": "POST",
        "path": "/v1/completions",
        "status": 500,
    }
    assert case.scalar("SELECT template FROM log WHERE level = 'warning'") == (
        "Sequence group <*> is preempted at <*> by <*>"
    )
    assert dict(case.rows("SELECT code, count FROM ingest_note")) == {
        "no_time": 2,
        "assumed_year": 5,
    }
    assert case.rows("SELECT kind, format, producer, status FROM source") == [
        ("log", "engine_log", "vLLM 0.32.0", "ok")
    ]


def test_settings_logged_at_the_start(tmp_path: Path, read_files: Read) -> None:
    case = _read_text(_VLLM, tmp_path / "vllm.log", read_files)
    found = case.rows("SELECT key, value, ts_ns FROM config ORDER BY ts_ns, key")
    assert found == [
        ("enforce_eager", "true", _NS),
        ("max_num_seqs", "16", _NS),
        ("model", "m", _NS),
        ("profiler_config.dirs", "[1, 2]", _NS),
        ("profiler_config.profiler", "torch", _NS),
        ("seed", None, _NS),
        ("served_model_name", "a", _NS),
        ("dtype", "torch.bfloat16", _NS + 10**9),
        ("enable_prefix_caching", "true", _NS + 10**9),
        ("model", "m", _NS + 10**9),
        ("version", "0.32.0", _NS + 10**9),
        ("kv_cache_size_tokens", "24576", _NS + 2 * 10**9),
    ]


def test_year_before_the_file(tmp_path: Path, read_files: Read) -> None:
    """A line of December in a file of January is of the year before."""
    path = tmp_path / "a.log"
    path.write_text("INFO 12-31 23:59:59 core.py:1] old form\n", encoding="utf-8")
    os.utime(path, ns=(1, 1_704_067_260 * 10**9))  # 2024-01-01 00:01:00
    assert read_files(path).scalar("SELECT ts_ns FROM log") == 1_704_067_199 * 10**9


_SGLANG = (
    "[2023-11-14 22:13:20] server_args=ServerArgs(model_path='m', tp_size=2, chunked_prefill_size=8192)\n"
    "[2023-11-14 22:13:21 TP0] Prefill batch. #new-seq: 1, #new-token: 512, #cached-token: 64, token usage: 0.25, #running-req: 3, #queue-req: 7\n"
    "[2023-11-14 22:13:22 TP0] Decode batch. #running-req: 4, #token: 900, token usage: 0.31, cuda graph: True, gen throughput (token/s): 88.5, #queue-req: 2\n"
)


def test_sglang(tmp_path: Path, read_files: Read) -> None:
    case = _read_text(_SGLANG, tmp_path / "s.log", read_files)
    rows = case.rows("SELECT ts_ns, service, fields FROM log ORDER BY ts_ns")
    assert [r[:2] for r in rows] == [
        (_NS, None),
        (_NS + 10**9, "TP0"),
        (_NS + 2 * 10**9, "TP0"),
    ]
    assert json.loads(rows[1][2]) == {
        "running": 3, "waiting": 7, "new_tokens": 512, "cached_tokens": 64, "kv_cache_usage": 0.25,
    }  # fmt: skip
    assert json.loads(rows[2][2])["generation_throughput"] == 88.5
    assert dict(case.rows("SELECT key, value FROM config")) == {
        "model_path": "m", "tp_size": "2", "chunked_prefill_size": "8192",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "2023-11-14T22:13:20.5Z INFO router: ready",
            (_NS + 5 * 10**8, "info", "router: ready"),
        ),
        ("2023-11-14 22:13:20,250 - ERROR - boom 7", (_NS + 25 * 10**7, "error", "- boom 7")),
        ("W1114 22:13:20.250000 42 utils.cpp:68] late", (_NS + 25 * 10**7, "warning", "late")),
        (
            "2023-11-14T22:13:20.000000001Z INFO:     Started server",
            (_NS + 1, "info", "Started server"),
        ),
        (
            "\x1b[32mINFO\x1b[0m:     Waiting for startup.",
            (None, "info", "Waiting for startup."),
        ),
    ],
)
def test_other_lines(
    line: str, expected: tuple[Any, ...], tmp_path: Path, read_files: Read
) -> None:
    case = _read_text(line + "\n", tmp_path / "x.log", read_files)
    assert case.rows("SELECT ts_ns, level, message FROM log") == [expected]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"log": "Waiting 5\n", "stream": "stdout", "time": "2023-11-14T22:13:20.000000009Z"},
         (_NS + 9, None, None, "Waiting 5")),
        ({"__REALTIME_TIMESTAMP": "1700000000000001", "MESSAGE": "oom", "PRIORITY": "3", "SYSLOG_IDENTIFIER": "kernel"},
         (_NS + 1000, "kernel", "error", "oom")),
        ({"ts": 1700000000.25, "level": "warn", "msg": "slow", "logger": "epp"},
         (_NS + 25 * 10**7, "epp", "warning", "slow")),
    ],
)  # fmt: skip
def test_json_records(record: Any, expected: Any, tmp_path: Path, read_files: Read) -> None:
    case = _read_text(
        json.dumps(record) + "\n" + json.dumps(record) + '\n{"cut',
        tmp_path / "l.json",
        read_files,
    )
    assert case.rows("SELECT ts_ns, service, level, message FROM log") == [expected] * 2
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_line", 1)]


def test_loki(tmp_path: Path, read_files: Read) -> None:
    line = _VLLM.splitlines()[4]
    answer = {"status": "success", "data": {"resultType": "streams", "result": [
        {"stream": {"app": "llm-engine"}, "values": [[str(_NS + 3), line]]}]}}  # fmt: skip
    case = _read_text(json.dumps(answer), tmp_path / "loki.json", read_files)
    assert case.rows(
        "SELECT ts_ns, service, level, CAST(fields ->> 'waiting' AS INT) FROM log"
    ) == [(_NS + 3, "llm-engine", "info", 5)]


def test_a_damaged_figure_costs_itself(tmp_path: Path, read_files: Read) -> None:
    """The line is kept with what else it says, and so are the lines around it."""
    text = _VLLM.replace("317.7 tokens", "31.7.7 tokens").replace(
        "Waiting: 5", "Waiting: " + "5" * 400
    )
    case = _read_text(
        text.replace("pid=7", f"pid={'7' * 5000}"), tmp_path / "a.log", read_files
    )
    [stats] = [
        json.loads(f)
        for (f,) in case.rows("SELECT fields FROM log WHERE message LIKE 'Engine 000%'")
    ]
    assert {"prompt_throughput", "waiting"}.isdisjoint(stats)
    assert (stats["running"], stats["kv_cache_usage"]) == (2, 0.917)
    assert case.scalar("SELECT count(*) FROM log") == 7


def test_loki_entries_that_are_none(tmp_path: Path, read_files: Read) -> None:
    values = [[str(_NS), "one"], [str(_NS)], [], 7, [str(_NS + 1), "two", {"pod": "a"}]]
    answer = {"data": {"resultType": "streams", "result": [
        {"stream": {"app": "gw", "env": "x"}, "values": values}, {"stream": {}, "values": 3}]}}  # fmt: skip
    case = _read_text(json.dumps(answer), tmp_path / "loki.json", read_files)
    assert case.rows("SELECT message, fields FROM log ORDER BY ts_ns") == [
        ("one", '{"app":"gw","env":"x"}'), ("two", '{"app":"gw","env":"x","pod":"a"}'),
    ]  # fmt: skip
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_line", 3)]
    assert case.rows("SELECT status, n_elements FROM source") == [("salvaged", 5)]


def test_json_records_keep_their_fields(tmp_path: Path, read_files: Read) -> None:
    record = {
        "time": "2023-11-14T22:13:20Z", "level": "info", "service": "gw", "msg": "done",
        "latency_ms": 812.5, "status": 503, "traceId": "AB", "tenant": "acme", "stream": True,
        "http": {"method": "POST"}, "empty": None, "big": 2**70, "text": "x" * 513, "list": [1],
    }  # fmt: skip
    case = _read_text(json.dumps(record) + "\n", tmp_path / "l.json", read_files)
    [(fields,)] = case.rows("SELECT fields FROM log")
    assert json.loads(fields) == {
        "latency_ms": 812.5, "status": 503, "trace_id": "ab", "tenant": "acme", "stream": True,
        "http.method": "POST",
    }  # fmt: skip
    assert case.rows("SELECT code, count FROM ingest_note") == [("fields_left_out", 3)]
    many = {"time": "2023-11-14T22:13:20Z", "msg": "x", **{f"k{i}": i for i in range(70)}}
    case = _read_text(json.dumps(many) + "\n", tmp_path / "m.json", read_files)
    assert case.scalar("SELECT len(json_keys(fields)) FROM log") == 64
    assert case.scalar("SELECT count FROM ingest_note") == 6


def test_otlp_logs(tmp_path: Path, read_files: Read) -> None:
    record = {
        "timeUnixNano": str(_NS + 1), "severityNumber": 17, "body": {"stringValue": "boom 42"},
        "attributes": [{"key": "k", "value": {"intValue": "1"}}], "traceId": "AB", "spanId": "CD",
    }  # fmt: skip
    document = {"resourceLogs": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "gw"}}]}, "scopeLogs": [{"logRecords": [record]}]}]}  # fmt: skip
    case = _read_text(json.dumps(document), tmp_path / "l.json", read_files)
    assert case.rows("SELECT ts_ns, service, level, template, fields FROM log") == [
        (_NS + 1, "gw", "error", "boom <*>", '{"k":1,"trace_id":"ab","span_id":"cd"}')
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("took 5.2ms on GPU 3", "took <*> on GPU <*>"),
        ("id 123e4567-e89b-12d3-a456-426614174000 ok", "id <*> ok"),
        ("GET http://10.0.0.7:80/x?y=1 done", "GET <*> done"),
        ("V1 engine at /a/b.c", "V1 engine at <*>"),
        ("2 + 2", "<*> + <*>"),
    ],
)
def test_templates(message: str, expected: str) -> None:
    assert template(message) == expected


def test_alerts(tmp_path: Path, read_files: Read) -> None:
    alert = {
        "labels": {"alertname": "HighTTFT", "severity": "page"}, "annotations": {"summary": "slow"},
        "startsAt": "2023-11-14T22:13:20.5Z", "endsAt": "2023-11-14T23:13:20Z", "status": {"state": "active"},
    }  # fmt: skip
    ended = {**alert, "status": "resolved"}
    forms = {
        "v2.json": [alert, ended],
        "hook.json": {"version": "4", "alerts": [alert, ended]},
        "prom.json": {"status": "success", "data": {"alerts": [
            {"labels": alert["labels"], "annotations": {}, "state": "firing", "activeAt": alert["startsAt"]}]}},
    }  # fmt: skip
    begin = _NS + 5 * 10**8
    for name, form in forms.items():
        case = _read_text(json.dumps(form), tmp_path / name, read_files)
        rows = case.rows(
            "SELECT name, start_ns, end_ns, severity, labels ->> 'alertname' FROM alert"
        )
        assert rows[0] == ("HighTTFT", begin, None, "page", "HighTTFT")
        if name != "prom.json":
            assert rows[1][2] == _NS + 3600 * 10**9


def test_prose_is_no_log(tmp_path: Path, read_files: Read) -> None:
    with pytest.raises(BundleError, match="text without log lines"):
        _read_text(
            "Dear all,\nthe service was slow on 2023-11-14.\nRegards\n",
            tmp_path / "mail.txt",
            read_files,
        )
