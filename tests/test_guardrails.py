"""Alert rules: accepted by promtool, silent on the healthy side, firing in the incident."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from rca.case import Case
from rca.guardrails import RULES_FILE, TEST_FILE, write_files
from rca.guardrails.evaluator import Watched, firing, values
from rca.pipeline import Options, analyze

SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("[0-9]*"))
FAST = ("02_kv_pool_too_small", "04_healthy", "05_dependency_slow")
EACH = [s if s.name in FAST else pytest.param(s, marks=pytest.mark.slow) for s in SAMPLES]


def promtool(*arguments: str, cwd: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        ["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(params=EACH, ids=lambda s: s.name)
def analysed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Case, Path]]:
    with analyze([request.param], options=Options(trial_budget_s=None)) as case:
        write_files(case, tmp_path)
        yield case, tmp_path / "fixes"


def test_promtool_accepts_and_tests_the_rules(analysed: tuple[Case, Path]) -> None:
    case, folder = analysed
    if case.verdict["verdict"]["status"] != "diagnosed":
        assert case.verdict["guard_rails"] == []
        assert not (folder / RULES_FILE).exists()
        return
    promtool("check", "rules", RULES_FILE, cwd=folder)
    promtool("test", "rules", TEST_FILE, cwd=folder)
    healthy, incident = yaml.safe_load((folder / TEST_FILE).read_text())["tests"]
    assert not any(c["exp_alerts"] for c in healthy["alert_rule_test"])
    assert any(c["exp_alerts"] for c in incident["alert_rule_test"])
    rails = case.verdict["guard_rails"]
    assert all(r["reference_firings"] == 0 for r in rails)
    assert any(r["lead_s"] is not None for r in rails)


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    """The unit tests that are written can fail: a threshold out of reach leaves an alert silent."""
    sample = next(s for s in SAMPLES if s.name == FAST[0])
    with analyze([sample], options=Options(trial_budget_s=None)) as case:
        write_files(case, tmp_path)
    file = tmp_path / "fixes" / RULES_FILE
    rules = yaml.safe_load(file.read_text())
    for rule in rules["groups"][0]["rules"]:
        if "alert" in rule:
            rule["expr"] = rule["expr"].split(" ")[0] + " > 1e30"
    file.write_text(yaml.safe_dump(rules))
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    with pytest.raises(AssertionError, match="exp"):
        promtool("test", "rules", TEST_FILE, cwd=tmp_path / "fixes")


def watched(how: str, *rows: list[float], mean: bool = False) -> Watched:
    return Watched(how, mean, 1.0, np.array(rows[:1]), np.array(rows[1:]))


def test_rates_are_those_of_prometheus() -> None:
    steady = watched("rate", [10.0 * i for i in range(20)])
    found = values(steady, 6, 5.0, closed=True)
    assert found[-1] == pytest.approx(2.0)
    assert np.isnan(found[0])
    reset = watched("rate", [0.0, 50, 100, 10, 60])
    assert values(reset, 4, 5.0, closed=True)[-1] == pytest.approx(160 / 20)


def test_means_and_slopes() -> None:
    ratio = watched("ratio", [2.0 * i for i in range(9)], [4.0 * i for i in range(9)])
    assert values(ratio, 4, 1.0, closed=True)[-1] == pytest.approx(0.5)
    idle = watched("ratio", [5.0] * 9, [7.0] * 9)
    assert np.isnan(values(idle, 4, 1.0, closed=True)[-1])
    slope = watched("slope", [3.0 * i for i in range(9)])
    assert values(slope, 4, 1.0, closed=False)[-1] == pytest.approx(3.0)


def test_an_alert_waits_until_its_condition_has_lasted() -> None:
    seen = np.array([0, 2, 2, np.nan, 2, 2, 2, 2, 0])
    assert firing(seen, 1.0, "up", 2).tolist() == [False] * 6 + [True, True, False]
    assert firing(-seen, -1.0, "down", 2).tolist() == [False] * 6 + [True, True, False]


def test_names_in_the_recordings_stay_data(tmp_path: Path) -> None:
    """A label that tries to be a template, a matcher or YAML is none."""
    from rca.guardrails.rule_files import _literal
    from rca.guardrails.watch import _selector

    evil = 'x"} or vector(1) # {{ query "up" }}\n- alert: y'
    selector, _ = _selector("waiting", "vllm:num_requests_waiting", "gauge", [(1, "incident", {"job": evil})])  # fmt: skip
    assert selector.count("\n") == 0
    assert '\\"}' in selector
    assert "{{" not in _literal(evil)


def test_resets_and_holes_are_read_as_by_prometheus() -> None:
    """Worked by hand: 3 samples of the range seen, at 0, 20 and 30 s, one reset between the last two."""
    nan = float("nan")
    holes = Watched(
        "rate", False, 1.0, np.array([[10.0, nan, 40.0, 5.0, nan]]), np.empty((0, 5))
    )
    found = values(holes, 4, 10.0, closed=True)
    assert np.isnan(found[:2]).all()
    # 10 → 40 is 30; the range reaches 20 s back beyond what a counter from zero can have had.
    assert found[2] == pytest.approx(30 * (20 + 20 * 10 / 30) / 20 / 40)
    # 30 before the reset and 5 after it: 35 in 30 s; ahead 30 * 10 / 35 s.
    assert found[3] == pytest.approx(35 * (30 + 30 * 10 / 35) / 30 / 40)
    # The last scrape is missing: 10 s behind, less than 1.1 mean steps of 15 s.
    assert found[4] == pytest.approx(35 * (30 + 0 + 10) / 30 / 40)
