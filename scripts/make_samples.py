"""Rebuild sample_traces/: four bundles of the torch reproducer, with fixed seeds.

    python scripts/make_samples.py [NAME ...]

Without names all four are made. The traffic, the changes and the dates are the same each
time; the step times are measured, so files differ a little between machines.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rca.models.reproduce import reproduce

ROOT = Path(__file__).resolve().parent.parent / "sample_traces"
LARGEST_BYTES = 2_000_000
# Cause, seed, dose.
SAMPLES = {
    "01_logits_processor_leak": ("logits_processor_leak", 11, 1.0),
    "02_kv_pool_too_small": ("kv_pool_too_small", 24, 1.5),
    "03_batch_window_mismatch": ("batch_window_mismatch", 35, 1.4),
    "04_healthy": ("healthy", 52, 1.0),
}


def main(names: list[str]) -> int:
    """Make the named samples; returns the exit status."""
    for name in names or list(SAMPLES):
        cause, seed, dose = SAMPLES[name]
        folder = ROOT / name
        fresh = ROOT / f".{name}"  # the old one stays until the new one is complete
        shutil.rmtree(fresh, ignore_errors=True)
        reproduce(cause, fresh, seed=seed, dose=dose, progress=lambda line: print(f"  {line}"))
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{name}: {size:,} bytes")
        if size > LARGEST_BYTES:
            print(f"{name} is larger than {LARGEST_BYTES:,} bytes", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
