"""The matrix names every fault; counts and the shared cache do what it rests on."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from rca.models.arms import run_twin
from rca.models.faults import FAULTS, find
from rca.models.figures import Figures, log_ratios
from rca.models.modelled_counts import count
from rca.models.ranking import DEAD_BAND, Rank
from rca.models.settings import SECOND, Gateway, Plan
from rca.models.shared_cache import SharedCache
from scripts import fault_matrix

DOCUMENT = Path(__file__).parent.parent / "docs" / "reproducer.md"


def test_the_document_lists_every_fault_that_can_be_switched_on() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \d+ of \d+ \|", DOCUMENT.read_text(), re.MULTILINE)
    known = [f.cause for f in FAULTS.values() if f.reproducible and f.cause != "healthy"]
    assert rows == known


def test_the_document_says_what_the_others_would_need() -> None:
    text = DOCUMENT.read_text()
    assert f"<!-- needs -->\n{fault_matrix.needs()}\n<!-- /needs -->" in text


@pytest.mark.parametrize(("right", "code"), [(17, 0), (16, 1)])
def test_the_check_fails_below_the_aim(
    right: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    firsts = ["overload"] * right + ["tiny_batch"] * (20 - right)
    trials = [
        fault_matrix.Trial("overload", 1.0, 7, [Rank(first, 0.9, 1.0, "")]) for first in firsts
    ]
    monkeypatch.setattr(fault_matrix, "candidates", lambda _faults: {})
    monkeypatch.setattr(fault_matrix, "incidents", lambda *_: trials)
    monkeypatch.setattr(fault_matrix, "taken_for_a_fault", lambda *_: Counter())
    before = DOCUMENT.read_bytes()
    assert fault_matrix.main(["--check"]) == code
    assert DOCUMENT.read_bytes() == before


def test_counts_show_syncs_and_copies() -> None:
    healthy = count(Plan(), 3)
    assert count(Plan(), 3) == healthy
    syncs = count(find("implicit_host_sync").plan(Plan(), 1.0, 30.0), 3)
    assert healthy["syncs_per_token"] == 0 < syncs["syncs_per_token"]
    copies = count(find("dtype_or_layout_copy").plan(Plan(), 1.0, 30.0), 3)
    assert copies["allocations_per_step"] > 1.5 * healthy["allocations_per_step"]


SECONDS = 30.0


def _shown(cause: str) -> Figures:
    """A fault against the healthy service under other traffic."""
    before, after = Plan(), find(cause).plan(Plan(), 1.0, SECONDS)
    sides = [
        run_twin(plan, seed, SECONDS) | count(plan, seed)
        for plan, seed in ((after, 7), (before, 8))
    ]
    return log_ratios(*sides)


@pytest.mark.parametrize(
    ("figure", "moves", "stays"),
    [
        ("schema_cost", "structured_output_compile", "tokenizer_cold_load"),
        ("tokenise_time", "tokenizer_cold_load", "jit_recompile_storm"),
        ("tokenise_time", "tokenizer_cold_load", "structured_output_compile"),
        ("op_compiles", "jit_recompile_storm", "tokenizer_cold_load"),
        ("op_sorts", "sampler_slow_path", "detokenize_quadratic"),
        ("op_converts", "dtype_or_layout_copy", "version_upgrade_regression"),
        ("op_copies", "version_upgrade_regression", "sampler_slow_path"),
        ("op_syncs", "implicit_host_sync", "sampler_slow_path"),
    ],
)
def test_one_figure_tells_two_faults_apart_that_slow_the_same(
    figure: str, moves: str, stays: str
) -> None:
    assert _shown(moves)[figure] > 1.5 * DEAD_BAND
    assert abs(_shown(stays)[figure]) < DEAD_BAND


def _hit_rate(**changes: object) -> tuple[float, int]:
    gateway = Gateway(**{"cache_ttl_ns": 7 * SECOND, **changes})  # type: ignore[arg-type]
    cache = SharedCache(gateway, 0)
    cache.advance(60 * SECOND)
    hits = sum(lookup.was_hit for lookup in cache.lookups)
    return hits / len(cache.lookups), len(cache.loads)


def test_a_stampede_loads_again_what_is_loading_already() -> None:
    renewed, _ = _hit_rate()
    stampede, many = _hit_rate(cache_renews=False)
    coalesced, few = _hit_rate(cache_renews=False, cache_single_flight=True)
    assert renewed > 0.95
    assert stampede < 0.5 < coalesced
    assert many > 4 * few
