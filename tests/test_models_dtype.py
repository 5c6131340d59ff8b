"""The torch model in bfloat16: every fault runs in it, and it is used where the incident had it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

from typer.testing import CliRunner  # noqa: E402

from rca.cli import app  # noqa: E402
from rca.commands import reproducer  # noqa: E402
from rca.models import device  # noqa: E402
from rca.models.faults import FAULTS  # noqa: E402
from rca.models.infer import Facts, infer  # noqa: E402
from rca.models.reproduce import torch_runtime  # noqa: E402
from rca.models.scheduler import Batch, Slice  # noqa: E402
from rca.models.settings import Plan  # noqa: E402
from rca.models.shapes import ShapedOp, Shapes  # noqa: E402
from rca.models.shapes import infer as shapes_of  # noqa: E402
from rca.models.sizes import DTYPES, DecoderConfig  # noqa: E402
from rca.models.worker import TorchWorker, full_request  # noqa: E402

SIZES = DecoderConfig(layers=1, hidden=64, dtype="bfloat16")


@pytest.fixture(autouse=True)
def _any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without the format of its own computes it too, slowly."""
    monkeypatch.setattr(device, "_has_bfloat16", lambda: True)


def test_every_fault_of_torch_computes_in_bfloat16() -> None:
    batch = [Slice(full_request(n), 224, 1) for n in range(2)] + [Slice(full_request(2), 0, 48)]
    with torch_runtime(SIZES) as made:
        assert made.model.dtype == torch.bfloat16
        for fault in FAULTS.values():
            if not fault.reproducible or fault.by_model or fault.cause == "cold_start":
                continue
            with TorchWorker(fault.plan(Plan(), 0.2, 30.0), made) as worker:
                assert len(worker.compute(Batch(batch))) == 2, fault.cause


def test_its_operators_say_so(tmp_path: Path) -> None:
    from torch.profiler import profile

    with torch_runtime(SIZES) as made, TorchWorker(Plan(), made) as worker:
        batch = Batch([Slice(full_request(n), 224, 1) for n in range(2)])
        with profile(record_shapes=True) as seen:
            worker.compute(batch)
    seen.export_chrome_trace(str(tmp_path / "t.json"))
    ops = [
        ShapedOp(event["name"], event["args"]["Input Dims"], event["args"]["Input type"], 1)
        for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if "Input type" in event.get("args", {})
    ]
    assert shapes_of(ops).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("dtype", "used"),
    [
        ("bfloat16", "bfloat16"),
        ("float32", "float32"),
        ("float16", "float32"),
        (None, "float32"),
    ],
)
def test_the_incidents_format_is_used_where_a_cpu_computes_it(
    dtype: str | None, used: str
) -> None:
    workload = infer(Facts(shapes=Shapes(dtype=dtype)))
    assert workload.sizes.dtype == used
    (row,) = (row for row in workload.fidelity if row.quantity == "number format")
    assert row.modelled == used
    assert (row.observed, "too slowly" in row.note) == (dtype, dtype == "float16")


def test_a_processor_without_the_format_takes_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_has_bfloat16", lambda: False)
    cpu = torch.device("cpu")
    assert device.computed(SIZES, cpu) == replace(SIZES, dtype="float32")
    assert device.computed(SIZES, torch.device("cuda")) == SIZES


def test_the_command_offers_what_the_model_has() -> None:
    assert [one.value for one in reproducer.Dtype] == list(DTYPES)
    asked = ["reproduce", "overload", "--engine", "twin", "--dtype", "bfloat16", "--out", "x"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 2
    assert "--dtype is for" in done.output
