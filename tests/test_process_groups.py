"""Groups of ranks: declared, named by collectives, and the ones within which ranks are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_recordings as recordings
import pytest
from gpu_recordings import event, trace

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.ingest import ingest
from rca.parsers import torch_profiler_half

_ARGS = {
    "Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "BFloat16",
    "Process Group Description": "tp", "Seq": 5, "Comms Id": 10159970886766084423,
}  # fmt: skip
_ROWS = "SELECT c.* EXCLUDE (source_id), coalesce(g.name, o.name) FROM collective AS c LEFT JOIN gpu_op AS g ON g.id = c.id LEFT JOIN cpu_op AS o ON o.id = c.id ORDER BY c.id"


def _job(rank: int, size: int, *groups: list[int]) -> str:
    listed = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": size, "ranks": list(range(size))}]  # fmt: skip
    listed += [{"pg_name": f"tp{i}", "backend_config": "cuda:nccl", "pg_size": len(g), "ranks": g} for i, g in enumerate(groups)]  # fmt: skip
    told = {"backend": "nccl", "rank": rank, "world_size": size, "pg_config": listed}
    return f'"distributedInfo": {json.dumps(told)}'


def _rank(path: Path, rank: int, compute_us: int, group: list[int] | None, name: str = "tp0") -> BundleFile:  # fmt: skip
    """A recording whose kernel takes so long; the collective of its group ends at 2000 us."""
    inside = _ARGS | {"Process Group Name": name, "Process Group Ranks": json.dumps(group), "Group size": len(group)} if group else {}  # fmt: skip
    path.write_text(trace(
        event("gemm", "0", f"{compute_us}", "kernel", stream=7),
        event("ncclDevKernel_AllReduce", f"{compute_us}", f"{2000 - compute_us}", "kernel", stream=7, **inside),
        head=_job(rank, 8),
    ))  # fmt: skip
    return BundleFile(path, path.name, "incident")


def test_what_is_declared_and_what_is_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    named = {"Process Group Name": "tp0", "Process Group Ranks": "[0, 1]", "Group size": 2}
    path.write_text(trace(
        event("record_param_comms", "1", "4", "cpu_op", **{"Collective name": "allreduce", "Process Group ID": 3}),
        event("aten::mm", "1", "4", "cpu_op"),
        event("ncclDevKernel_AllReduce", "9", "4", "kernel", **_ARGS, **named),
        head=_job(0, 4, [0, 1], [2, 3]),
    ))  # fmt: skip
    case = recordings.read(path)
    assert case.rows("SELECT * EXCLUDE (source_id) FROM process_group") == [
        ("0", "default_pg", "cuda:nccl", 4, "[0,1,2,3]"),
        ("tp0", None, "cuda:nccl", 2, "[0,1]"),
        ("tp1", None, "cuda:nccl", 2, "[2,3]"),
    ]
    assert case.rows(_ROWS) == [
        (0, "allreduce", "3", None, None, None, None, None, None, None, "record_param_comms"),
        (2, "allreduce", "tp0", "tp", "[0,1]", 2, "BFloat16", 64, 64, 5, "ncclDevKernel_AllReduce"),
    ]  # fmt: skip
    assert case.rows("SELECT group_name, group_ranks FROM rank_group") == [("tp0", "[0,1]")]


def test_groups_are_found_by_what_is_declared_where_no_operation_tells(tmp_path: Path) -> None:
    for groups, expected in (([], "[0,1,2,3]"), ([[0, 1]], None)):
        path = tmp_path / f"{len(groups)}.json"
        path.write_text(trace(event("gemm", "1", "4", "kernel"), head=_job(0, 4, *groups)))
        found = recordings.read(path).rows("SELECT group_ranks FROM rank_group")
        assert found == ([(expected,)] if expected else [])


def test_ranks_left_out_are_those_of_the_declaration(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    told = {"Process Group Name": "tp0", "Process Group Ranks": "[0, 1, ...]", "Group size": 3}
    path.write_text(trace(event("ncclX", "9", "4", "kernel", **_ARGS, **told), head=_job(0, 4, [0, 1, 2])))  # fmt: skip
    assert recordings.read(path).rows("SELECT group_ranks FROM rank_group") == [("[0,1,2]",)]


def test_ranks_as_text_and_groups_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    told = {"pg_config": [{"pg_name": 4, "ranks": "[1, 2]"}, {"uid": "x"}, 5, {"pg_name": "y", "pg_size": "many"}]}  # fmt: skip
    path.write_text(trace(event("a", "1", "4", "kernel"), head=f'"distributedInfo": {json.dumps(told)}'))  # fmt: skip
    assert recordings.read(path).rows("SELECT name, size, ranks FROM process_group") == [
        ("4", None, "[1,2]"),
        ("y", None, None),
    ]


def test_ranks_are_compared_within_their_group(tmp_path: Path) -> None:
    # Two halves of a model: the second has more to do on every rank. Rank 2 is late in the first.
    files = []
    for rank in range(8):
        first = rank < 4
        group = [0, 1, 2, 3] if first else [4, 5, 6, 7]
        compute_us = (900 if rank == 2 else 500 + rank) if first else 1500 + rank
        files.append(_rank(tmp_path / f"{rank}.json", rank, compute_us, group))
    with Case.create() as case:
        assert ingest(case, Bundle(files)) == []
        late = case.rows("SELECT rank, n_ranks, more_of FROM straggler WHERE is_straggler")
        assert late == [(2, 4, "compute")]
        ranks = case.rows("SELECT DISTINCT group_ranks FROM straggler ORDER BY 1")
        assert ranks == [("[0,1,2,3]",), ("[4,5,6,7]",)]


def test_without_groups_ranks_of_a_job_are_compared(tmp_path: Path) -> None:
    files = [
        _rank(tmp_path / f"{r}.json", r, 900 if r == 2 else 500 + r, None) for r in range(5)
    ]
    with Case.create() as case:
        assert ingest(case, Bundle(files)) == []
        assert case.rows("SELECT rank, n_ranks FROM straggler WHERE is_straggler") == [(2, 5)]


def test_damaged_and_halved_recordings_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"Process Group Name": "tp0", "Process Group Ranks": "[0,1]", "Group size": 2}
    events = [event("ncclX", f"{i}", "1", "kernel", **_ARGS, **told) for i in range(3000)]
    text = trace(*events, head=_job(0, 2, [0, 1]))
    (tmp_path / "whole.json").write_text(text)
    (tmp_path / "cut.json").write_text(text[: -len(events[-1])])
    whole = recordings.read(tmp_path / "whole.json").rows(_ROWS)
    assert [r[0] for r in whole] == list(range(3000))
    assert recordings.read(tmp_path / "cut.json").rows(_ROWS) == whole[:-1]
    monkeypatch.setattr(torch_profiler_half, "MIN_BYTES", 1)
    monkeypatch.setattr(torch_profiler_half.machine, "idle_processors", lambda: 2)
    assert recordings.read(tmp_path / "whole.json").rows(_ROWS) == whole


def test_hardware_counters_of_kernels(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(trace(
        event("aten::mm", "1", "4"),
        event("gemm", "1.5", "2.25", "cuda_profiler_range", fadd=3, share=0.5, unit="x"),
        event("untimed", "2", None, "cuda_profiler_range", fadd=3),
        event("gemm", "9", "1", "cuda_profiler_range", fadd=4),
    ))  # fmt: skip
    asked = "SELECT id, name, start_ns, dur_ns, counter, value FROM hardware_counter"
    expected = [
        (1, "gemm", 1500, 2250, "fadd", 3.0), (1, "gemm", 1500, 2250, "share", 0.5),
        (1, "gemm", 1500, 2250, "unit", None), (3, "gemm", 9000, 1000, "fadd", 4.0),
    ]  # fmt: skip
    assert recordings.read(path).rows(asked) == expected


@pytest.mark.parametrize(
    ("name", "n", "row"),
    [
        ("b200_eager.json.gz", 2, ("_allgather_base", "3", "[0,1,2,3,4,5,6,7]", 8, "BFloat16", 25136, 201088)),
        ("ns_resolution_rank0.pt.trace.json.gz", 45, ("allreduce", "0", "[0]", 1, "Float", 2049000, 2049000)),
        ("mi300_resnet_act_checkpoint.json.gz", 30, ("allreduce", "0", "[0,1,2,3,4,5,6,7]", 8, "BFloat16", 2873320, 2873320)),
    ],
)  # fmt: skip
def test_public_recordings(
    name: str, n: int, row: Any, conformance: Path, read_files: Callable[..., Case]
) -> None:
    case = read_files(conformance / "kineto" / name)
    told = case.rows(
        "SELECT name, group_name, group_ranks, group_size, dtype, in_elements, out_elements FROM collective ORDER BY id"
    )
    assert (len(told), told[0]) == (n, row)
