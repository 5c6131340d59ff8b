"""What Prometheus would have scraped: vLLM's /metrics, the gateway's and the node's.

Written as the answer of `query_range` over all series. A scrape that fails leaves `up` 0.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rca.errors import EngineError
from rca.models.settings import SECOND
from rca.models.vllm_host import Line, node_lines
from rca.parsers.prometheus_text import LINE, parse_key

_LINE = re.compile(LINE)
ENGINE_JOB = {"job": "vllm", "instance": "llm-engine-0:8000", "pod": "llm-engine-0"}
GATEWAY_JOB = {"job": "inference-gateway", "instance": "inference-gateway-0:9464"}
NODE_JOB = {"job": "node", "instance": "node-a:9100"}


class Scraper:
    """Scrapes at a fixed step until the block ends; `write` gives the series of a stretch.

    Args:
        engine: The text of vLLM's /metrics; raises EngineError while there is none.
        gateway: The gateway's own lines.
        step_s: Seconds between two scrapes.
    """

    def __init__(
        self, engine: Callable[[], bytes], gateway: Callable[[], Iterator[Line]], step_s: float
    ) -> None:
        self._engine, self._gateway, self._step_s = engine, gateway, step_s
        self._series: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            self.scrape()
            due = max(due + self._step_s, time.monotonic())

    def scrape(self) -> None:
        """Scrape all three once."""
        at_ns = time.time_ns()
        up = 1
        try:
            for key, value in samples(self._engine().decode("utf-8", "replace")):
                self._add(at_ns, parse_key(key) | ENGINE_JOB, value)
        except EngineError:
            up = 0
        self._add(at_ns, {"__name__": "up", **ENGINE_JOB}, str(up))
        for job, lines in ((GATEWAY_JOB, self._gateway()), (NODE_JOB, node_lines())):
            for name, labels, number in lines:
                self._add(at_ns, {"__name__": name, **labels, **job}, repr(number))

    def _add(self, at_ns: int, labels: dict[str, str], value: str) -> None:
        self._series.setdefault(tuple(sorted(labels.items())), []).append((at_ns, value))

    def write(self, path: Path, from_ns: int, until_ns: int) -> None:
        """Write the gzipped answer."""
        result = []
        for labels, values in self._series.items():
            kept = [
                [round(at_ns / SECOND, 3), value]
                for at_ns, value in values
                if from_ns <= at_ns <= until_ns
            ]
            if kept:
                result.append({"metric": dict(labels), "values": kept})
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        path.write_bytes(
            gzip.compress(json.dumps(answer, separators=(",", ":")).encode(), mtime=0)
        )


def samples(text: str) -> Iterator[tuple[str, str]]:
    """Series and value of each sample line of an exposition."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and not found["key"].partition("{")[0].endswith("_created"):
            yield found["key"], found["value"]
