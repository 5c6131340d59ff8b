"""Recordings made up, of any size: the same bytes for the same size."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

START_S = 1_700_000_000
_PROFILER_S = 1_419_247  # what the profiler's own clock shows at the start
_OPS = (
    "aten::linear",
    "aten::mm",
    "aten::add",
    "aten::softmax",
    "aten::copy_",
    "vllm::unified_attention",
)
_KERNELS = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)",
)
_HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912, "numSms": 132
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": %d,
  "traceEvents": [
"""


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _step(rng: random.Random, at_ns: int, n: int) -> Iterator[str]:
    """What one operator leaves in a recording, as the profiler writes it."""
    ts, cpu, gpu = _us(at_ns), '"pid": 851, "tid": 851', '"pid": 0, "tid": 7'
    dur = [_us(rng.randrange(1, 90_000)) for _ in range(4)]
    yield f'"ph": "X", "cat": "python_function", "name": "vllm/model_executor/layers/linear.py({n % 900}): forward", {cpu},\n    "ts": {ts}, "dur": {dur[0]},\n    "args": {{\n      "Python parent id": {n - 1}, "Python id": {n}, "Ev Idx": {n}\n    }}'
    yield f'"ph": "X", "cat": "cpu_op", "name": "{rng.choice(_OPS)}", {cpu},\n    "ts": {ts}, "dur": {dur[1]},\n    "args": {{\n      "External id": {n},"Record function id": 0, "Concrete Inputs": ["", "", "", ""], "Input type": ["c10::BFloat16", "c10::BFloat16", "", ""], "Input Strides": [[4096, 1], [1, 4096], [], []], "Input Dims": [[{n % 512}, 4096], [4096, 4096], [], []], "Ev Idx": {n}\n    }}'
    yield f'"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {cpu},\n    "ts": {ts}, "dur": {dur[2]},\n    "args": {{\n      "External id": {n}, "cbid": 211, "correlation": {n}\n    }}'
    yield f'"ph": "s", "id": {n}, {cpu}, "ts": {ts},\n    "cat": "ac2g", "name": "ac2g"'
    yield f'"ph": "X", "cat": "kernel", "name": "{rng.choice(_KERNELS)}", {gpu},\n    "ts": {ts}, "dur": {dur[3]},\n    "args": {{\n      "External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {n}, "registers per thread": 96, "shared memory": 49152, "blocks per SM": 0.969697, "warps per SM": 3.878788, "grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 6\n    }}'
    yield f'"ph": "f", "id": {n}, {gpu}, "ts": {ts},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"'
    if n % 10 == 0:
        yield f'"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", {cpu},\n    "ts": {ts},\n    "args": {{\n      "Total Reserved": 121634816, "Total Allocated": 91505152, "Bytes": {n - 5000}, "Addr": 128184607182336, "Device Id": 0, "Device Type": 1, "Ev Idx": {n}\n    }}'


def _trace(size: int, start_s: int) -> Iterator[str]:
    rng = random.Random(1)
    at_ns, n, written = _PROFILER_S * 10**9 + 332_972_313, 0, 0
    yield _HEAD % ((start_s - _PROFILER_S) * 10**9)
    while written < size:
        block = []
        for _ in range(500):
            at_ns, n = at_ns + rng.randrange(1000, 9000), n + 1
            block += [f"  {{\n    {event}\n  }}" for event in _step(rng, at_ns, n)]
        text = (",\n" if written else "") + ",\n".join(block)
        yield text
        written += len(text)
    yield '\n  ],\n  "traceName": "/tmp/trace.json"\n}\n'


def _span(
    random_ids: random.Random, number: int, trace: str, root: str | None, start_s: int
) -> dict[str, Any]:
    start = start_s * 10**6 + number * 1_700
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


def _jaeger(size: int, start_s: int) -> Iterator[str]:
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
        spans = [_span(ids, numbers, trace, None, start_s)]
        root = spans[0]["spanID"]
        spans += [_span(ids, numbers + k, trace, root, start_s) for k in range(1, 5)]
        numbers += 5
        text = json.dumps(
            {"traceID": trace, "spans": spans, "processes": process}, separators=(",", ":")
        )
        yield ("," if written else "") + text
        written += len(text)
    yield '],"total":0,"limit":0,"offset":0,"errors":null}'


def _otlp(size: int, start_s: int) -> Iterator[str]:
    ids, number, written = random.Random(2), 0, 0
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    while written < size:
        spans = []
        for _ in range(50):
            number += 1
            start = start_s * 10**9 + number * 1_700_003
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


def _query_range(size: int, start_s: int) -> Iterator[str]:
    yield '{"status":"success","data":{"resultType":"matrix","result":['
    written, number = 0, 0
    while written < size:
        values = [[start_s + 15 * i, str(number + i * 1.37)] for i in range(720)]
        metric = {"__name__": "vllm:request_queue_time_seconds_bucket", **_labels(number)}
        text = json.dumps({"metric": metric, "values": values}, separators=(",", ":"))
        yield ("," if written else "") + text
        written, number = written + len(text), number + 1
    yield "]}}"


def _exposition(size: int, start_s: int) -> Iterator[str]:
    written, number = 0, 0
    yield "# TYPE vllm:request_queue_time_seconds histogram\n"
    while written < size:
        labels = ",".join(f'{k}="{v}"' for k, v in _labels(number).items())
        key = f"vllm:request_queue_time_seconds_bucket{{{labels}}}"
        text = "".join(
            f"{key} {number + i * 1.37} {start_s + 15 * i}.439\n" for i in range(720)
        )
        yield text
        written, number = written + len(text), number + 1
    yield "# EOF\n"


FORMS: dict[str, Callable[[int, int], Iterator[str]]] = {
    "PyTorch Profiler JSON": _trace,
    "Jaeger JSON": _jaeger,
    "OTLP JSON lines": _otlp,
    "Prometheus query_range": _query_range,
    "OpenMetrics text": _exposition,
}


NSYS = "Nsight Systems SQLite"
NAMES = (*FORMS, NSYS)
_TABLES = """
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
        deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER,
        gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER,
        staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
        eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,
        returnValue INTEGER);
"""
_NSYS_PAIR_BYTES = 84


def _nsys(path: Path, size: int, start_s: int) -> None:
    """A launch and its kernel for each pair."""
    path.unlink(missing_ok=True)
    rng, pid = random.Random(1), 851 << 24
    names = [*_KERNELS, "cudaLaunchKernel_v7000"]
    at_ns, kernels, calls = 0, [], []
    for n in range(size // _NSYS_PAIR_BYTES):
        at_ns += rng.randrange(1000, 9000)
        begun, took, name = at_ns + rng.randrange(2000, 9000), rng.randrange(1, 90_000), n % 3
        shape = (128, 1, 1, 128, 1, 1, 96, 0, 49152)
        kernels.append((begun, begun + took, 0, 1, 7, n, pid, name, name, *shape))
        calls.append((at_ns, at_ns + 1500, 1, pid | 851, n, 3, 0))
    with sqlite3.connect(path) as database:
        database.executescript(_TABLES)
        database.execute(
            "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (start_s * 10**9,)
        )
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
        for table, rows in (("KERNEL", kernels), ("RUNTIME", calls)):
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES ({marks})", rows
            )
    database.close()


def write(form: str, path: Path, size: int, start_s: int = START_S) -> None:
    """Write a recording of about `size` bytes that begins at `start_s`, seconds since 1970."""
    if form == NSYS:
        _nsys(path, size, start_s)
        return
    with path.open("w", encoding="utf-8") as file:
        file.writelines(FORMS[form](size, start_s))
