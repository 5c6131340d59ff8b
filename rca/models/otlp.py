"""Spans of gateway, retrieval and engine as OTLP JSON lines, one request a line.

`llm_request` carries vLLM's attributes and, as there, is written at the finish only.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from rca.models.gateway import GATEWAY_NS, Call, Request
from rca.models.prometheus import request_seconds
from rca.models.settings import MS, SECOND, Build, Plan
from rca.models.workload import Arrival

INTERNAL, SERVER, CLIENT = 1, 2, 3
_CLIENT_HAS_GONE = 499
_FORMER_REVISION = Build().tokenizer_revision
_SHORTEST_WAIT_NS = MS // 10
_ANSWER_NS = MS // 3  # from the engine's last token to the gateway's last byte

Json = dict[str, Any]


class Traces:
    """Collects requests, writes their spans in order of their end."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"spans:{seed}")
        self._lines: list[tuple[int, Json]] = []

    def add(self, request: Request, plan: Plan, instance: str) -> None:
        """The spans of one finished request."""
        build = plan.build
        trace = f"{self._rng.getrandbits(128):032x}"
        root, engine = self._id(), self._id()
        end_ns = _left_ns(request) + request.back_ns + _ANSWER_NS
        gateway = [_root(request, trace, root, end_ns)]
        served = []
        for number, call in enumerate(request.calls):
            if call.begin_ns - call.wanted_ns > _SHORTEST_WAIT_NS:
                gateway.append(_acquire(call, trace, self._id(), root))
            client = self._id()
            gateway.append(_lookup(call, number, trace, client, root))
            served.append(_search(call, trace, self._id(), client))
        caller = root
        if plan.host.has_network:
            caller = self._id()
            gateway.append(_engine_call(request, trace, caller, root))
        spans = [
            resource("api-gateway", "4.2.0", "api-gateway-0", gateway),
            resource("retrieval", "2.1", "retrieval-0", served),
        ]
        # The engine writes its spans at the finish only, and none where it gives up with the client.
        if not request.was_aborted or _outlives_client(request):
            own = [
                _llm_request(request, trace, engine, caller, build.model_revision),
                _tokenize(request, trace, self._id(), engine, build),
            ]
            spans.append(resource("llm-engine", build.version, instance, own))
        self._lines.append((max(end_ns, request.finished_ns or 0), {"resourceSpans": spans}))

    def _id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def reject(self, arrival: Arrival) -> None:
        """The gateway's span of a request that it turned away."""
        trace = f"{self._rng.getrandbits(128):032x}"
        end_ns = arrival.at_ns + GATEWAY_NS
        span = new_span(trace, self._id(), "", "POST /v1/completions")
        span |= times(arrival.at_ns, end_ns) | {"kind": SERVER, "status": {}}
        span["attributes"] = [*_http("POST", 429), text_attribute("tenant.id", arrival.tenant)]
        spans = [resource("api-gateway", "4.2.0", "api-gateway-0", [span])]
        self._lines.append((end_ns, {"resourceSpans": spans}))

    def write(self, path: Path) -> None:
        """Write gzipped JSON lines."""
        ordered = sorted(self._lines, key=lambda line: line[0])
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for _, line in ordered)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _left_ns(request: Request) -> int:
    """When the client had its answer, or hung up."""
    if request.was_aborted:
        return request.token_times_ns[request.arrival.abort_after - 1]
    return request.finished_ns or request.ready_ns


def _outlives_client(request: Request) -> bool:
    return (request.finished_ns or 0) > _left_ns(request)


def _root(request: Request, trace: str, span_id: str, end_ns: int) -> Json:
    span = new_span(trace, span_id, "", "POST /v1/completions")
    span |= times(request.arrival.at_ns, end_ns) | {"kind": SERVER, "status": {}}
    status = _CLIENT_HAS_GONE if request.was_aborted else 200
    span["attributes"] = [
        *_http("POST", status),
        text_attribute("tenant.id", request.arrival.tenant),
    ]
    if request.arrival.has_schema:
        span["attributes"].append(text_attribute("gen_ai.output.type", "json"))
    first_ns = (request.first_token_ns or end_ns) + request.back_ns + _ANSWER_NS
    span["events"] = [{"name": "first_chunk", "timeUnixNano": str(first_ns)}]
    return span


def _acquire(call: Call, trace: str, span_id: str, root: str) -> Json:
    span = new_span(trace, span_id, root, "pool.acquire")
    span |= times(call.wanted_ns, call.begin_ns) | {"kind": INTERNAL, "status": {}}
    span["attributes"] = [text_attribute("server.address", "retrieval")]
    return span


def _lookup(call: Call, number: int, trace: str, span_id: str, root: str) -> Json:
    span = new_span(trace, span_id, root, "GET /search")
    span |= times(call.begin_ns, call.end_ns) | {"kind": CLIENT, "status": _status(call)}
    span["attributes"] = [
        *_http("GET", _code(call)),
        text_attribute("server.address", "retrieval"),
    ]
    if number:
        span["attributes"].append(whole_attribute("http.request.resend_count", number))
    return span


