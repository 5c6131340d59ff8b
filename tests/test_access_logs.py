"""Access logs: Envoy's text, Istio's text, JSON; fields, the service that was asked, levels, templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.parsers import recognise
from rca.parsers.format import Head

Read = Callable[..., Case]
_NS = 1_700_000_000_310_000_000
_TIME = "2023-11-14T22:13:20.310Z"
_ENVOY = (
    f'[{_TIME}] "POST /v1/chat/completions?user=7 HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" '
    '"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "llm-engine:8000" "tcp://10.0.2.1:80"'
)
_ISTIO = (
    f'[{_TIME}] "GET /items/4711 HTTP/1.1" 503 UF,URX upstream_reset - "connect timeout" 0 91 3004 - "-" '
    '"Mozilla/5.0 (X11; "odd" agent)" "84961386-6d84-929d-98bd-c5aee93b5c88" "retrieval:8000" "10.44.1.27:80" '
    "outbound|8000|v2|retrieval.prod.svc.cluster.local 10.44.1.2:41854 10.44.1.27:80 10.44.1.23:37652 - default"
)
_INBOUND = (
    f'[{_TIME}] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" "8496" '
    '"httpbin.foo:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 '
    "outbound_.8000_._.httpbin.foo.svc.cluster.local default"
)
_TCP = (
    f'[{_TIME}] "- - -" 0 - - - "-" 37 41 5009 - "-" "-" "-" "-" "10.1.1.9:6379" '
    "outbound|6379||cache.prod.svc.cluster.local 10.1.1.2:1 10.2.2.2:6379 10.1.1.2:2 - -"
)
_JSON = {
    "start_time": _TIME, "method": "POST", "path": "/v1/chat/completions?x=1", "protocol": "HTTP/1.1",
    "response_code": 503, "response_flags": "UH", "response_code_details": "no_healthy_upstream",
    "connection_termination_details": None, "bytes_received": "10", "bytes_sent": 19, "duration": 12,
    "upstream_service_time": "-", "authority": "gateway.example.com", "upstream_host": None,
    "upstream_cluster": "outbound|8000||llm-engine.prod.svc.cluster.local", "route_name": "default",
}  # fmt: skip
_GATEWAY = {
    ":authority": "10.0.0.9", "start_time": _TIME, "method": "GET", "x-envoy-origin-path": "/health",
    "response_code": 200, "response_flags": "-", "bytes_sent": 2, "duration": 1,
    "x-envoy-upstream-service-time": "1", "upstream_cluster": "engine_pool",
}  # fmt: skip
_NGINX = {
    "time": "2023-11-14T23:13:20.310+01:00", "request_method": "GET", "uri": "/files/0a1b2c3d4e5f/x",
    "status": "429", "request_time": "0.004", "upstream_response_time": "0.003", "host": "chat",
}  # fmt: skip


def _rows(text: str, path: Path, read_files: Read) -> list[tuple[Any, ...]]:
    path.write_text(text, encoding="utf-8")
    case = read_files(path)
    assert case.rows("SELECT kind, status FROM source") == [("log", "ok")]
    return [
        (*row, json.loads(fields))
        for *row, fields in case.rows("SELECT ts_ns, service, level, template, fields FROM log")
    ]


def test_envoys_default_text(tmp_path: Path, read_files: Read) -> None:
    fields = {
        "method": "POST", "path": "/v1/chat/completions", "protocol": "HTTP/2", "client": "10.0.35.28",
        "user_agent": "nsq2http", "request_id": "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2",
        "authority": "llm-engine:8000", "upstream_host": "tcp://10.0.2.1:80", "status": 204,
        "bytes_received": 154, "bytes_sent": 0, "duration_ms": 226.0, "upstream_ms": 100.0,
    }  # fmt: skip
    assert _rows(f"{_ENVOY}\n{_ENVOY}\n", tmp_path / "access.log", read_files) == 2 * [
        (_NS, "llm-engine", "info", "POST /v1/chat/completions 204", fields)
    ]


def test_istios_text(tmp_path: Path, read_files: Read) -> None:
    told = _rows("\n".join([_ISTIO, _INBOUND, _TCP]), tmp_path / "x", read_files)
    assert [row[:4] for row in told] == [
        (_NS, "retrieval", "error", "GET /items/<*> 503 UF,URX"),
        (_NS, "httpbin", "warning", "GET /status/<*> 418"),
        (_NS, "cache", "info", "- - 0"),
    ]
    assert told[0][4] == {
        "method": "GET", "path": "/items/4711", "protocol": "HTTP/1.1", "flags": "UF,URX",
        "details": "upstream_reset", "failure": "connect timeout", "user_agent": 'Mozilla/5.0 (X11; "odd" agent)',
        "request_id": "84961386-6d84-929d-98bd-c5aee93b5c88", "authority": "retrieval:8000",
        "upstream_host": "10.44.1.27:80", "upstream_cluster": "outbound|8000|v2|retrieval.prod.svc.cluster.local",
        "route": "default", "status": 503, "bytes_received": 0, "bytes_sent": 91, "duration_ms": 3004.0,
    }  # fmt: skip


def test_the_sidecars_own_lines_stay_beside(tmp_path: Path, read_files: Read) -> None:
    own = "2023-11-14T22:13:20.310000Z\tinfo\tEnvoy proxy is ready"
    text = f"{own}\n{_ISTIO}\n{json.dumps(_JSON)}\n2023-11-14T22:13:20.310Z {_INBOUND}\n"
    told = _rows(text, tmp_path / "istio-proxy.log", read_files)
    assert [row[:3] for row in told] == [
        (_NS, None, "info"), (_NS, "retrieval", "error"), (_NS, "llm-engine", "error"), (_NS, "httpbin", "warning"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "service", "level", "template", "fields"),
    [
        (
            _JSON, "llm-engine", "error", "POST /v1/chat/completions 503 UH",
            {
                "method": "POST", "path": "/v1/chat/completions", "protocol": "HTTP/1.1", "flags": "UH",
                "details": "no_healthy_upstream", "authority": "gateway.example.com",
                "upstream_cluster": "outbound|8000||llm-engine.prod.svc.cluster.local", "route": "default",
                "status": 503, "bytes_received": 10, "bytes_sent": 19, "duration_ms": 12.0,
            },
        ),
        (
            _GATEWAY, "engine_pool", "info", "GET /health 200",
            {
                "method": "GET", "path": "/health", "authority": "10.0.0.9", "upstream_cluster": "engine_pool",
                "status": 200, "bytes_sent": 2, "duration_ms": 1.0, "upstream_ms": 1.0,
            },
        ),
        (
            _NGINX, "chat", "warning", "GET /files/<*>/x 429",
            {
                "method": "GET", "path": "/files/0a1b2c3d4e5f/x", "authority": "chat", "status": 429,
                "duration_ms": 4.0, "upstream_ms": 3.0,
            },
        ),
    ],
)  # fmt: skip
def test_json(
    record: Any, service: str, level: str, template: str, fields: Any, tmp_path: Path, read_files: Read
) -> None:  # fmt: skip
    told = _rows(json.dumps(record) + "\n", tmp_path / "access.json", read_files)
    assert told == [(_NS, service, level, template, fields)]


def test_json_inside_other_logs(tmp_path: Path, read_files: Read) -> None:
    wrapped = {"time": "2023-11-14T22:13:21Z", "stream": "stdout", "log": json.dumps(_JSON)}
    [told] = _rows(json.dumps(wrapped) + "\n", tmp_path / "docker.log", read_files)
    assert told[:4] == (
        1_700_000_001_000_000_000, "llm-engine", "error", "POST /v1/chat/completions 503 UH",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "level"), [("-", "info"), ("DC", "warning"), ("UF", "error"), ("URX", "error")]
)
def test_no_answer_counts_by_its_flags(
    flags: str, level: str, tmp_path: Path, read_files: Read
) -> None:
    record = _JSON | {"response_code": 0, "response_flags": flags}
    [told] = _rows(json.dumps(record), tmp_path / "x", read_files)
    assert told[2] == level


def test_what_the_hint_of_a_common_access_log_names_is_read() -> None:
    record = {"time": _TIME, "method": "GET", "path": "/", "status": 200, "duration_ms": 3.5}
    assert recognise(Head(Path("x"), json.dumps(record).encode())).name == "json_log"


@pytest.mark.parametrize(
    "record",
    [
        {"trace_id": "a", "span_id": "b", "time": _TIME, "status": 200, "duration": 1},
        {"time": _TIME, "status": "OK", "duration": 1},
        {"time": _TIME, "status": 200},
    ],
)
def test_records_of_other_things_are_no_access_log(record: Any) -> None:
    with pytest.raises(Exception, match=r"schema of its own|not known"):
        recognise(Head(Path("x"), json.dumps(record).encode()))
