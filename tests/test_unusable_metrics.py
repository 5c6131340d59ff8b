"""Metrics that say nothing name no cause: all zero, negative, constant, or not finite."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rca.evidence.moves import Span, measure
from rca.pipeline import Options, analyze
from rca.signals import Points, Signal

SECOND = 1_000_000_000
START = 1_770_000_000
STEPS = 80
NAMES = (
    "vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_count",
    "vllm:e2e_request_latency_seconds_sum", "vllm:e2e_request_latency_seconds_count",
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_preemptions_total",
    "vllm:kv_cache_usage_perc", "process_start_time_seconds", "http_requests_total",
)  # fmt: skip


def write(folder: Path, value: str, start: int) -> None:
    folder.mkdir(parents=True)
    result = [
        {
            "metric": {"__name__": name, "job": "engine", "pod": "engine-0", "status": "500"},
            "values": [[start + 15 * i, value] for i in range(STEPS)],
        }
        for name in NAMES
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (folder / "metrics.json").write_text(json.dumps(answer))


@pytest.mark.parametrize("value", ["0", "-5", "7", "NaN", "1e308"])
@pytest.mark.parametrize("told", [False, True], ids=["scanned", "window told"])
def test_metrics_that_say_nothing_name_no_cause(tmp_path: Path, value: str, told: bool) -> None:
    write(tmp_path / "incident", value, START)
    write(tmp_path / "baseline", value, START - 86_400)
    window = ((START + 600) * SECOND, (START + 900) * SECOND) if told else None
    options = Options(trial_budget_s=None, window=window)
    with analyze([tmp_path], options=options) as case:
        found = case.verdict
    assert found["verdict"]["status"] in ("unknown", "no_incident")
    assert found["verdict"]["cause"] is None
    assert all(h["confidence"] < 0.5 for h in found["hypotheses"])


def signal(role: str, before: list[float], after: list[float]) -> Signal:
    def points(values: list[float], start: int) -> Points:
        times = (start + 15 * np.arange(len(values))) * SECOND
        return Points(times, np.array(values), np.full(len(values), 15.0))

    return Signal("metrics", role, "engine", "", points(after, START), points(before, 0))


@pytest.mark.parametrize("role", ["preemptions", "error_rate", "restart"])
def test_a_move_without_a_finite_strength_is_no_move(role: str) -> None:
    """A counter that jumped back far, or an overflow, has no strength: one NaN spoils every score."""
    span = Span(START * SECOND, (START + 150) * SECOND, 15 * SECOND)
    overflow = signal(role, [1e308] * 10, [-1e308] * 10)
    negative = signal(role, [-5.0] * 10, [-9.0] * 10)
    for one in (overflow, negative):
        with np.errstate(all="ignore"):
            move = measure(one, span)
        assert move is None or np.isfinite(move.strength)
    sound = measure(signal(role, [0.0] * 10, [9.0] * 10), span)
    assert sound is not None
    assert sound.strength > 0.9
