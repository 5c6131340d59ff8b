"""Other settings on the incident's workload: exact where the twin answers, honest elsewhere."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rca.case import Case
from rca.cli import app
from rca.errors import MissingExtra
from rca.models import cache_policies
from rca.models.cache_policies import replay
from rca.models.reproduce import Lengths, reproduce
from rca.models.settings import SECOND, Plan
from rca.models.slo import LEAST_SHARE, REQUESTS, measure, objective_of, wilson
from rca.models.what_if import Row, run_in_twin
from rca.pipeline import Options, analyze
from rca.trial import what_if

SHORT = Lengths(baseline_s=30, lead_in_s=20, fault_s=20, profiled_steps=4)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("what_if")
    out = reproduce("overload", folder / "b", engine="twin", seed=4, lengths=SHORT)
    with analyze([out], case_path=folder / "c.duckdb", options=Options(trial_budget_s=None)):
        pass
    return folder / "c.duckdb"


def _of(rows: list[Row], figure: str) -> dict[tuple[str, float | None], Row]:
    return {(row.setting, row.load): row for row in rows if row.figure == figure}


def test_wilson_bounds_are_those_of_the_book() -> None:
    low, high = wilson(95, 100)
    assert (low, high) == pytest.approx((0.888, 0.978), abs=0.001)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(REQUESTS - 2, REQUESTS)[0] > LEAST_SHARE > wilson(99, 100)[0]


def test_the_recommended_batch_is_sure_and_carries_most() -> None:
    rows = run_in_twin("batch", Plan())
    shares, carried = _of(rows, "slo_share"), _of(rows, "throughput")
    assert all(row.value >= 100 for row in _of(rows, "requests").values())
    (best,) = {key for key, row in shares.items() if row.recommended}
    sure = [key for key, row in shares.items() if (row.low or 0) >= LEAST_SHARE]
    assert best in sure
    assert carried[best].value >= 0.99 * max(carried[key].value for key in sure)
    tiny = shares["max_num_seqs=2 max_num_batched_tokens=48", 1.5]
    assert tiny.value < 0.8
    assert not tiny.recommended


def test_no_setting_is_recommended_when_none_keeps_the_objective() -> None:
    overloaded = Plan().with_traffic(rate_per_s=40.0)
    cell = measure(overloaded, 1, objective_of(Plan(), 1))
    assert cell.interval[0] < LEAST_SHARE
    from rca.models.what_if import _best

    assert _best({(1, 1, 1.0): cell}) is None


def test_a_smaller_pool_preempts_and_more_replicas_help() -> None:
    rows = run_in_twin("kv", Plan())
    preempted = [row.value for row in _of(rows, "preemptions_per_request").values()]
    assert preempted[0] > preempted[-1] == 0
    rows = run_in_twin("replicas", Plan(), incident_load=3.0)
    shares = _of(rows, "slo_share")
    assert shares["replicas=1", 3.0].value < shares["replicas=4", 3.0].value
    assert [key for key, row in shares.items() if row.recommended and key[1] == 3.0]


def test_the_urgent_lane_serves_the_urgent_at_the_cost_of_others() -> None:
    found = _of(run_in_twin("priority", Plan()), "urgent_in_time")
    without = found["priority_scheduling=false urgent_share=0.2", 1.5]
    with_lane = found["priority_scheduling=true urgent_share=0.2", 1.5]
    assert with_lane.value > without.value
    assert with_lane.recommended
    others = _of(run_in_twin("priority", Plan()), "other_ttft_p95")
    key = "priority_scheduling={} urgent_share=0.2"
    assert others[key.format("true"), 1.5].value > others[key.format("false"), 1.5].value


def test_the_prefix_cache_is_worth_having() -> None:
    rows = run_in_twin("cache", Plan())
    rates = _of(rows, "prefix_hit_rate")
    assert rates["enable_prefix_caching=false", 1.0].value == 0
    assert rates["enable_prefix_caching=true", 1.0].value > 0.5
    assert rates["enable_prefix_caching=true", 1.0].recommended


def test_policies_are_what_they_are_called() -> None:
    keys = ["a", "b", "a", "b", "x", "y", "a", "b"]
    stream = [(number * SECOND, key) for number, key in enumerate(keys)]
    lru, lru_2, _ = replay(stream, 2)
    assert lru.hits == 2  # the scan of x and y drives a and b out
    assert lru_2.hits == 3  # keys seen twice outlive keys seen once
    slow = [(number * 20 * SECOND, "a") for number in range(4)]
    assert {one.policy: one.hits for one in replay(slow, 1)} == {
        "lru": 3,
        "lru_2": 3,
        "heat_ttl": 0,
    }
    assert cache_policies.replay([], 4)[0].hit_rate == 0


def test_recorded_keys_are_replayed_and_said_to_be(read_files: Callable[..., Case]) -> None:
    sample = Path(__file__).parent.parent / "sample_traces" / "05_dependency_slow"
    keys = what_if.recorded_keys(read_files(sample / "incident" / "traces.jsonl.gz"))
    times = [at_ns for at_ns, _ in keys]
    assert times == sorted(times)
    rows = [row for row in run_in_twin("cache", Plan(), 1.0, keys) if "policy=" in row.setting]
    repeated = {k for k, n in Counter(key for _, key in keys).items() if n > 1}
    whole = f"policy=lru entries={len(repeated)} keys=recorded"
    (lru,) = (row for row in rows if row.setting == whole)
    assert (lru.engine, lru.load, lru.unit) == ("replay", None, "share")
    assert lru.value == replay(keys, len(repeated))[0].hit_rate > 0.5
    drawn = [
        row for row in run_in_twin("cache", Plan(), 1.0, keys[:49]) if "policy=" in row.setting
    ]
    assert {row.setting.rpartition(" ")[2] for row in drawn} == {"keys=drawn"}
    assert {row.engine for row in drawn} == {"twin"}


def test_the_study_is_kept_in_the_case(case: Path) -> None:
    result = CliRunner().invoke(app, ["trial", str(case), "--what-if", "replicas", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (
        found["claim"]
        == "figures of the model (twin, cost model of a CPU): mechanism and direction only"
    )
    with Case.open(case, read_only=True) as opened:
        rows = what_if.read(opened, "replicas")
    assert [row._asdict() for row in rows] == found["rows"]
    # The incident's own load is among those tried.
    assert any(row.load and row.load > 1.6 and row.load != 2.0 for row in rows)


def test_tables_for_people_name_the_recommendation(case: Path) -> None:
    with Case.open(case) as opened:
        study = what_if.run(opened, "replicas")
    text = io.StringIO()
    what_if.render(study, Console(file=text, width=120))
    assert "Figures of the model (twin, cost model of a CPU), not of production" in " ".join(
        text.getvalue().split()
    )
    assert "* replicas=" in text.getvalue()


def test_without_torch_the_twin_still_answers(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_sizes: object) -> None:
        raise MissingExtra("torch", "torch")

    monkeypatch.setattr("rca.models.reproduce.torch_runtime", missing)
    with Case.open(case) as opened:
        study = what_if.run(opened, "kv")
        assert study.rows
        assert "pip install" in study.left_out[0]
        with pytest.raises(MissingExtra):
            what_if.run(opened, "quant")


def test_torch_measures_layouts_the_proxy_and_formats(case: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from rca.models.reproduce import torch_runtime
    from rca.models.sizes import DecoderConfig
    from rca.models.what_if_torch import pareto, run_in_torch

    with torch_runtime(DecoderConfig(layers=1, hidden=64)) as made:
        layouts = {(r.setting, r.figure): r.value for r in run_in_torch("kv", Plan(), made)}
        proxy = {(r.setting, r.figure): r.value for r in run_in_torch("cache", Plan(), made)}
        quant = {(r.setting, r.figure): r.value for r in run_in_torch("quant", Plan(), made)}
    moved = [layouts[f"layout={name}", "bytes_moved"] for name in ("contiguous", "strided")]
    assert moved[1] == 2 * moved[0]  # gathered, then turned around
    assert proxy["forward_proxy=on", "proxy_hit_rate"] > 0.8
    assert proxy["forward_proxy=on, a new model version", "proxy_hit_rate"] == 0
    off, on = (proxy[f"forward_proxy={x}", "prefix_forward_mean"] for x in ("off", "on"))
    assert on < off / 2
    assert quant["format=float32", "kl_to_float32"] == 0
    for name in ("bfloat16", "int8"):
        assert 0 < quant[f"format={name}", "kl_to_float32"] < 0.01
        assert 0.9 < quant[f"format={name}", "top1_agreement"] <= 1
        assert quant[f"format={name}", "model_bytes"] < quant["format=float32", "model_bytes"]
    assert pareto({"a": (1, 2), "b": (2, 1), "c": (2, 2)}) == {"a", "b"}
