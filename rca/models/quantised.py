"""The decoder with cheaper numbers: bfloat16, or int8 in its linear layers.

Int8 is dynamic: weights are rounded once, one scale a column; activations when they come,
one scale a row. The products are summed in int32.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rca.models.decoder import Decoder

FORMATS = ("float32", "bfloat16", "int8")
_LARGEST = 127.0


class Int8Linear(nn.Module):
    """A linear layer in int8, with results in the input's format."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp_min(1e-12) / _LARGEST  # (out,)
        self.register_buffer("weight", torch.round(weight / scale[:, None]).to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:  # (rows, out)
        """Round the rows, multiply, scale back."""
        if not len(x):
            return x.new_zeros((0, len(self.scale)))
        rows = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / _LARGEST  # (rows, 1)
        product = torch._int_mm(torch.round(x / rows).to(torch.int8), self.weight.t())
        out = product * rows * self.scale
        return out if self.bias is None else out + self.bias


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
