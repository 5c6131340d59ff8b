"""What an engine's log says of its state: points of roles where no metric says them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from telemetry_builder import add_series, add_source

from rca.case import Case
from rca.roles import assign

Read = Callable[..., Case]
_NS = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20
_VLLM = """\
(APIServer pid=7) INFO 11-14 22:13:20 [loggers.py:335] Engine 000: Avg prompt throughput: 300.0 tokens/s, Avg generation throughput: 140.0 tokens/s, Running: 20 reqs, Waiting: 1 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 61.0%
(EngineCore pid=8) WARNING 11-14 22:13:31 [x.py:1] Sequence group cmpl-0a1b2c3d4e is preempted by PreemptionMode.RECOMPUTE mode
(APIServer pid=7) INFO 11-14 22:13:40 [loggers.py:335] Engine 000: Avg prompt throughput: 310.0 tokens/s, Avg generation throughput: 70.0 tokens/s, Running: 40 reqs, Waiting: 150 reqs, GPU KV cache usage: 99.4%, Prefix cache hit rate: 12.0%
"""
_SGLANG = """\
[2023-11-14 22:13:20 TP0] Prefill batch. #new-seq: 1, #new-token: 300, #cached-token: 100, token usage: 0.25, #running-req: 3, #queue-req: 7
[2023-11-14 22:13:22 TP0] Decode batch. #running-req: 4, #token: 900, token usage: 0.31, gen throughput (token/s): 88.5, #queue-req: 2
[2023-11-14 22:13:32 TP0] Decode batch is full, token usage: 0.99, #retracted_reqs: 3, #running-req: 4, #queue-req: 2
"""


def _case(text: str, tmp_path: Path, read_files: Read) -> Case:
    path = tmp_path / "engine.log"
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(1, _NS + 3600 * 10**9))
    return read_files(path)


def _values(case: Case) -> dict[str, list[tuple[float, float]]]:
    """Seconds and values of each role."""
    found: dict[str, list[tuple[float, float]]] = {}
    for role, service, ts_ns, value in case.rows(
        "SELECT role, service, ts_ns, num / den FROM signal_value WHERE role <> 'log_rate' AND source = 'log' ORDER BY ALL"
    ):
        assert service == ""
        found.setdefault(role, []).append(((ts_ns - _NS) / 1e9, value))
    return found


def test_vllm(tmp_path: Path, read_files: Read) -> None:
    found = _values(_case(_VLLM, tmp_path, read_files))
    assert found == {
        "running": [(0, 20), (20, 40)], "waiting": [(0, 1), (20, 150)],
        "kv_usage": [(0, 0.5), (20, 0.994)], "prefix_hit_rate": [(0, 0.61), (20, 0.12)],
        "prompt_throughput": [(0, 300), (20, 310)], "generation_throughput": [(0, 140), (20, 70)],
        "preemptions": [(0, 0), (10, 0.1), (20, 0)],
        "compile_lines": [(10, 0)], "new_log_template": [(10, 0.1)],
    }  # fmt: skip


def test_sglang(tmp_path: Path, read_files: Read) -> None:
    found = _values(_case(_SGLANG, tmp_path, read_files))
    assert found["waiting"] == [(0, 7), (2, 2), (12, 2)]
    assert found["kv_usage"] == [(0, 0.25), (2, 0.31), (12, 0.99)]
    assert found["prefix_hit_rate"] == [(0, 0.25)]
    assert found["generation_throughput"] == [(2, 88.5)]
    assert found["preemptions"] == [(0, 0), (10, 0.3)]


def test_metrics_come_first(tmp_path: Path, read_files: Read) -> None:
    case = _case(_VLLM, tmp_path, read_files)
    metrics = add_source(case, "metrics")
    add_series(
        case, metrics, "vllm:num_requests_waiting", {"service": "llm"}, [(0, 1), (15, 2)]
    )
    assign(case)
    roles = case.rows("SELECT DISTINCT role FROM engine_log_value ORDER BY 1")
    assert ("waiting",) not in roles
    assert ("running",) in roles


def test_a_record_of_another_service_is_no_engine(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "app.jsonl"
    path.write_text(
        '{"time": "2023-11-14T22:13:20Z", "msg": "pool", "running": 5, "waiting": 9}\n' * 3,
        encoding="utf-8",
    )
    assert read_files(path).rows("SELECT * FROM engine_log_value") == []
