"""A program that speaks as `vllm serve` does: one slot for each --max-num-seqs, words at a fixed pace.

Like the real one it has a child in its process group, exports a span when an answer ends, and
writes a trace when its profiler stops. FAKE_VLLM makes it fail: 'dies', 'silent' or 'busy'.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from otlp_bytes import attribute, fixed, put, request

TOKEN_S = 0.002


class Engine:
    """Its state: what was asked, and what is counted."""

    def __init__(self, flags: dict[str, str]) -> None:
        self.flags = flags
        self.seats = threading.Semaphore(int(flags["--max-num-seqs"]))
        self.lock = threading.Lock()
        self.waiting = self.running = self.finished = 0
        self.e2e_s = 0.0

    def metrics(self) -> str:
        label = '{engine="0",model_name="tiny-llama"}'
        return (
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{label} {self.running}.0\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting{label} {self.waiting}.0\n"
            "# TYPE vllm:e2e_request_latency_seconds histogram\n"
            f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf"}} {self.finished}.0\n'
            f"vllm:e2e_request_latency_seconds_sum{label} {self.e2e_s}\n"
            f"vllm:e2e_request_latency_seconds_count{label} {self.finished}.0\n"
            f"vllm:e2e_request_latency_seconds_created{label} 1.7e9\n"
        )

    def move(self, waiting: int, running: int) -> None:
        with self.lock:
            self.waiting += waiting
            self.running += running

    def finish(self, begin_ns: int, parent: str) -> None:
        end_ns = time.time_ns()
        with self.lock:
            self.finished += 1
            self.e2e_s += (end_ns - begin_ns) / 1e9
        if parent:
            self._export(begin_ns, end_ns, parent)

    def _export(self, begin_ns: int, end_ns: int, parent: str) -> None:
        _, trace, client, _ = parent.split("-")
        span = b"".join((
            put(1, bytes.fromhex(trace)), put(2, os.urandom(8)), put(4, bytes.fromhex(client)),
            put(5, "llm_request"), put(6, 2), fixed(7, begin_ns), fixed(8, end_ns),
            attribute(9, "gen_ai.usage.prompt_tokens", put(3, 380)),
        ))  # fmt: skip
        sent = urllib.request.Request(  # noqa: S310 - loopback
            self.flags["--otlp-traces-endpoint"], request(span, service="vllm")
        )
        urllib.request.urlopen(sent, timeout=5).close()  # noqa: S310 - loopback

    def write_profile(self) -> None:
        folder = Path(json.loads(self.flags["--profiler-config"])["torch_profiler_dir"])
        at_ns = time.time_ns()
        event = {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0,
            "dur": 2.0,
        }  # fmt: skip
        trace = {"schemaVersion": 1, "baseTimeNanoseconds": at_ns, "traceEvents": [event]}
        path = folder / f"rank0.{at_ns}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))


def _profiler_status(path: str) -> int:
    return 503 if path == "/start_profile" and os.environ.get("FAKE_VLLM") == "busy" else 200


def handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health" and os.environ.get("FAKE_VLLM") == "silent":
                self._answer(b"", 503)
            else:
                self._answer(engine.metrics().encode() if self.path == "/metrics" else b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path == "/v1/completions":
                self._complete(json.loads(body), time.time_ns())
                return
            if self.path == "/stop_profile":
                engine.write_profile()
            self._answer(b"", _profiler_status(self.path))

        def _complete(self, asked: dict[str, int], begin_ns: int) -> None:
            engine.move(1, 0)
            with engine.seats:
                engine.move(-1, 1)
                self.send_response(200)
                self.end_headers()
                for _ in range(asked["max_tokens"]):
                    time.sleep(TOKEN_S)
                    self.wfile.write(b'data: {"choices": [{"text": "w1"}]}\n\n')
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")
                engine.move(0, -1)
            engine.finish(begin_ns, self.headers.get("traceparent", ""))

        def _answer(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            print(f'INFO:     127.0.0.1:1 - "{self.requestline}" 200 OK', flush=True)

    return Handler


def main(arguments: list[str]) -> None:
    flags = {
        name: value
        for name, value in zip(arguments, [*arguments[1:], ""], strict=True)
        if name.startswith("--")
    }
    print(f"INFO 11-30 10:00:00 [utils.py:1] non-default args: {flags}", flush=True)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if named := os.environ.get("FAKE_CHILD"):
        with Path(named).open("a") as file:
            file.write(f"{child.pid}\n")
    if os.environ.get("FAKE_VLLM") == "dies":
        sys.exit("ValueError: no available memory for the cache blocks")
    server = ThreadingHTTPServer(("127.0.0.1", int(flags["--port"])), handler(Engine(flags)))
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
