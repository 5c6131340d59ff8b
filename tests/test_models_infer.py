"""A model's sizes come back from its trace, and a bundle becomes a workload of its shape."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rca.case import Case
from rca.models.infer import Facts, FidelityRow, infer, known_shapes
from rca.models.reproduce import Lengths, reproduce
from rca.models.shapes import ShapedOp, Shapes
from rca.models.shapes import infer as infer_shapes
from rca.pipeline import Options, analyze
from rca.trial import workload_facts

SHORT = Lengths(baseline_s=30, lead_in_s=20, fault_s=20, profiled_steps=6)
DATA = os.environ.get("RCA_CONFORMANCE_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="RCA_CONFORMANCE_DATA is not set")


def _facts(*bundles: Path) -> Facts:
    with analyze(list(bundles), options=Options(trial_budget_s=None)) as case:
        return workload_facts.read(case)


def _rows(rows: list[FidelityRow]) -> dict[str, FidelityRow]:
    return {row.quantity: row for row in rows}


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "ffn", "vocabulary"),
    [(132, 6, 3, 380, 1504), (112, 7, 2, 224, 1024), (96, 2, 5, 0, 2048)],
)
def test_a_trace_gives_the_sizes_of_the_model_that_ran(
    hidden: int, heads: int, layers: int, ffn: int, vocabulary: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from rca.models.arms import start
    from rca.models.figures import Recorder
    from rca.models.profile import record
    from rca.models.reproduce import torch_runtime
    from rca.models.settings import Plan
    from rca.models.sizes import DecoderConfig
    from rca.models.worker import TorchWorker

    sizes = DecoderConfig(layers, hidden, heads, vocabulary, ffn=ffn)
    with torch_runtime(sizes) as made, TorchWorker(Plan(), made) as worker:
        engine = start(Plan(), worker, 3, 20.0, Recorder())
        record(engine, worker, tmp_path, 12)
    found = _facts(tmp_path).shapes
    assert (found.hidden, found.heads, found.layers) == (hidden, heads, layers)
    assert (found.ffn, found.vocabulary) == (ffn or 4 * hidden, vocabulary)
    assert (found.head_dim, found.kv_heads) == (hidden // heads, 1)
    assert (found.gated, found.dtype) == (False, "float32")


@needs_data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Qwen1.5-0.5B as its config.json has it.
        ("h100_qwen1.5_0.5b.json.gz", (1024, 24, 16, 16, 64, 2816, True, 151936, "bfloat16")),
        ("mi300_qwen1.5_0.5b.json.gz", (1024, 24, 16, 16, 64, 2816, True, 151936, "bfloat16")),
        ("h100_bert_small.json.gz", (512, 4, 8, 8, 64, 2048, False, 30522, "bfloat16")),
        # A whole step in one CUDA graph: only the head is left to see.
        (
            "vllm_decode_full_graph_exec.json.gz",
            (2880, None, None, None, None, None, None, 201088, "bfloat16"),
        ),
        ("vllm_prefilldecode_piecewise_exec.json.gz",
         (2880, 24, 64, 8, 64, None, None, 201088, "bfloat16")),
    ],
)  # fmt: skip
def test_traces_of_others_give_their_sizes(name: str, expected: tuple[object, ...]) -> None:
    s = _facts(Path(DATA or "") / "kineto" / name).shapes
    found = (s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim, s.ffn, s.gated)
    assert (*found, s.vocabulary, s.dtype) == expected


@needs_data
def test_what_a_graph_hides_is_assumed_and_said() -> None:
    facts = _facts(Path(DATA or "") / "kineto" / "vllm_decode_full_graph_exec.json.gz")
    rows = _rows(infer(facts).fidelity)
    assert rows["hidden size"].observed == "2880"
    for hidden in ("layers", "attention heads", "feed-forward width"):
        assert rows[hidden].observed is None
        assert rows[hidden].source == "assumed"
        assert "CUDA graph" in rows[hidden].note
    assert rows["share of time with work"].observed is None


@needs_data
def test_a_real_engine_becomes_a_workload_of_its_shape() -> None:
    workload = infer(_facts(Path(DATA or "") / "vllm" / "vllm-108"))
    rows = _rows(workload.fidelity)
    sizes = ("hidden size", "layers", "attention heads", "key and value heads", "vocabulary")
    assert [rows[size].observed for size in sizes] == ["512", "6", "8", "4", "4096"]
    kept = ("answer tokens for each prompt token", "share of time with work", "tenants",
            "prompt tokens found in the prefix cache", "token budget in prompts")  # fmt: skip
    assert all(rows[quantity].kept for quantity in kept), rows
    assert rows["seats for each running request"].kept is False  # far more than anybody uses
    assert "cut" in rows["seats for each running request"].note
    assert workload.sizes.wide / workload.sizes.hidden == pytest.approx(3.0, rel=0.02)


def test_settings_name_what_operators_do_not_show() -> None:
    shapes, added = known_shapes(
        Shapes(hidden=64), {"hidden_size": "9", "num_hidden_layers": "7", "torch_dtype": "x"}
    )
    assert (shapes.hidden, shapes.layers, shapes.dtype) == (64, 7, "x")
    assert added == {"layers", "dtype"}


def test_odd_operators_do_no_harm() -> None:
    ops = [
        ShapedOp("aten::linear", [], [], 1),
        ShapedOp("aten::linear", [[1, 2], "x", None], ["float"], 1),
        ShapedOp("aten::addmm", [[3], [2, 3], [3, True]], [], 2),
        ShapedOp("aten::scaled_dot_product_attention", [[1, 2, 3], [1]], [], 2),
    ]
    assert infer_shapes(ops).layers is None
    assert infer_shapes([]) == Shapes()


def test_nothing_known_is_the_usual_service() -> None:
    workload = infer(Facts())
    assert all(row.source == "assumed" for row in workload.fidelity)
    assert workload.plan.args.max_num_seqs == 16


def test_a_bundle_of_the_reproducer_comes_back(tmp_path: Path) -> None:
    out = reproduce("kv_pool_too_small", tmp_path / "b", engine="twin", seed=4, lengths=SHORT)
    facts = _facts(out)
    # The healthy pool, although the incident's is smaller.
    assert (facts.kv_blocks, facts.block_size) == (320, 16)
    assert facts.settings["max_num_seqs"] == "16"
    rows = _rows(infer(facts).fidelity)
    assert [q for q, row in rows.items() if row.kept is False] == []
    assert rows["hidden size"].observed == "128"


def test_the_trial_keeps_the_fidelity_in_the_case(tmp_path: Path) -> None:
    out = reproduce("overload", tmp_path / "b", engine="twin", seed=4, lengths=SHORT)
    path = tmp_path / "case.duckdb"
    with analyze([out], options=Options(trial_budget_s=None), case_path=path):
        pass
    with Case.open(path) as case:
        from rca import trial

        trial.run(case, 2.0, "overload")
        found = case.rows(
            "SELECT observed, modelled, source FROM trial_fidelity WHERE quantity = 'layers'"
        )
    assert found == [("4", "1", "operators")]
