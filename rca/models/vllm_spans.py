"""A collector of spans: what arrives as OTLP over HTTP is kept as it came, with lengths in front.

One file holds the spans of all services: a trace that lies in several files is not joined again.
"""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

_LARGEST_BYTES = 64_000_000
_LENGTH_BYTES = 4  # as a collector's file exporter writes it, the largest byte first


class Export(NamedTuple):
    """One request of an exporter."""

    received_ns: int
    body: bytes


class Receiver(NamedTuple):
    """Where exporters send to, and what arrived so far."""

    endpoint: str
    exports: list[Export]

    def keep(self, body: bytes) -> None:
        """Keep a request of an exporter, received now."""
        self.exports.append(Export(time.time_ns(), body))

    def write(self, path: Path, from_ns: int, until_ns: int) -> None:
        """Write what was received in a stretch of time, compressed."""
        found = [e.body for e in self.exports if from_ns <= e.received_ns < until_ns and e.body]
        data = b"".join(len(body).to_bytes(_LENGTH_BYTES, "big") + body for body in found)
        path.write_bytes(gzip.compress(data, mtime=0))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of loopback, until the block ends."""
    exports: list[Export] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(exports))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Receiver(f"http://127.0.0.1:{server.server_port}/v1/traces", exports)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(exports: list[Export]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if not 0 <= length <= _LARGEST_BYTES:
                self.send_error(413)
                return
            body = self.rfile.read(length)
            try:
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
            except (OSError, EOFError, zlib.error):
                self.send_error(400)
                return
            exports.append(Export(time.time_ns(), body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    return Handler
