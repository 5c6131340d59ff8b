"""Which device computes, and when it has done what it was given."""

from __future__ import annotations

from contextlib import suppress

import torch


def pick() -> torch.device:
    """CUDA where it computes; a device that is full, lent to others or too old leaves the CPU."""
    if torch.cuda.is_available():
        with suppress(RuntimeError):
            torch.ones(8, device="cuda").sum().item()
            return torch.device("cuda")
    return torch.device("cpu")


def settle(device: torch.device) -> None:
    """Wait until the device is done: CUDA computes while the program goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
