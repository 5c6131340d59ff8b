"""How CPU seconds and memory grow with the size of a profile, and the exponent that fits."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import generate
from benchmarks.process import Taken

_FORM = "PyTorch Profiler JSON"
_START_BYTES = 50_000
_HEADER = "\n## How it grows\n\n| Profile, MB | CPU s | less the start | wall s | peak MB |\n|---|---|---|---|---|"


def lines(sizes_mb: Sequence[int], measure: Callable[[Path, int], Taken]) -> Iterator[str]:
    """A table over sizes; `measure` reads a path so many times and takes the best."""
    yield _HEADER
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        generate.write(_FORM, path, _START_BYTES)
        start_s = measure(path, 3).cpu_s
        found = []
        for size in sizes_mb:
            generate.write(_FORM, path, size * 1_000_000)
            mb = path.stat().st_size / 1e6
            taken = measure(path, 3 if size < 100 else 1)
            found.append((mb, taken.cpu_s - start_s))
            yield (
                f"| {mb:,.0f} | {taken.cpu_s:.1f} | {taken.cpu_s - start_s:.2f}"
                f" | {taken.wall_s:.1f} | {taken.peak_mb:,.0f} |"
            )
    yield (
        f"\nThe start, a file of {_START_BYTES // 1000} kB, takes {start_s:.1f} CPU s; beyond it CPU seconds grow"
        f" as the size to the power of {exponent(found):.2f} (fitted to the logarithms)."
    )


def exponent(found: Sequence[tuple[float, float]]) -> float:
    """The power b of y = a x^b that fits pairs of positive numbers best, by their logarithms."""
    x, y = zip(
        *((math.log(size), math.log(cost)) for size, cost in found if cost > 0), strict=True
    )
    return float(np.polyfit(x, y, 1)[0])