def _engine_call(request: Request, trace: str, span_id: str, root: str) -> Json:
    """The gateway's own span of its call, from the first byte to the last."""
    span = new_span(trace, span_id, root, "POST /v1/completions")
    end_ns = _left_ns(request) + request.back_ns
    span |= times(request.ready_ns - request.there_ns, end_ns) | {"kind": CLIENT, "status": {}}
    status = _CLIENT_HAS_GONE if request.was_aborted else 200
    address = text_attribute("server.address", "llm-engine")
    span["attributes"] = [*_http("POST", status), address]
    return span


def _search(call: Call, trace: str, span_id: str, client: str) -> Json:
    begin_ns = call.begin_ns + MS // 4
    span = new_span(trace, span_id, client, "GET /search")
    span |= times(begin_ns, max(begin_ns, call.end_ns - MS // 4)) | {"kind": SERVER}
    span["status"] = _status(call)
    span["attributes"] = [
        *_http("GET", _code(call)),
        text_attribute("cache.key", f"documents:{call.cache_key}"),
        {"key": "cache.hit", "value": {"boolValue": call.was_hit}},
    ]
    return span


def _code(call: Call) -> int:
    return 503 if call.failed else 200


def _status(call: Call) -> Json:
    return {"code": 2, "message": "503 Service Unavailable"} if call.failed else {}


def _tokenize(request: Request, trace: str, span_id: str, engine: str, build: Build) -> Json:
    begin_ns = request.received_ns or request.ready_ns
    span = new_span(trace, span_id, engine, "tokenize")
    end_ns = max(begin_ns, (request.queued_ns or begin_ns) - request.grammar_ns)
    span |= times(begin_ns, end_ns) | {"kind": INTERNAL, "status": {}}
    known = _FORMER_REVISION if request.has_old_map else build.tokenizer_revision
    span["attributes"] = [
        whole_attribute("input.tokens", request.prompt_tokens),
        text_attribute("tokenizer.version", known),
    ]
    return span


def _llm_request(request: Request, trace: str, span_id: str, root: str, revision: str) -> Json:
    seconds = request_seconds(request)
    end_ns = request.last_token_ns or request.ready_ns
    first = (request.first_token_ns or end_ns) - request.ready_ns
    latency = {
        "time_to_first_token": first / SECOND,
        "e2e": seconds["e2e_request_latency"],
        "time_in_queue": seconds["request_queue_time"],
        "time_in_model_prefill": seconds["request_prefill_time"],
        "time_in_model_decode": seconds["request_decode_time"],
        "time_in_model_inference": seconds["request_inference_time"],
    }
    span = new_span(trace, span_id, root, "llm_request")
    span |= times(request.ready_ns, end_ns) | {"kind": SERVER, "status": {}}
    span["attributes"] = [
        *(_real(f"gen_ai.latency.{name}", value) for name, value in latency.items()),
        whole_attribute("gen_ai.usage.prompt_tokens", request.prompt_tokens),
        whole_attribute("gen_ai.usage.completion_tokens", request.produced),
        text_attribute("gen_ai.request.id", f"cmpl-{trace[:16]}-0"),
        whole_attribute("gen_ai.request.max_tokens", request.output_tokens),
        text_attribute("model.version", revision),
        _real("gen_ai.request.top_p", 1.0),
        whole_attribute("gen_ai.request.n", 1),
    ]
    return span


def new_span(trace: str, span: str, parent: str, name: str) -> Json:
    """A span without times and attributes."""
    made: Json = {"traceId": trace, "spanId": span, "name": name}
    return made | {"parentSpanId": parent} if parent else made


def times(begin_ns: int, end_ns: int) -> Json:
    """Begin and end of a span."""
    return {"startTimeUnixNano": str(begin_ns), "endTimeUnixNano": str(end_ns)}


def _http(method: str, status: int) -> list[Json]:
    return [
        text_attribute("http.request.method", method),
        whole_attribute("http.response.status_code", status),
    ]


def text_attribute(key: str, value: str) -> Json:
    """An attribute that is text."""
    return {"key": key, "value": {"stringValue": value}}


def whole_attribute(key: str, value: int) -> Json:
    """An attribute that is a whole number."""
    return {"key": key, "value": {"intValue": str(value)}}


def _real(key: str, value: float) -> Json:
    return {"key": key, "value": {"doubleValue": value}}


def resource(service: str, version: str, pod: str, spans: list[Json]) -> Json:
    """The spans of one process."""
    scope = "vllm.tracing.otel" if service == "llm-engine" else service
    attributes = [
        text_attribute("service.name", service),
        text_attribute("service.version", version),
        text_attribute("k8s.pod.name", pod),
    ]
    return {
        "resource": {"attributes": attributes},
        "scopeSpans": [{"scope": {"name": scope}, "spans": spans}],
    }
