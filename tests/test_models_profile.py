"""The modelled profile: it lists what torch runs, and says that nothing was measured."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rca.models.faults import find
from rca.models.modelled_steps import model_operators, sampler_operators
from rca.models.reproduce import Lengths, reproduce
from rca.models.scheduler import Batch, Slice
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig
from rca.models.twin import CostModel

SHORT = Lengths(baseline_s=15, lead_in_s=15, fault_s=15, profiled_steps=4)
# Views, and the host's tensors of indices and masks, are not modelled.
COMPUTING = {
    "aten::embedding",
    "aten::layer_norm",
    "aten::linear",
    "aten::index_copy_",
    "aten::scaled_dot_product_attention",
    "aten::cat",
    "aten::gelu",
    "aten::index_select",
    "aten::argmax",
    "aten::to",
    "aten::clone",
    "aten::mul",
    "aten::sort",
    "aten::softmax",
    "aten::cumsum",
    "aten::scatter",
    "aten::item",
    "aten::stack",
    "aten::repeat",
    "aten::log_softmax",
}


def _trace(cause: str, folder: Path, part: str = "incident") -> dict[str, Any]:
    out = reproduce(cause, folder, engine="twin", seed=4, dose=1.5, lengths=SHORT)
    (path,) = (out / part).glob("*.pt.trace.json.gz")
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return trace


@pytest.mark.parametrize(
    "cause",
    [
        "healthy",
        "dtype_or_layout_copy",
        "sampler_slow_path",
        "implicit_host_sync",
        "version_upgrade_regression",
        "serialization_overhead",
    ],
)
def test_a_step_runs_the_operators_that_torch_runs(cause: str) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from rca.models.op_counts import _Counting
    from rca.models.reproduce import torch_runtime
    from rca.models.worker import TorchWorker, full_request

    plan = find(cause).plan(Plan(), 1.0, 30.0)
    batch = Batch(
        [
            *(Slice(full_request(number), 224, 1) for number in range(3)),
            Slice(full_request(9), 160, 44),
            Slice(full_request(8), 181, 44),
        ]
    )
    with torch_runtime() as made, TorchWorker(plan, made) as worker:
        counting = _Counting()
        with counting:
            worker.compute(batch)
    cost, sizes = CostModel(), DecoderConfig()
    modelled = Counter(
        operator.name
        for operator in (
            *model_operators(plan, batch, cost, sizes),
            *sampler_operators(plan, batch, cost, sizes, 0.0),
        )
    )
    computed = {name: n for name, n in counting.operators.items() if name in COMPUTING}
    assert {name: n for name, n in modelled.items() if name in COMPUTING} == computed


def test_a_trace_is_placed_named_and_honest(tmp_path: Path) -> None:
    trace = _trace("healthy", tmp_path / "b")
    assert "no time was measured" in trace["producer"]
    events = trace["traceEvents"]
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    steps = [event for event in ranges if event["name"].startswith("execute_context_")]
    assert len(steps) == 12
    assert {event["name"] for event in ranges if event not in steps} == {"detokenize"}
    ends = [event["ts"] + event["dur"] for event in steps]
    assert all(end <= after["ts"] for end, after in zip(ends[:-1], steps[1:], strict=True))
    memory = [event["args"] for event in events if event["name"] == "[memory]"]
    assert sum(row["Bytes"] for row in memory) == 0  # nothing stays
    linear = next(event for event in events if event["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][1] == [192, 128]


def test_a_range_is_as_long_as_the_text_it_makes(tmp_path: Path) -> None:
    """A slow build makes the whole text again for each token, and no operator shows it."""
    took = {
        part: [
            event["dur"]
            for event in _trace("detokenize_quadratic", tmp_path / part, part)["traceEvents"]
            if event["name"] == "detokenize"
        ]
        for part in ("baseline", "incident")
    }
    assert max(took["baseline"]) == 2.0
    assert min(took["incident"]) >= 225 * 2.0


def test_a_grammar_is_no_part_of_tokenising(tmp_path: Path) -> None:
    """A service with a span for the tokenizer compiles its grammars outside of it."""
    out = reproduce(
        "structured_output_compile", tmp_path / "b", engine="twin", seed=4, lengths=SHORT
    )
    text = gzip.decompress((out / "incident" / "traces.jsonl.gz").read_bytes()).decode()
    spans = [
        span
        for line in text.splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
        if span["name"] == "tokenize"
    ]
    took = [int(s["endTimeUnixNano"]) - int(s["startTimeUnixNano"]) for s in spans]
    assert len(took) > 50
    assert 0 < min(took) <= max(took) < 10_000_000  # a grammar takes 105 ms


def test_what_a_leak_keeps_stays_alive(tmp_path: Path) -> None:
    events = _trace("logits_processor_leak", tmp_path / "b")["traceEvents"]
    kept = sum(event["args"]["Bytes"] for event in events if event["name"] == "[memory]")
    assert kept > 0
    assert any(event["name"] == "aten::stack" for event in events)


def test_it_needs_no_torch() -> None:
    program = (
        "import sys, rca.models.modelled_profile\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
