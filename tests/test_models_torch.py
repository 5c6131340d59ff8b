"""The torch model: it computes what it says, and each fault leaves its marks in the counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

from rca.models.arms import run  # noqa: E402
from rca.models.decoder import Decoder, DecoderConfig  # noqa: E402
from rca.models.faults import find  # noqa: E402
from rca.models.op_counts import count  # noqa: E402
from rca.models.reproduce import torch_runtime  # noqa: E402
from rca.models.scheduler import Batch, Slice  # noqa: E402
from rca.models.settings import Plan  # noqa: E402
from rca.models.worker import Runtime, TorchWorker, full_request  # noqa: E402


@pytest.fixture(scope="module")
def made() -> Iterator[Runtime]:
    with torch_runtime(DecoderConfig(layers=1)) as runtime:
        yield runtime


def _shown(cause: str, made: Runtime) -> dict[str, float]:
    plan = find(cause).plan(Plan(), 1.0, 30.0)
    after, before = (count(each, made, 0).shown for each in (plan, Plan()))
    return {key: math.log((after[key] + 0.01) / (before[key] + 0.01)) for key in after}


def test_paged_pieces_give_the_logits_of_one_whole_pass(made: Runtime) -> None:
    tokens = [7, 3, 900, 41, 5, 5, 77, 12] * 5  # 40 tokens: two blocks and a half
    logits = []
    for cuts in ((0, 40), (0, 13, 39, 40)):  # whole, and as chunks and a decode
        with TorchWorker(Plan(), made) as worker, torch.inference_mode():
            request = full_request(0)
            request.tokens = list(tokens)
            for start, end in pairwise(cuts):
                batch = Batch([Slice(request, start, end - start)])
                out = made.model(worker.inputs(batch))
            logits.append(out[-1])
    assert torch.allclose(logits[0], logits[1], atol=1e-4)


def test_weights_follow_the_seed() -> None:
    one, same, other = (Decoder(DecoderConfig(layers=1), seed) for seed in (1, 1, 2))
    assert torch.equal(one.head.weight, same.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)


def test_counts_are_the_same_in_two_runs(made: Runtime) -> None:
    assert count(Plan(), made, 0) == count(Plan(), made, 0)


def test_a_leak_makes_memory_and_allocations_grow(made: Runtime) -> None:
    plan = find("logits_processor_leak").plan(Plan(), 1.0, 4.0)
    with TorchWorker(plan, made) as worker:
        before = worker.live_bytes()
        figures = run(plan, worker, 0, 4.0).figures
        assert worker.live_bytes() - before > 16 << 20
    assert figures["memory_growth"] > 1.0
    assert count(plan, made, 0).operators["aten::stack"] > 100
    assert count(Plan(), made, 0).operators["aten::stack"] == 0
    assert abs(_shown("logits_processor_leak", made)["gemm_rows_per_token"]) < 0.2


def test_a_small_pool_computes_again(made: Runtime) -> None:
    shown = _shown("kv_pool_too_small", made)
    assert shown["gemm_rows_per_token"] > 0.3


def test_a_batch_window_leaves_the_work_as_it_is(made: Runtime) -> None:
    shown = _shown("batch_window_mismatch", made)
    assert abs(shown["gemm_rows_per_token"]) < 0.3
    assert abs(shown["syncs_per_token"]) < 0.1


def test_syncs_and_copies_show_in_the_counts(made: Runtime) -> None:
    assert _shown("implicit_host_sync", made)["syncs_per_token"] > 2
    assert _shown("dtype_or_layout_copy", made)["allocations_per_token"] > 0.2
    assert _shown("position_gap_kv_flush", made)["gemm_rows_per_token"] > 1
