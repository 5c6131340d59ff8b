"""Traces of an engine as Jaeger answers them, as many and as slow as a test wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

START_US = 1_770_000_000_000_000


def traced(
    path: Path,
    e2e_ms: float = 100.0,
    n: int = 1000,
    failed: int = 0,
    seed: int = 0,
    name: str = "llm_request",
    arm: str = "",
    first: int = 0,
) -> Path:
    """Jaeger's answer for n requests, 10 a second, about `e2e_ms` long; a third until the first token."""
    draws = np.random.default_rng(seed)
    lengths_us = (e2e_ms * 1000 * draws.gamma(40, 1 / 40, n)).astype(int)
    traces = []
    for i, dur in enumerate(lengths_us):
        tags = [
            _tag("gen_ai.latency.time_to_first_token", "float64", dur / 3e6),
            _tag("gen_ai.latency.time_in_model_decode", "float64", dur / 2e6),
            _tag("gen_ai.usage.prompt_tokens", "int64", 100),
            _tag("gen_ai.usage.completion_tokens", "int64", 20),
            _tag("span.kind", "string", "server"),
        ]
        tags += [_tag("error", "bool", True)] if i < failed else []
        tags += [_tag("ab/arm", "string", arm)] if arm else []
        span = {
            "traceID": f"{first + i + 1:032x}", "spanID": f"{first + i + 1:016x}", "operationName": name,
            "references": [], "startTime": START_US + i * 100_000, "duration": int(dur),
            "tags": tags, "logs": [], "processID": "p1",
        }  # fmt: skip
        service = {"p1": {"serviceName": "vllm", "tags": []}}
        traces.append({"traceID": span["traceID"], "spans": [span], "processes": service})
    path.mkdir(parents=True, exist_ok=True)
    (path / f"traces{arm}.json").write_text(json.dumps({"data": traces}))
    return path


def _tag(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"key": key, "type": kind, "value": value}
