"""How fast traces and metrics are read: MB for each CPU second, beside json and a loop.

    python benchmarks/ingest_telemetry.py [--mb 50]

Files are generated, so that anybody can run it. "parser" is the parser alone, its rows dropped;
"into a case" is the whole way into a DuckDB file; "json + loop" is the plain way to the same columns.
CPU seconds count all threads of the process.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.ingest import ingest
from rca.parsers import recognise
from rca.parsers.stream import read_head

_START_S = 1_700_000_000


class _Nowhere:
    """A sink that counts rows and keeps none."""

    def __init__(self) -> None:
        self.rows = 0

    def insert(self, table: str, rows: Any) -> None:
        self.rows += rows.num_rows

    def note(self, *_: Any, **__: Any) -> None:
        """Nothing to keep."""

    def describe(self, **_: Any) -> None:
        """Nothing to keep."""

    def count_elements(self, n: int) -> None:
        """Nothing to keep."""


def _span(
    random_ids: random.Random, number: int, trace: str, root: str | None
) -> dict[str, Any]:
    start = _START_S * 10**6 + number * 1_700
    tags = [
        {"key": "span.kind", "type": "string", "value": "server"},
        {"key": "http.route", "type": "string", "value": "/v1/chat/completions"},
        {"key": "http.response.status_code", "type": "int64", "value": 200},
        {"key": "gen_ai.usage.prompt_tokens", "type": "int64", "value": number % 4000},
        {"key": "gen_ai.latency.time_to_first_token", "type": "float64", "value": number / 7},
    ]
    references = [{"refType": "CHILD_OF", "traceID": trace, "spanID": root}] if root else []
    return {
        "traceID": trace, "spanID": f"{random_ids.getrandbits(64):016x}", "operationName": "llm_request",
        "references": references, "startTime": start, "duration": 250_000 + number % 999,
        "tags": tags, "logs": [], "processID": "p1", "warnings": None,
    }  # fmt: skip


def _jaeger(size: int) -> Iterator[str]:
    numbers, ids = 0, random.Random(1)
    process = {
        "p1": {
            "serviceName": "vllm",
            "tags": [{"key": "host.name", "type": "string", "value": "node-a"}],
        }
    }
    yield '{"data":['
    written = 0
    while written < size:
        trace = f"{ids.getrandbits(128):032x}"
        spans = [_span(ids, numbers, trace, None)]
        spans += [_span(ids, numbers + k, trace, spans[0]["spanID"]) for k in range(1, 5)]
        numbers += 5
        text = json.dumps(
            {"traceID": trace, "spans": spans, "processes": process}, separators=(",", ":")
        )
        yield ("," if written else "") + text
        written += len(text)
    yield '],"total":0,"limit":0,"offset":0,"errors":null}'


def _otlp(size: int) -> Iterator[str]:
    ids, number, written = random.Random(2), 0, 0
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    while written < size:
        spans = []
        for _ in range(50):
            number += 1
            start = _START_S * 10**9 + number * 1_700_003
            spans.append({
                "traceId": f"{ids.getrandbits(128):032x}", "spanId": f"{ids.getrandbits(64):016x}",
                "name": "llm_request", "kind": 2, "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 250_000_007),
                "attributes": [
                    {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": str(number % 4000)}},
                    {"key": "gen_ai.latency.e2e", "value": {"doubleValue": number / 7}},
                    {"key": "http.route", "value": {"stringValue": "/v1/chat/completions"}}],
            })  # fmt: skip
        document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
        text = json.dumps(document, separators=(",", ":")) + "\n"
        yield text
        written += len(text)


def _labels(number: int) -> dict[str, str]:
    return {
        "engine": "0", "instance": f"10.0.0.{number % 250}:8000", "job": "llm-engine",
        "le": str(number % 20), "model_name": "llama", "pod": f"llm-engine-{number}",
    }  # fmt: skip


def _query_range(size: int) -> Iterator[str]:
    yield '{"status":"success","data":{"resultType":"matrix","result":['
    written, number = 0, 0
    while written < size:
        values = [[_START_S + 15 * i, str(number + i * 1.37)] for i in range(720)]
        metric = {"__name__": "vllm:request_queue_time_seconds_bucket", **_labels(number)}
        text = json.dumps({"metric": metric, "values": values}, separators=(",", ":"))
        yield ("," if written else "") + text
        written, number = written + len(text), number + 1
    yield "]}}"


def _exposition(size: int) -> Iterator[str]:
    written, number = 0, 0
    yield "# TYPE vllm:request_queue_time_seconds histogram\n"
    while written < size:
        labels = ",".join(f'{k}="{v}"' for k, v in _labels(number).items())
        key = f"vllm:request_queue_time_seconds_bucket{{{labels}}}"
        text = "".join(
            f"{key} {number + i * 1.37} {_START_S + 15 * i}.439\n" for i in range(720)
        )
        yield text
        written, number = written + len(text), number + 1
    yield "# EOF\n"


def _loop_jaeger(path: Path) -> int:
    rows = []
    for trace in json.loads(path.read_bytes())["data"]:
        for span in trace["spans"]:
            process = trace["processes"][span["processID"]]
            tags = {t["key"]: t["value"] for t in span["tags"]}
            tags |= {"resource." + t["key"]: t["value"] for t in process["tags"]}
            parent = next((r["spanID"] for r in span["references"]), None)
            rows.append((
                span["traceID"], span["spanID"], parent, process["serviceName"], span["operationName"],
                tags.get("span.kind"), span["startTime"] * 1000, span["duration"] * 1000, json.dumps(tags),
            ))  # fmt: skip
    return len(rows)


def _loop_otlp(path: Path) -> int:
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            for group in json.loads(line)["resourceSpans"]:
                resource = {
                    "resource." + a["key"]: next(iter(a["value"].values()))
                    for a in group["resource"]["attributes"]
                }
                for scope in group["scopeSpans"]:
                    for span in scope["spans"]:
                        tags = {
                            a["key"]: next(iter(a["value"].values()))
                            for a in span["attributes"]
                        }
                        start, end = (
                            int(span["startTimeUnixNano"]),
                            int(span["endTimeUnixNano"]),
                        )
                        rows.append(
                            (
                                span["traceId"],
                                span["spanId"],
                                start,
                                end - start,
                                json.dumps(tags | resource),
                            )
                        )
    return len(rows)


def _loop_query_range(path: Path) -> int:
    rows = [
        (number, round(ts * 1000) * 1_000_000, float(value))
        for number, series in enumerate(json.loads(path.read_bytes())["data"]["result"])
        for ts, value in series["values"]
    ]
    return len(rows)


_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+) (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _loop_exposition(path: Path) -> int:
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            found = _LINE.match(line)
            if found:
                labels = tuple(_LABEL.findall(found[2]))
                rows.append(
                    (
                        found[1],
                        labels,
                        round(float(found[4]) * 1000) * 1_000_000,
                        float(found[3]),
                    )
                )
    return len(rows)


def _cpu_s(work: Callable[..., Any], *arguments: Any) -> float:
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def _into_case(path: Path, folder: Path) -> None:
    with Case.create(folder / "case.duckdb") as case:
        ingest(case, Bundle([BundleFile(path, path.name, "incident")]))


def main() -> None:
    """Generate the files, read them, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=50, help="size of each generated file")
    size = parser.parse_args().mb * 1_000_000
    forms: dict[str, tuple[Callable[[int], Iterator[str]], Callable[[Path], int]]] = {
        "Jaeger JSON": (_jaeger, _loop_jaeger),
        "OTLP JSON lines": (_otlp, _loop_otlp),
        "Prometheus query_range": (_query_range, _loop_query_range),
        "OpenMetrics text": (_exposition, _loop_exposition),
    }
    print(
        f"{'MB for each CPU second':26}{'parser':>8}{'into a case':>13}{'json + loop':>13}{'rows':>12}"
    )
    with tempfile.TemporaryDirectory() as place:
        for name, (generate, loop) in forms.items():
            path = Path(place) / "file"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(generate(size))
            mb, sink = path.stat().st_size / 1e6, _Nowhere()
            read = recognise(read_head(path)).read
            took = [
                _cpu_s(read, path, sink),
                _cpu_s(_into_case, path, Path(place)),
                _cpu_s(loop, path),
            ]
            speeds = [f"{mb / s:.0f}" for s in took]
            print(f"{name:26}{speeds[0]:>8}{speeds[1]:>13}{speeds[2]:>13}{sink.rows:>12,}")


if __name__ == "__main__":
    main()
