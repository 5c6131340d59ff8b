"""What captures of the host say: operators for each multiplication, and ranges beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from telemetry_builder import T0, add_source

from rca.case import Case
from rca.roles import assign

SCALAR = "[[], [], [], [], [], [], []]"
TENSOR = "[[4, 64], [], [], [], [], [], []]"


@pytest.fixture
def case() -> Iterator[Case]:
    with Case.create() as made:
        yield made


def add_calls(case: Case, source: int, *calls: tuple[str, str, int, str | None]) -> None:
    """Calls (kind, name, duration in ns, shapes), one after the other."""
    rows: list[dict[str, Any]] = []
    start_ns = T0
    for number, (kind, name, dur_ns, dims) in enumerate(calls):
        rows.append(
            {"source_id": source, "id": number, "kind": kind, "name": name, "pid": 1, "tid": 1,
             "start_ns": start_ns, "dur_ns": dur_ns, "input_dims": dims}
        )  # fmt: skip
        start_ns += dur_ns
    case.insert("cpu_op", pl.DataFrame(rows, schema_overrides={"input_dims": pl.String}))


def value(case: Case, role: str) -> float | None:
    assign(case)
    rows = case.rows("SELECT num / den FROM signal_value WHERE role = ?", (role,))
    return float(rows[0][0]) if rows else None


GEMM = ("op", "aten::mm", 100, "[[4, 64], [64, 64]]")


@pytest.mark.parametrize(("dims", "counted"), [(SCALAR, 0.0), (TENSOR, 1.0), (None, 1.0)])
def test_a_constant_that_takes_a_tensor_s_type_is_no_conversion(
    case: Case, dims: str | None, counted: float
) -> None:
    """`x.mul(1.0)` converts one number, and torch's profiler shows it as it shows a tensor's conversion."""
    calls = [("op", name, 10, dims) for name in ("aten::_to_copy", "aten::copy_")]
    add_calls(case, add_source(case, "torch_profiler"), GEMM, *calls)
    assert (value(case, "op_converts"), value(case, "op_copies")) == (counted, counted)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("annotation", "detokenize"),
        ("nvtx", "Detokenise"),
        ("python", "vllm/v1/engine/detokenizer.py(118): update"),
    ],
)
def test_what_turning_tokens_into_text_takes(case: Case, kind: str, name: str) -> None:
    calls = [(kind, name, dur_ns, None) for dur_ns in (2_000_000, 4_000_000)]
    add_calls(case, add_source(case, "torch_profiler"), GEMM, *calls)
    assert value(case, "detokenise_time") == 0.003


def test_a_capture_without_such_a_range_says_nothing_of_it(case: Case) -> None:
    add_calls(case, add_source(case, "torch_profiler"), GEMM)
    assert value(case, "detokenise_time") is None


def test_operators_that_no_healthy_capture_has(case: Case) -> None:
    """Those of a known family tell of their own cause."""
    for part, names in (("baseline", ["add"]), ("incident", ["add", "mul", "mul", "sort"])):
        calls = [("op", f"aten::{name}", 10, None) for name in names]
        add_calls(case, add_source(case, "torch_profiler", part), GEMM, *calls)
    assign(case)
    rows = case.rows(
        "SELECT part, num, den FROM signal_value WHERE role = 'new_ops' ORDER BY part"
    )
    assert rows == [("baseline", 0, 2), ("incident", 2, 5)]


def test_without_a_healthy_capture_no_operator_is_new(case: Case) -> None:
    add_calls(case, add_source(case, "torch_profiler"), GEMM)
    assert value(case, "new_ops") is None
