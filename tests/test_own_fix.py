"""A fix that a person names: what is understood, what is refused, and what it costs users."""

from __future__ import annotations

from pathlib import Path

import case_builder
import pytest
from typer.testing import CliRunner

from rca.cli import app
from rca.errors import FixError
from rca.models.arms import run_twin
from rca.models.faults import find
from rca.models.figures import Figures
from rca.models.infer import Facts, infer, scales
from rca.models.own_fix import parse, remedy
from rca.models.settings import MS, Plan


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("max_num_seqs=4", "max_num_seqs", 4),
        ("--max-num-batched-tokens=32", "max_num_batched_tokens", 32),
        ("num-gpu-blocks-override = 90", "num_gpu_blocks", 90),
        ("max_queue_delay_ms=50", "max_queue_delay_ns", 50 * MS),
        ("retrieval-timeout-ms=20", "dependency_timeout_ns", 20 * MS),
        ("cache_ttl_ms=600000", "cache_ttl_ns", 600_000 * MS),
        ("gpu_memory_utilization=0.5", "gpu_memory_utilization", 0.5),
        ("enable-prefix-caching=false", "enable_prefix_caching", False),
        ("attention_backend=fused", "attention_backend", "fused"),
        ("max_prompt_tokens=0", "max_prompt_tokens", 0),
    ],
)
def test_settings_are_read_as_people_write_them(text: str, name: str, value: object) -> None:
    plan = remedy(parse([text]), {}).apply(Plan())
    where = plan.gateway if hasattr(plan.gateway, name) else plan.args
    assert getattr(where, name) == value
    assert type(getattr(where, name)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "max_num_seqs", "nonsense=3", "=3", "max_num_seqs=", "max_num_seqs=many",
        "max_num_seqs=nan", "max_num_seqs=0", "max_num_seqs=-1", "num_gpu_blocks=1e9",
        "gpu_memory_utilization=1.2", "attention_backend=magic", "enable_prefix_caching=2",
        "block_size=32", "middleware=x", "max_queue_delay_ns=inf",
    ],
)  # fmt: skip
def test_what_the_model_cannot_be_run_with_is_refused(text: str) -> None:
    with pytest.raises(FixError):
        remedy(parse([text]), {})


def test_sizes_are_scaled_as_the_models_own() -> None:
    facts = Facts(
        settings={"max_num_seqs": "256", "max_num_batched_tokens": "8192"},
        prompt_tokens=4000.0, output_tokens=400.0, running=20.0, busy_share=0.8,
    )  # fmt: skip
    healthy = infer(facts).plan
    scale = scales(facts, healthy)
    half = remedy(parse(["max_num_seqs=128", "max_num_batched_tokens=4096"]), scale)
    args = half.apply(healthy).args
    assert args.max_num_seqs == pytest.approx(healthy.args.max_num_seqs / 2, abs=1)
    assert args.max_num_batched_tokens == pytest.approx(
        healthy.args.max_num_batched_tokens / 2, abs=1
    )
    assert half.name.startswith("max_num_seqs=128 (in the model ")
    assert half.knobs == ["max_num_seqs", "max_num_batched_tokens"]
    one = remedy(parse(["max_num_seqs=1"]), scale).apply(healthy)
    assert one.args.max_num_seqs == 1


@pytest.mark.parametrize(
    ("cause", "fix", "figure", "least"),
    [
        ("prefix_cache_pollution", "tenant_token_quota=150", "turned_away", 0.4),
        ("context_inflation", "max_prompt_tokens=100", "prompt_cut", 0.5),
        ("dependency_slow", "dependency_timeout_ms=1", "without_retrieval", 0.99),
    ],
)
def test_what_users_do_without_is_counted(
    cause: str, fix: str, figure: str, least: float
) -> None:
    def shown(plan: Plan) -> Figures:
        return run_twin(plan, 5, 30.0)

    faulty = find(cause).plan(Plan(), 1.0, 30.0)
    assert shown(Plan())[figure] == shown(faulty)[figure] == 0
    assert shown(remedy(parse([fix]), {}).apply(faulty))[figure] > least


def test_a_call_is_cut_when_it_waits_too_long_for_a_connection_too() -> None:
    plan = find("connection_pool_exhausted").plan(Plan(), 1.0, 30.0)
    patient = run_twin(plan, 5, 30.0)
    hasty = run_twin(remedy(parse(["dependency_timeout_ms=100"]), {}).apply(plan), 5, 30.0)
    assert patient["without_retrieval"] == 0 < hasty["without_retrieval"]


def test_a_setting_that_is_none_costs_the_case_nothing(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    with case_builder.diagnosed(path) as case:
        before = case.rows("SELECT * FROM trial")
    ran = CliRunner().invoke(app, ["trial", str(path), "--fix", "max_num_seq=4"])
    assert isinstance(ran.exception, FixError)
    assert str(ran.exception) == (
        "'max_num_seq=4' sets nothing of the model; write NAME=VALUE, of: max_num_seqs"
    )
    with case_builder.Case.open(path) as case:
        assert case.rows("SELECT * FROM trial") == before
