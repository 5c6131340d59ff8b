"""The decoder with cheaper numbers: bfloat16, or int8 in its linear layers.

Int8 is dynamic: weights are rounded once, one scale a column; activations when they come,
one scale a row. The products are summed in int32.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor, nn

from rca.models.decoder import Decoder

FORMATS = ("float32", "bfloat16", "int8")
_LARGEST = 127.0
# What torch's int8 product asks of sizes on CUDA.
_STEP, _FEWEST_ROWS = 8, 17


class Int8Linear(nn.Module):
    """A linear layer in int8, with results in the input's format.

    Args:
        linear: the layer in full precision.
        pads: whether sizes are filled up with zeros to what CUDA's product takes; as the
            layer's device wants it unless given.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, *, pads: bool | None = None) -> None:
        super().__init__()
        self.pads = linear.weight.is_cuda if pads is None else pads
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp_min(1e-12) / _LARGEST  # (out,)
        rounded = torch.round(weight / scale[:, None]).to(torch.int8)
        if self.pads:
            rounded = F.pad(rounded, (0, -weight.shape[1] % _STEP, 0, -weight.shape[0] % _STEP))
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:  # (rows, out)
        """Round the rows, multiply, scale back."""
        if not len(x):
            return x.new_zeros((0, len(self.scale)))
        rows = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / _LARGEST  # (rows, 1)
        product = self._product(torch.round(x / rows).to(torch.int8))
        out = product * rows * self.scale
        return out if self.bias is None else out + self.bias

    def _product(self, x: Tensor) -> Tensor:  # (rows, out), int32
        if not self.pads:
            return torch._int_mm(x, self.weight.t())
        n_rows, width = x.shape
        more = max(0, _FEWEST_ROWS - n_rows)
        whole = torch._int_mm(F.pad(x, (0, -width % _STEP, 0, more)), self.weight.t())
        return whole[:n_rows, : len(self.scale)]


def in_format(model: Decoder, name: str) -> Decoder:
    """A copy of the model that computes in that format.

    Raises:
        ValueError: no such format.
    """
    if name not in FORMATS:
        raise ValueError(f"{name}: not one of {', '.join(FORMATS)}")
    made = copy.deepcopy(model)
    if name == "bfloat16":
        return made.to(torch.bfloat16)
    if name == "int8":
        _replace_linear(made)
    return made


def _replace_linear(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child))
        else:
            _replace_linear(child)


def stored_bytes(model: nn.Module) -> int:
    """Bytes of weights and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.nbytes for tensor in tensors)
