"""How fast PyTorch Profiler recordings are read, against a loader of the usual kind.

usage: ingest_torch.py [--megabytes 400] [--repeat 3] [--file TRACE]

Each loader imports only what it needs. Makes a recording (operators, Python frames, launches, flows, kernels, memory events), then reads
it in a process of its own with each loader and prints the best of the runs: megabytes of the file
per second of CPU and of wall time, imports included, and the peak of the memory, that of a second
process added. The reference
does what most tools do: json.load, then a data frame of the events with the same columns.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_OPS = (
    "aten::linear",
    "aten::mm",
    "aten::add",
    "aten::softmax",
    "aten::copy_",
    "vllm::unified_attention",
)
_KERNELS = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)",
)
_HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912, "numSms": 132
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1751410836000000000,
  "traceEvents": [
"""


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _step(rng: random.Random, at_ns: int, n: int) -> Iterator[str]:
    """What one operator leaves in a recording, as the profiler writes it."""
    ts, cpu, gpu = _us(at_ns), '"pid": 851, "tid": 851', '"pid": 0, "tid": 7'
    dur = [_us(rng.randrange(1, 90_000)) for _ in range(4)]
    yield f'"ph": "X", "cat": "python_function", "name": "vllm/model_executor/layers/linear.py({n % 900}): forward", {cpu},\n    "ts": {ts}, "dur": {dur[0]},\n    "args": {{\n      "Python parent id": {n - 1}, "Python id": {n}, "Ev Idx": {n}\n    }}'
    yield f'"ph": "X", "cat": "cpu_op", "name": "{rng.choice(_OPS)}", {cpu},\n    "ts": {ts}, "dur": {dur[1]},\n    "args": {{\n      "External id": {n},"Record function id": 0, "Concrete Inputs": ["", "", "", ""], "Input type": ["c10::BFloat16", "c10::BFloat16", "", ""], "Input Strides": [[4096, 1], [1, 4096], [], []], "Input Dims": [[{n % 512}, 4096], [4096, 4096], [], []], "Ev Idx": {n}\n    }}'
    yield f'"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {cpu},\n    "ts": {ts}, "dur": {dur[2]},\n    "args": {{\n      "External id": {n}, "cbid": 211, "correlation": {n}\n    }}'
    yield f'"ph": "s", "id": {n}, {cpu}, "ts": {ts},\n    "cat": "ac2g", "name": "ac2g"'
    yield f'"ph": "X", "cat": "kernel", "name": "{rng.choice(_KERNELS)}", {gpu},\n    "ts": {ts}, "dur": {dur[3]},\n    "args": {{\n      "External id": {n}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {n}, "registers per thread": 96, "shared memory": 49152, "blocks per SM": 0.969697, "warps per SM": 3.878788, "grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 6\n    }}'
    yield f'"ph": "f", "id": {n}, {gpu}, "ts": {ts},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"'
    if n % 10 == 0:
        yield f'"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", {cpu},\n    "ts": {ts},\n    "args": {{\n      "Total Reserved": 121634816, "Total Allocated": 91505152, "Bytes": {n - 5000}, "Addr": 128184607182336, "Device Id": 0, "Device Type": 1, "Ev Idx": {n}\n    }}'


def write_trace(path: Path, megabytes: float) -> int:
    """Write a recording of about this size; returns the number of its events."""
    rng = random.Random(1)
    at_ns, n, events = 1_419_247_332_972_313, 0, 0
    with path.open("w") as file:
        file.write(_HEAD)
        while file.tell() < megabytes * 1e6:
            block = []
            for _ in range(500):
                at_ns, n = at_ns + rng.randrange(1000, 9000), n + 1
                block += [f"  {{\n    {event}\n  }}" for event in _step(rng, at_ns, n)]
            file.write((",\n" if events else "") + ",\n".join(block))
            events += len(block)
        file.write('\n  ],\n  "traceName": "/tmp/trace.json"\n}\n')
    return events


def read_rows_only(path: Path) -> int:
    """The parser alone; its rows are counted and dropped."""
    from rca.parsers import torch_profiler  # noqa: PLC0415

    class Sink:
        rows = 0

        def insert(self, _table: str, rows: object) -> None:
            self.rows += getattr(rows, "num_rows", 0)

        def note(self, *_: object, **__: object) -> None: ...
        def describe(self, **_: object) -> None: ...
        def count_elements(self, n: int) -> None: ...

    sink = Sink()
    torch_profiler.read(path, sink)  # type: ignore[arg-type]
    return sink.rows


def read_into_case(path: Path) -> int:
    """The whole way: recognised, hashed, read, written to a case on disk."""
    from rca.bundle import Bundle, BundleFile  # noqa: PLC0415
    from rca.case import Case  # noqa: PLC0415
    from rca.ingest import ingest  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory() as folder,
        Case.create(Path(folder) / "case.duckdb") as case,
    ):
        assert ingest(case, Bundle([BundleFile(path, path.name, "incident")])) == []
        return int(case.scalar("SELECT n_rows FROM source"))


def read_as_usual(path: Path) -> int:
    """json.load and a data frame with the columns that the case has."""
    import json  # noqa: PLC0415

    import polars as pl  # noqa: PLC0415

    with path.open() as file:
        events = json.load(file)["traceEvents"]
    keys = (
        "External id", "correlation", "device", "context", "stream", "bytes", "kind", "grid",
        "block", "registers per thread", "shared memory", "graph id", "Input Dims", "Input type",
        "Bytes", "Total Allocated", "Total Reserved", "Addr", "Device Id", "Device Type",
    )  # fmt: skip
    columns = {
        k: [e.get(k) for e in events] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")
    }
    arguments = [e.get("args") or {} for e in events]
    columns |= {k: [a.get(k) for a in arguments] for k in keys}
    columns |= {
        k: [None if v is None else str(v) for v in columns[k]]
        for k in ("grid", "block", "Input Dims", "Input type")
    }
    return pl.DataFrame(columns, strict=False).height


LOADERS = {
    "rca, rows only": read_rows_only,
    "rca, into a case": read_into_case,
    "json + data frame": read_as_usual,
}


def measure(loader: str, path: Path) -> tuple[float, float, float, str]:
    """CPU seconds, wall seconds, peak MB and rows of one run in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    run = subprocess.run(
        [sys.executable, __file__, "--loader", loader, "--file", str(path)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows, peak = run.stdout.split()
    return cpu, wall, float(peak), rows


def compare(path: Path, repeat: int) -> None:
    """Print the table."""
    size = path.stat().st_size / 1e6
    print(
        f"{size:.0f} MB\n{'loader':20} {'MB/cpu-s':>9} {'MB/s wall':>9} {'peak MB':>8} {'rows':>9}"
    )
    for loader in LOADERS:
        runs = [measure(loader, path) for _ in range(repeat)]
        cpu, wall = min(r[0] for r in runs), min(r[1] for r in runs)
        peak = max(r[2] for r in runs)
        print(f"{loader:20} {size / cpu:9.1f} {size / wall:9.1f} {peak:8.0f} {runs[0][3]:>9}")


def main() -> None:
    """Read the arguments, then compare or run one loader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=400)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--loader", choices=LOADERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loader:
        rows = LOADERS[given.loader](given.file)
        processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        print(rows, sum(resource.getrusage(p).ru_maxrss for p in processes) / 1e3)
    elif given.file:
        compare(given.file, given.repeat)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            write_trace(path, given.megabytes)
            compare(path, given.repeat)


if __name__ == "__main__":
    main()
