"""What one core can do at best on this machine, measured beside everything else."""

from __future__ import annotations

import hashlib
import importlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks import generate

_MB = 100
_REPEATS = 5


def line() -> str:
    """A sentence with the rates, in MB per CPU-second, on a profile of 100 MB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        generate.write("PyTorch Profiler JSON", path, _MB * 1_000_000)
        data = path.read_bytes()
        raw = msgspec.json.Decoder(dict[str, msgspec.Raw])
        rates = {
            "reading from the page cache": _rate(data, path.read_bytes),
            "SHA-256": _rate(data, lambda: hashlib.sha256(data).digest()),
            "finding the values of JSON": _rate(data, lambda: raw.decode(data)),
        }
        parse = _simdjson(data)
        if parse is not None:
            rates["simdjson's whole parse"] = _rate(data, parse)
    said = ", ".join(f"{what} {rate:,.0f}" for what, rate in rates.items())
    missing = "" if parse is not None else " (simdjson beside them: pip install pysimdjson)"
    return f"\nLimits of one core in this run, MB per CPU-second: {said}{missing}."


def _simdjson(data: bytes) -> Callable[[], object] | None:
    try:
        module = importlib.import_module("simdjson")
    except ImportError:
        return None
    parser = module.Parser()

    def parse() -> object:
        return parser.parse(data) is None  # what it holds is let go at once, or it cannot parse

    return parse


def _rate(data: bytes, work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return len(data) / 1e6 / min(times)
