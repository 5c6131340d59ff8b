"""What profiler captures show by themselves, in lines for people: useful without any reference."""

from __future__ import annotations

from rca.answer import bound
from rca.case import Case
from rca.plain import duration, percent, printable, size

_DEVICES = 4
_NAMES = 3
_DEVICE_SQL = """
SELECT b.source_id, b.device, b.span_ns, b.busy_ns, b.compute_ns, b.comm_ns, b.overlap_ns, b.mem_ns,
    b.n_kernel, s.path
FROM gpu_breakdown AS b
JOIN source AS s ON s.id = b.source_id
WHERE b.device IS NOT NULL AND b.span_ns > 0 AND s.part = 'incident'
ORDER BY b.source_id, b.device
"""
_IDLE_SQL = """
SELECT source_id, device, cause, share FROM gpu_idle
WHERE share > 0.01
ORDER BY share DESC, cause
"""
_COPIES_SQL = """
SELECT source_id, device, copy_kind, share FROM gpu_copy
WHERE share > 0.01
ORDER BY share DESC, copy_kind
"""
Shares = dict[tuple[int, int], list[tuple[str, float]]]
"""By source and device: what, and its share of the device's span."""
_NAMES_SQL = """
SELECT name, sum(count), sum(total_ns)
FROM {view} JOIN source AS s ON s.id = source_id
WHERE s.part = 'incident' GROUP BY name ORDER BY 3 DESC, 1 LIMIT ?
"""
_BANDWIDTH_SQL = """
SELECT b.device, b.dram_share, b.dram_bytes_per_s, b.peak_bytes_per_s, b.tensor_share
FROM gpu_bandwidth AS b
JOIN source AS s ON s.id = b.source_id
WHERE s.part = 'incident' AND (b.dram_share IS NOT NULL OR b.tensor_share IS NOT NULL)
ORDER BY b.source_id, b.device
LIMIT ?
"""
_IDLE = {
    "no request": "no request in flight",
    "sync, then host": "a wait for the GPU, then the host",
    "launch": "launch latency",
    "queued": "held back on the device",
    "host": "nothing launched",
    "launch not recorded": "its launch is not in the capture",
}
_COPIES = {
    "HtoD": "host to device",
    "DtoH": "device to host",
    "DtoD": "on the device",
    "PtoP": "between devices",
}


def told(case: Case) -> list[tuple[str, str]]:
    """Pairs of a kind ('GPU', 'KERNELS', 'CALLS') and a line, in a fixed order."""
    devices = case.rows(_DEVICE_SQL)
    idle, copies = (_shares(case, sql) if devices else {} for sql in (_IDLE_SQL, _COPIES_SQL))
    lines = [
        ("GPU", _device(row, idle, copies, n_sources=len({d[0] for d in devices})))
        for row in devices[:_DEVICES]
    ]
    if len(devices) > _DEVICES:
        lines.append(
            ("GPU", f"and {len(devices) - _DEVICES} more devices, see the view gpu_breakdown")
        )
    told_bound = bound.line(case) if devices else ""
    lines += [("GPU", told_bound)] if told_bound else []
    lines += [("GPU", _bandwidth(*row)) for row in case.rows(_BANDWIDTH_SQL, [_DEVICES])]
    for kind, view in (("KERNELS", "kernel_summary"), ("CALLS", "api_summary")):
        for name, count, total in case.rows(_NAMES_SQL.format(view=view), [_NAMES]):
            text = f"{printable(name, 70)}  {int(count):,} times, {duration(float(total))} together"
            lines.append((kind, text))
    return lines


def _shares(case: Case, sql: str) -> Shares:
    found: Shares = {}
    for source, device, what, share in case.rows(sql):
        found.setdefault((source, device), []).append((what, share))
    return found


def _device(row: tuple[int, ...], idle_of: Shares, copies_of: Shares, n_sources: int) -> str:
    source, device, span, busy, compute, comm, overlap, mem, kernels, path = row
    parts = [f"compute {percent(compute / span)}"]
    if comm:
        parts.append(
            f"communication {percent(comm / span)} ({percent(overlap / span)} under compute)"
        )
    if mem:
        ways = ", ".join(
            f"{_COPIES.get(kind, printable(kind, 20))} {percent(share)}"
            for kind, share in copies_of.get((source, device), ())
        )
        parts.append(f"copies {percent(mem / span)}{f' ({ways})' if ways else ''}")
    idle = [
        f"{_IDLE.get(cause, cause)} {percent(share)}"
        for cause, share in idle_of.get((source, device), ())
    ]
    where = f"{printable(path, 60)} " if n_sources > 1 else ""
    text = f"{where}device {device}: busy {percent(busy / span)} of {duration(span)} in {kernels:,} kernels"
    text += f": {', '.join(parts)}"
    return text + (f"; idle: {', '.join(idle)}" if idle else "")


def _bandwidth(
    device: int, dram: float | None, used: float | None, peak: int | None, tensor: float | None
) -> str:
    """What hardware counters say of one device."""
    parts = []
    if dram is not None:
        known = f" ({size(used)}/s of {size(peak)}/s)" if used is not None and peak else ""
        parts.append(f"memory bandwidth {percent(dram)} of its peak{known}")
    if tensor is not None:
        parts.append(f"tensor cores {percent(tensor)}")
    return f"device {device}: {', '.join(parts)}"
