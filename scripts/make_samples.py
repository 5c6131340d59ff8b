"""Rebuild sample_traces/: bundles of the reproducer, with fixed seeds.

    python scripts/make_samples.py [NAME ...]

Without names all are made. The traffic, the changes and the dates are the same each time.
The twin's bundles are the same to the byte; the step times of torch's are measured, so
those files differ a little between machines. One sample holds a recording of Nsight Systems too, made
where nsys and nvtx are there (see sample_nsys.py) and kept as it was elsewhere.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import sample_nsys

from rca.models.reproduce import reproduce
from rca.models.settings import SECOND, Plan

ROOT = Path(__file__).resolve().parent.parent / "sample_traces"
LARGEST_BYTES = 2_000_000
LARGEST_TOTAL_BYTES = 25_000_000


@dataclass(frozen=True)
class Sample:
    """What is reproduced, and how."""

    cause: str
    seed: int
    dose: float = 1.0
    engine: str = "twin"
    rate_per_s: float = Plan().traffic.rate_per_s
    nsys: bool = False  # also recorded by Nsight Systems


SAMPLES = {
    "01_logits_processor_leak": Sample("logits_processor_leak", 11, engine="torch", nsys=True),
    "02_kv_pool_too_small": Sample("kv_pool_too_small", 24, 1.5, "torch"),
    # The baseline of this seed has no burst of its own.
    "03_batch_window_mismatch": Sample("batch_window_mismatch", 35, 1.4, "torch"),
    "04_healthy": Sample("healthy", 52, engine="torch"),
    "05_dependency_slow": Sample("dependency_slow", 65),
    "06_overload": Sample("overload", 78),
    "07_prefix_cache_pollution": Sample("prefix_cache_pollution", 91),
    "08_tiny_batch": Sample("tiny_batch", 104),
    "09_cold_start": Sample("cold_start", 5, 1.2),
    "10_two_faults": Sample("dependency_slow+tiny_batch", 130),
    "11_red_herring": Sample("red_herring", 143),
    # Memory creeps up while the service is hardly used; answers take ten times as long.
    "12_memory_creeps_up": Sample("logits_processor_leak", 156, 22.0, rate_per_s=1.2),
    # A model moved without its tokenizer, and two caches miss.
    "13_model_without_tokenizer": Sample("model_without_tokenizer", 169),
    # p95 four times as high right after a deployment.
    "14_slow_since_deployment": Sample("dtype_or_layout_copy", 182, 2.5),
}


def main(names: list[str]) -> int:
    """Make the named samples; returns the exit status."""
    for name in names or list(SAMPLES):
        folder = ROOT / name
        fresh = ROOT / f".{name}"  # the old one stays until the new one is complete
        shutil.rmtree(fresh, ignore_errors=True)
        make(SAMPLES[name], fresh)
        if SAMPLES[name].nsys:
            add_nsys(SAMPLES[name], fresh / "incident", folder / "incident")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
        print(f"{name}: {_size(folder):,} bytes")
        if _size(folder) > LARGEST_BYTES:
            print(f"{name} is larger than {LARGEST_BYTES:,} bytes", file=sys.stderr)
            return 1
    if _size(ROOT) > LARGEST_TOTAL_BYTES:
        print(f"all are larger than {LARGEST_TOTAL_BYTES:,} bytes", file=sys.stderr)
        return 1
    return 0


def make(sample: Sample, folder: Path) -> None:
    """Write one bundle."""
    reproduce(
        sample.cause,
        folder,
        engine=sample.engine,
        seed=sample.seed,
        dose=sample.dose,
        healthy=Plan().with_traffic(rate_per_s=sample.rate_per_s),
        progress=lambda line: print(f"  {line}"),
    )


def add_nsys(sample: Sample, incident: Path, old: Path) -> None:
    """Record the faulty engine with nsys; without nsys the old recording is kept."""
    if reason := sample_nsys.available():
        print(f"  the old recording of nsys is kept: {reason}")
        for path in old.glob("*.sqlite"):
            shutil.copy(path, incident)
        return
    (trace,) = incident.glob("*.pt.trace.json.gz")
    after_ns = int(trace.name.split(".")[1]) + 20 * SECOND
    path = sample_nsys.record(sample.cause, sample.seed, incident, after_ns)
    print(f"  {path.name}: {path.stat().st_size:,} bytes")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
