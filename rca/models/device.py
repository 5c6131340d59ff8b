"""Which device computes, and when it has done what it was given."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch

from rca.models.sizes import DecoderConfig


def pick() -> torch.device:
    """CUDA where it computes; a device that is full, lent to others or too old leaves the CPU."""
    if torch.cuda.is_available():
        with suppress(RuntimeError):
            torch.ones(8, device="cuda").sum().item()
            return torch.device("cuda")
    return torch.device("cpu")


def computed(config: DecoderConfig, device: torch.device) -> DecoderConfig:
    """The config, in float32 where a processor has no bfloat16 of its own."""
    if config.dtype == "bfloat16" and device.type == "cpu" and not _has_bfloat16():
        return replace(config, dtype="float32")
    return config


def _has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def settle(device: torch.device) -> None:
    """Wait until the device is done: CUDA computes while the program goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
