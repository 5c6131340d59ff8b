"""Which causes an experiment compares with, and what is said of the others."""

from __future__ import annotations

from rca.models.rivals import comparable


def test_a_cost_model_contests_only_where_its_own_mark_is_recorded() -> None:
    causes = ["gpu_thermal_or_power_throttle", "tiny_batch"]
    found, left_out = comparable(causes, "cold_start", {"waiting", "ttft_p50"})
    assert [fault.cause for fault in found] == ["tiny_batch"]
    assert left_out == [
        "gpu_thermal_or_power_throttle: what marks it is not recorded, and only a cost model shows it"
    ]
    found, left_out = comparable(causes, "cold_start", {"sm_clock"})
    assert [fault.cause for fault in found] == causes
    assert left_out == []


def test_the_cause_itself_and_what_cannot_be_shown_are_no_rivals() -> None:
    found, left_out = comparable(["cold_start", "kv_transfer", "of_somebody"], "cold_start", {})
    assert found == []
    assert [line.split(":")[0] for line in left_out] == ["kv_transfer", "of_somebody"]
