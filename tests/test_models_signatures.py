"""Each fault leaves in torch the marks that its profile is recognised by, and no others."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="needs the extra [torch]")

from rca.models.faults import FAULTS
from rca.models.op_counts import Counts, count
from rca.models.reproduce import torch_runtime
from rca.models.settings import Plan
from rca.models.sizes import DecoderConfig
from rca.models.worker import Runtime

STEPS = 200
CLEAR = math.log(1.15)

# Cause → what its counts show beside those of the healthy service: 'op:NAME' is an operator
# that appears; other names are figures that go up (+) or down (-). Causes outside the model's
# computation show no new operator: FLAT.
FLAT: frozenset[str] = frozenset()
SIGNATURES: dict[str, frozenset[str]] = {
    "logits_processor_leak": frozenset({"op:aten::stack"}),
    "kv_object_leak": FLAT,
    "stale_tokenizer_cache_key": frozenset({"+gemm_rows_per_token"}),
    "position_gap_kv_flush": frozenset({"+gemm_rows_per_token"}),
    "detokenize_quadratic": FLAT,
    "gc_pause": FLAT,
    "implicit_host_sync": frozenset({"+syncs_per_token", "op:aten::item"}),
    "dtype_or_layout_copy": frozenset({"+allocations_per_step", "op:aten::to"}),
    "sampler_slow_path": frozenset({"op:aten::sort"}),
    "version_upgrade_regression": frozenset({"+ops_per_step", "op:aten::mul"}),
    "zombie_requests_after_disconnect": FLAT,
    "kv_pool_too_small": frozenset({"+gemm_rows_per_token"}),
    "tiny_batch": frozenset({"+ops_per_token"}),
    "batch_window_mismatch": FLAT,
    "prefill_starves_decode": frozenset({"+gemm_rows_max"}),
    "chunk_too_small": frozenset({"-gemm_rows_max"}),
    "verbose_logging": FLAT,
    "serialization_overhead": frozenset({"op:aten::log_softmax"}),
    "structured_output_compile": FLAT,
    "jit_recompile_storm": FLAT,
    "thread_oversubscription": FLAT,
    "frontend_gil_bound": FLAT,
    "tokenizer_cold_load": FLAT,
    "cold_start": FLAT,
    "connection_pool_exhausted": FLAT,
    "retry_storm": FLAT,
    "dependency_slow": FLAT,
    "cache_breakdown": FLAT,
    "embedding_version_race": frozenset({"+gemm_rows_per_token"}),
    "overload": frozenset({"-ops_per_token"}),
    "burst_arrivals": FLAT,
    "context_inflation": frozenset({"+gemm_rows_per_token"}),
    "prefix_cache_pollution": frozenset({"+gemm_rows_per_token"}),
}
REPRODUCIBLE = [
    f.cause
    for f in FAULTS.values()
    if f.reproducible and not f.by_model and f.cause != "healthy"
]


@pytest.fixture(scope="module")
def made() -> Iterator[Runtime]:
    with torch_runtime(DecoderConfig(layers=1, hidden=64)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def healthy(made: Runtime) -> Counts:
    return count(Plan(), made, 0, STEPS)


def test_each_fault_that_can_be_switched_on_has_a_signature() -> None:
    assert list(SIGNATURES) == REPRODUCIBLE


@pytest.mark.slow
@pytest.mark.parametrize("cause", REPRODUCIBLE)
def test_a_fault_leaves_its_marks_in_torch(cause: str, made: Runtime, healthy: Counts) -> None:
    found = count(FAULTS[cause].plan(Plan(), 1.0, 30.0), made, 0, STEPS)
    before, after = healthy.shown, found.shown
    for mark in SIGNATURES[cause]:
        if mark.startswith("op:"):
            name = mark.removeprefix("op:")
            assert found.operators[name] > 1.5 * healthy.operators[name] + 10, mark
        else:
            figure = mark[1:]
            moved = math.log((after[figure] + 0.01) / (before[figure] + 0.01))
            assert moved * (1 if mark[0] == "+" else -1) > CLEAR, (mark, moved)
    if SIGNATURES[cause] == FLAT:
        new = {n for n, calls in found.operators.items() if calls and not healthy.operators[n]}
        assert not new
