"""What another device than the CPU asks of the model, as far as it can be seen without one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

from rca.models import device as devices  # noqa: E402
from rca.models import worker as workers  # noqa: E402
from rca.models.decoder import Decoder, DecoderConfig  # noqa: E402
from rca.models.quantised import FORMATS, Int8Linear, in_format  # noqa: E402
from rca.models.scheduler import Batch, Slice  # noqa: E402
from rca.models.settings import Plan  # noqa: E402
from rca.models.step_input import step_input  # noqa: E402
from rca.models.worker import full_request  # noqa: E402

ELSEWHERE = torch.device("meta")  # has shapes, types and a place of its own, and no numbers
MIXED = Batch(
    [Slice(full_request(n), 224, 1) for n in range(2)] + [Slice(full_request(2), 0, 48)]
)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


@pytest.mark.parametrize(
    "batch", [MIXED, Batch(MIXED.slices[:1]), Batch(MIXED.slices[2:])], ids=repr
)
def test_every_index_lies_where_the_model_does(batch: Batch) -> None:
    step = step_input(batch, block_size=16, heads=4, device=ELSEWHERE)
    found = [t for field in fields(step) for t in _tensors(getattr(step, field.name))]
    assert found
    assert {tensor.device.type for tensor in found} == {"meta"}


@pytest.mark.parametrize("name", FORMATS)
def test_the_model_computes_on_another_device_in_each_format(name: str) -> None:
    model = in_format(Decoder(DecoderConfig(layers=1)).to(ELSEWHERE), name)
    pool = model.new_pool(64)
    assert {keys.device.type for keys, _ in pool} == {"meta"}
    with torch.inference_mode():
        logits = model(step_input(MIXED, block_size=16, heads=4, device=ELSEWHERE))
    assert (logits.device.type, tuple(logits.shape)) == ("meta", (2, 1024))


@pytest.mark.parametrize(("inputs", "outputs"), [(160, 640), (162, 50), (7, 3)])
@pytest.mark.parametrize("n_rows", [0, 1, 4, 17, 40])
def test_int8_filled_up_for_cuda_gives_the_same_numbers(
    inputs: int, outputs: int, n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(inputs)
    linear = torch.nn.Linear(inputs, outputs)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(linear.weight.shape, generator=generator))
    x = torch.randn((n_rows, inputs), generator=generator)
    asked: list[tuple[int, int, int]] = []
    product = torch._int_mm

    def strict(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        asked.append((*a.shape, b.shape[1]))
        return product(a, b)

    with torch.inference_mode():
        plain = Int8Linear(linear, pads=False)(x)
        monkeypatch.setattr(torch, "_int_mm", strict)
        filled = Int8Linear(linear, pads=True)(x)
    assert torch.equal(plain, filled)
    for rows, width, columns in asked:
        assert rows > 16
        assert width % 8 == columns % 8 == 0


def test_a_device_that_does_not_compute_leaves_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices.torch, "ones", full)
    assert devices.pick().type == "cpu"


def test_a_step_on_threads_is_timed_when_the_device_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(workers, "settle", lambda device: done.append(device.type))
    made = workers.Runtime(Decoder(DecoderConfig(layers=1)), torch.device("cpu"))
    made.tick()
    with workers.TorchWorker(Plan().with_args(omp_num_threads=2), made) as worker:
        done.clear()
        monkeypatch.setattr(worker, "compute", lambda _batch: done.append("computed") or [])
        worker.execute(MIXED)
    assert done == ["computed", "cpu"]
