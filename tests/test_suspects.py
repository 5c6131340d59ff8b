"""Which service is to blame, by how far its signals left their own range."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

from rca.evidence.moves import Move
from rca.evidence.suspects import score
from rca.pipeline import Options, analyze
from rca.signals import Points, Signal

DATA = Path(os.environ.get("RCA_CONFORMANCE_DATA") or "unset") / "rca_cases"
CASES = sorted(path.parent for path in DATA.glob("*/*/truth.toml"))
SHOWN = (
    "cpu_contention",
    "network_delay",
)  # of Train Ticket; exceptions leave no trace in durations


def moved(service: str, before: list[float], after: list[float]) -> Move:
    sides = []
    for values in (before, after):
        numbers = np.array(values)
        sides.append(Points(np.arange(len(values)), numbers, np.ones(len(values))))
    signal = Signal("trace", "call_gap", service, "GET /", sides[1], sides[0])
    return Move(signal, "baseline", sides[0], sides[1], 1.0)


def test_single_slow_calls_of_a_healthy_time_hide_no_culprit() -> None:
    """A delay of 1.5 s stands out of gaps of 4 ms although three of sixty had it before."""
    usual = [0.004, 0.0045, 0.005, 0.0042] * 15
    delayed = moved("orders", [*usual, 3.0, 3.0, 3.0], [1.5] * 20)
    strayed = moved("carts", usual, [0.006] * 20)
    assert [m.signal.service for _, m in score([strayed, delayed])] == ["orders", "carts"]


@pytest.mark.slow
@pytest.mark.skipif(not CASES, reason="RCA_CONFORMANCE_DATA does not name the data")
def test_faults_of_real_microservices() -> None:
    """Service level: Sock Shop 16 of 16, Online Boutique 9 of 10, Train Ticket's faults that show 6 of 6.

    What does not show there is not claimed either: no cause is said at 0.5 or more.
    """
    first: dict[str, list[str]] = {"rcd": [], "nezha_ob": [], "nezha_tt": []}
    for folder in CASES:
        truth = tomllib.loads((folder / "truth.toml").read_text())
        options = Options(trial_budget_s=None, answer_only=True)
        with analyze(
            [folder / "incident"], baseline=folder / "baseline", options=options
        ) as case:
            ((service,),) = case.rows("SELECT service FROM suspect WHERE rank = 1")
            said = case.verdict["verdict"]
        if service == truth["service"]:
            first[folder.parent.name].append(f"{folder.name} {truth['fault']}")
        if folder.parent.name == "nezha_tt":
            assert said["cause"] is None or said["confidence"] < 0.5, (folder.name, said)
    assert len(first["rcd"]) == 16
    assert len(first["nezha_ob"]) >= 9
    assert sum(name.endswith(SHOWN) for name in first["nezha_tt"]) == 6, first["nezha_tt"]
