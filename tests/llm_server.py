"""A fake OpenAI-compatible server: real HTTP on loopback, answers and faults on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Body = dict[str, Any]
SIGNS = {"up": "up", "down": "down", "unmoved": "flat"}
VERBS = {"up": "rose", "down": "fell", "flat": "stayed"}


@dataclass
class Raw:
    """What is sent back, as it stands. `hang_s` waits before, `drip_s` after each byte."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    drip_s: float = 0.0
    cut: bool = False


Responder = Callable[[Body], "Raw | str | Body"]
"""From a request's body to a raw answer, the text of a completion, or a judgement."""


@dataclass
class Server:
    """What arrived, and what is answered."""

    url: str
    respond: Responder
    bodies: list[Body] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


def completion(text: str | None, *, finish: str = "stop", **message: Any) -> Raw:
    """A chat completion with this text."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    data = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
        "usage": usage,
    }  # fmt: skip
    return Raw(json.dumps(data).encode())


def error(status: int, message: str = "no", **more: Any) -> Raw:
    """An error as OpenAI words it."""
    text = json.dumps({"error": {"message": message, "type": "x", "param": None, **more}})
    return Raw(text.encode(), status, {"retry-after": "0"})


def shown(body: Body) -> Body:
    """The evidence pack in a request."""
    text: str = body["messages"][1]["content"]
    found: Body = json.loads(text.removeprefix("<case>\n").removesuffix("\n</case>"))
    return found


def judgement(body: Body, cause: str | None = None) -> Body:
    """A well-founded judgement for a candidate, by default the one with most evidence for it."""
    pack = shown(body)
    pick = max(
        (c for c in pack["candidates"] if cause in (None, c["cause"])),
        key=lambda c: (len(c["evidence_for"]) - len(c["evidence_against"]), c["cause"]),
    )
    claims = [
        {
            "evidence": e["id"],
            "direction": e["direction"],
            "statement": f"{e['role']} {VERBS[e['direction']]} from {e['reference']} to {e['observed']}",
        }
        for e in pack["evidence"]
        if any(
            e["direction"] == SIGNS[side] and e.get("role") in roles
            for side, roles in pick["expects"].items()
        )
    ]
    return {
        "claims": claims,
        "ruled_out": [],
        "missing": [],
        "class": pick["class"],
        "cause": pick["cause"],
        "cited": [c["evidence"] for c in claims],
        "reason": f"{pick['title']}, as the moves that it requires show",
    }


@contextmanager
def serving(respond: Responder = judgement) -> Iterator[Server]:
    """A server on a free port until the block ends."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: server))
    http.daemon_threads = True
    server = Server(f"http://127.0.0.1:{http.server_port}/v1", respond)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        http.shutdown()
        http.server_close()
        thread.join(5)


def use(server: Server | str, monkeypatch: pytest.MonkeyPatch, key: str = "test-key-1") -> None:
    """Point the environment at a server; proxies are out of the way."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    url = server if isinstance(server, str) else server.url
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", key)


def _handler(server_of: Callable[[], Server]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            server = server_of()
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            body = json.loads(raw)
            server.raw.append(raw)
            server.bodies.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            answer = server.respond(body)
            if isinstance(answer, dict):
                answer = json.dumps(answer)
            reply = completion(answer) if isinstance(answer, str) else answer
            self._send(reply, server.stop)

        def _send(self, reply: Raw, stop: threading.Event) -> None:
            stop.wait(reply.hang_s) if reply.hang_s else None
            try:
                self.send_response(reply.status)
                self.send_header("content-type", "application/json")
                length = len(reply.body) + (10 if reply.cut else 0)
                self.send_header("content-length", str(length))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not reply.drip_s:
                    self.wfile.write(reply.body)
                for byte in reply.body if reply.drip_s else b"":
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if stop.wait(reply.drip_s):
                        break
            except OSError:
                pass  # the client has gone away, as it should
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            return

    return Handler


def elapsed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and how long it takes, s."""
    started = time.monotonic()
    return work(), time.monotonic() - started
