"""What is said of an experiment: the rule that a fix passed, how the runs overlap, what they ran on."""

from __future__ import annotations

import io
import math
from typing import NamedTuple

import case_builder
import pytest
from rich.console import Console

from rca.answer import Trial
from rca.models.conclusion import _on_fix
from rca.models.effect import Effect
from rca.models.what_if import Row
from rca.postmortem.experiment import describe
from rca.trial.what_if import Study, render


class Ends(NamedTuple):
    """Interval of a ratio to healthy."""

    low: float
    high: float


class Pairs:
    """A pairing whose effects are given by arm and figure."""

    def __init__(self, effects: dict[str, dict[str, Ends]]) -> None:
        self.effects = effects

    def effect(self, arm: str, figure: str) -> Effect | None:
        found = self.effects.get(arm, {}).get(figure)
        return found and Effect(math.sqrt(found.low * found.high), *found, 1.0, True, 6)

    def noise(self, figure: str) -> float:
        return 1.05

    def mean(self, arm: str, figure: str) -> float:
        return 0.0


def verdict(**fix: Ends) -> tuple[str, str]:
    broken = {figure: Ends(8.0, 10.0) for figure in fix}
    return _on_fix(Pairs({"fault": broken, "placebo": broken, "fix": fix}), list(fix))  # type: ignore[arg-type]


NEAR = "its whole interval lies below ×1.1 of healthy"
MOST = (
    "its interval holds healthy, and even the worst end of it, ×1.4, takes 80 % of the least effect of the fault, "
    "×8, away"
)


def test_a_validated_fix_says_which_rule_it_passed() -> None:
    start = "reproduced in 6 of 6 pairs, most like the incident, mended by another knob and not by a placebo"
    for fix, rule in (
        ({"ttft_p50": Ends(0.9, 1.09), "e2e_p50": Ends(1.02, 1.05)}, f"ttft_p50, e2e_p50: {NEAR}"),
        ({"ttft_p50": Ends(0.8, 1.4)}, f"ttft_p50: {MOST}"),
        ({"ttft_p50": Ends(0.9, 1.0), "itl_p50": Ends(0.8, 1.4)}, f"ttft_p50: {NEAR}; itl_p50: {MOST}"),
    ):  # fmt: skip
        assert verdict(**fix) == ("validated", f"{start} ({rule})")


@pytest.mark.parametrize("ends", [Ends(1.01, 1.4), Ends(0.8, 1.6)])
def test_a_fix_that_passes_no_rule_is_not_validated(ends: Ends) -> None:
    status, reason = verdict(ttft_p50=ends)
    assert status != "validated"
    assert "interval lies" not in reason and "holds healthy" not in reason


def test_how_seldom_runs_overlap_is_shown_beside_the_ratio() -> None:
    sound = {"ratio": 4.8, "low": 4.6, "high": 5.0, "pairs": 6, "same_sign": True}
    details = {
        "effects": {"fault": {"ttft_p50": {**sound, "cliffs_delta": 0.94}, "itl_p50": sound}}
    }
    tables = {
        t.title: t for t in describe(case_builder.diagnosed(), Trial(details=details)).tables
    }
    table = tables["Effects over pairs of runs"]
    place = table.head.index("Cliff's delta")
    assert {row[1]: row[place] for row in table.rows} == {"ttft_p50": "0.94", "itl_p50": ""}


def test_a_study_names_what_it_ran_on() -> None:
    case = case_builder.diagnosed()
    rows = [
        Row("kv_blocks=64", None, "twin", "slo_share", 0.99, "share", recommended=True),
        Row("format=int8", None, "torch", "step", 2e6, "ns", recommended=True, device="cuda (NVIDIA H200)"),
    ]  # fmt: skip
    for row in rows:
        case.execute(
            "INSERT INTO what_if (study, setting, load, engine, figure, value, unit, recommended, device) "
            "VALUES ('quant', ?, NULL, ?, ?, ?, ?, true, ?)",
            [row.setting, row.engine, row.figure, row.value, row.unit, row.device],
        )
    titles = [t.title for t in describe(case, Trial()).tables]
    on = "twin, cost model of a CPU; cuda (NVIDIA H200)"
    assert f"What if, quant: what the model recommends ({on})" in titles
    study = Study("quant", rows)
    assert (
        study.as_dict()["claim"] == f"figures of the model ({on}): mechanism and direction only"
    )
    text = io.StringIO()
    render(study, Console(file=text, width=200))
    assert f"What if: quant. Figures of the model ({on}), not of production." in text.getvalue()
