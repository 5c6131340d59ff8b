"""Requests to vLLM in an open loop, and the gateway through which they would have come.

Each is sent when it is due, whatever became of those before, by a thread of its own. The
gateway's spans carry the trace on to vLLM, whose `llm_request` becomes their child.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from rca.models.histogram import Histogram
from rca.models.otlp import (
    CLIENT,
    SERVER,
    new_span,
    resource,
    text_attribute,
    times,
    whole_attribute,
)
from rca.models.otlp_binary import request
from rca.models.prometheus import BYTES_BUCKETS, HTTP_BUCKETS, ROUTE
from rca.models.settings import SECOND
from rca.models.vllm_faults import Service
from rca.models.vllm_host import Line
from rca.models.vllm_model import NAME, words
from rca.models.vllm_server import HOST
from rca.models.workload import Arrival

_ERROR = 2
_TIMEOUT_S = 120.0
_NO_ANSWER = int(HTTPStatus.SERVICE_UNAVAILABLE)  # what the gateway answers when vLLM does not
_LONGEST_TEXT = (180, 260)  # characters, from and to

Json = dict[str, Any]


@dataclass
class Answer:
    """What became of one request."""

    arrival: Arrival
    sent_ns: int
    first_ns: int = 0  # of the answer's first chunk; 0 for none
    end_ns: int = 0
    status: int = _NO_ANSWER
    size_bytes: int = 0


class Gateway:
    """Sends requests, keeps histograms of them, and exports the spans of each when it ends.

    Args:
        seed: of the numbers of traces and spans.
        export: takes a request of an exporter.
    """

    def __init__(self, seed: int, export: Callable[[bytes], None]) -> None:
        self._export = export
        self._rng = random.Random(f"gateway:{seed}")
        self._lock = threading.Lock()
        self._served, self._sizes = Histogram(HTTP_BUCKETS), Histogram(BYTES_BUCKETS)
        self._open: set[threading.Thread] = set()

    def play(
        self, requests: Iterable[Arrival], service: Service, port: int, ends: threading.Event
    ) -> None:
        """Send each request when it is due, until there are no more or `ends` is set."""
        for arrival in requests:
            if ends.wait(max(0.0, (arrival.at_ns - time.time_ns()) / SECOND)):
                return
            thread = threading.Thread(
                target=self._send, args=(arrival, service, port), daemon=True
            )
            with self._lock:
                self._open.add(thread)
            thread.start()

    def wait(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait for the answers that are still to come."""
        until = time.monotonic() + timeout_s
        with self._lock:
            left = list(self._open)
        for thread in left:
            thread.join(max(0.0, until - time.monotonic()))

    def _send(self, arrival: Arrival, service: Service, port: int) -> None:
        with self._lock:
            trace = f"{self._rng.getrandbits(128):032x}"
            root, client = (f"{self._rng.getrandbits(64):016x}" for _ in range(2))
        answer = Answer(arrival, time.time_ns())
        ask(answer, body(arrival, service), port, f"00-{trace}-{client}-01")
        self._export(request(_spans(answer, trace, root, client)))
        with self._lock:
            self._served.observe((answer.end_ns - answer.sent_ns) / SECOND)
            self._sizes.observe(answer.size_bytes)
            self._open.discard(threading.current_thread())

    def lines(self) -> Iterator[Line]:
        """Its metrics."""
        with self._lock:
            served = list(self._served.lines("http_server_request_duration_seconds"))
            sizes = list(self._sizes.lines("http_server_response_body_size_bytes"))
        for name, labels, value in (*served, *sizes):
            yield name, {**ROUTE, **labels}, value


def ask(answer: Answer, sent: Json, port: int, parent: str = "") -> None:
    """Send a request and read its stream to the end; a failure leaves its status."""
    headers = {"content-type": "application/json"} | ({"traceparent": parent} if parent else {})
    connection = HTTPConnection(HOST, port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(sent), headers)
        told = connection.getresponse()
        while line := told.readline():
            answer.first_ns = answer.first_ns or time.time_ns()
            answer.size_bytes += len(line)
        answer.status = told.status
    except (OSError, HTTPException):
        answer.status = _NO_ANSWER
    finally:
        connection.close()
        answer.end_ns = time.time_ns()


def body(arrival: Arrival, service: Service) -> Json:
    """What is sent for an arrival."""
    sent: Json = {
        "model": NAME,
        "prompt": words(arrival.prompt),
        "max_tokens": arrival.output_tokens,
        "temperature": 0,
        "stream": True,
    }
    if service.logprobs:
        sent["logprobs"] = service.logprobs
    if arrival.has_schema and service.schema_properties:
        sent["structured_outputs"] = {"json": schema(arrival, service.schema_properties)}
    else:
        sent["ignore_eos"] = True  # so that answers have the length that was drawn
    return sent


def schema(arrival: Arrival, properties: int) -> Json:
    """A schema that no other request has, so that its grammar is compiled anew.

    A bound on a string's length is what takes long: a state for each character.
    """
    rng = random.Random(f"schema:{arrival.at_ns}:{arrival.index}")
    names = [f"p{rng.randrange(10**6)}" for _ in range(properties)]
    bounded = {
        name: {"type": "string", "maxLength": rng.randrange(*_LONGEST_TEXT)} for name in names
    }
    return {"type": "object", "properties": bounded, "required": names}


def _spans(answer: Answer, trace: str, root: str, client: str) -> Json:
    status = whole_attribute("http.response.status_code", answer.status)
    lasted = times(answer.sent_ns, answer.end_ns)
    lasted |= {"status": {"code": _ERROR} if answer.status >= HTTPStatus.BAD_REQUEST else {}}
    if answer.first_ns:
        lasted["events"] = [{"name": "first_chunk", "timeUnixNano": str(answer.first_ns)}]
    served = new_span(trace, root, "", "POST /v1/completions") | lasted | {"kind": SERVER}
    served["attributes"] = [
        text_attribute("http.request.method", "POST"),
        text_attribute("http.route", "/v1/completions"),
        status,
        text_attribute("tenant.id", answer.arrival.tenant),
    ]
    called = new_span(trace, client, root, "upstream llm-engine") | lasted | {"kind": CLIENT}
    called["attributes"] = [
        text_attribute("server.address", "llm-engine"),
        status,
        whole_attribute("http.response.body.size", answer.size_bytes),
    ]
    made = resource("inference-gateway", "2.7.1", "inference-gateway-0", [served, called])
    return {"resourceSpans": [made]}
