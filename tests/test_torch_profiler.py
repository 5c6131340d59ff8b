"""PyTorch Profiler recordings in every spelling: small texts in, rows out."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import gpu_recordings as recordings
import pytest
from gpu_recordings import event, trace

from rca.case import Case
from rca.parsers import recognise
from rca.parsers.format import Head

BASE = '"baseTimeNanoseconds": 1751410836000000000'
BASE_NS = 1_751_410_836_000_000_000
KERNEL = event(
    "gemm", "1419247332972.313", "5.120", "kernel", device=2, context=1, stream=9, correlation=11,
    grid=[4, 1, 1], block=[128, 1, 1], **{"External id": 3, "registers per thread": 40, "shared memory": 512},
)  # fmt: skip


def read(tmp_path: Path, text: str | bytes, name: str = "trace.json") -> Case:
    """The case made of a recording with this text."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return recordings.read(path)


def gpu(case: Case, columns: str) -> list[tuple[object, ...]]:
    """Columns of the GPU operations, in their order."""
    return case.rows(f"SELECT {columns} FROM gpu_op ORDER BY id")


def test_a_kernel_with_all_its_arguments(tmp_path: Path) -> None:
    found = recordings.row(read(tmp_path, trace(KERNEL, head=BASE)), "FROM gpu_op")
    assert found == {
        "source_id": 1, "id": 0, "kind": "kernel", "name": "gemm", "device": 2, "context": 1,
        "stream": 9, "pid": 0, "start_ns": BASE_NS + 1_419_247_332_972_313, "dur_ns": 5120,
        "correlation": 11, "external_id": 3, "bytes": None, "copy_kind": None, "grid": "4,1,1",
        "block": "128,1,1", "registers": 40, "shared_bytes": 512, "graph_id": None, "graph_node_id": None, "flaw": None,
    }  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_what_times_count_from_may_stand_before_or_after(
    before: bool, packed: bool, tmp_path: Path
) -> None:
    facts = BASE + ', "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}'
    text = trace(KERNEL, head=facts) if before else trace(KERNEL, tail=facts)
    case = read(tmp_path, gzip.compress(text.encode()) if packed else text)
    assert case.rows("SELECT base_ns, rank, world_size, status FROM source") == [
        (BASE_NS, 3, 8, "ok")
    ]
    assert gpu(case, "start_ns") == [(BASE_NS + 1_419_247_332_972_313,)]


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ("1694039994071305", 1_694_039_994_071_305_000),  # torch <= 2.3: whole us
        ("1712158297123456.789", 1_712_158_297_123_456_789),  # 19 digits: a double is 111 ns off
        ("7889237999999.999", 7_889_237_999_999_999),  # the largest relative time
        ("8796093022208.001", 8_796_093_022_208_001),  # where doubles lie more than 1 ns apart
        ("8796093022207.999", 8_796_093_022_207_999),  # the last before that place
        ("1700000000000000.1", 1_700_000_000_000_000_100),  # its double is a whole number
        ("1E3", 1_000_000),
        ("12.3", 12_300), ("12.34", 12_340), ("12.0", 12_000), ("-0.5", -500),
        ("1.5e3", 1_500_000), ("12.3454999", 12_345), ("12.3455001", 12_346),
        ("12.3455", 12_346), ("12.3465", 12_346), ("1419247332972.3125", 1_419_247_332_972_312),
    ],
)  # fmt: skip
def test_times_are_exact_whatever_their_spelling(ts: str, ns: int, tmp_path: Path) -> None:
    case = read(tmp_path, trace(event("k", ts, "1", "kernel"), KERNEL))
    assert gpu(case, "start_ns") == [(ns,), (1_419_247_332_972_313,)]


def test_many_times_are_exact(tmp_path: Path) -> None:
    draws = random.Random(1)
    times = sorted(
        draws.randrange(10 ** draws.randrange(1, 17)) % (2**43 * 1000) for _ in range(3000)
    )
    made = [event("k", f"{t // 1000}.{t % 1000:03d}", "0.001", "kernel") for t in times]
    case = read(tmp_path, trace(*made, head=BASE))
    found = case.rows("SELECT start_ns, dur_ns FROM gpu_op ORDER BY id")
    assert found == [(BASE_NS + t, 1) for t in times]


def test_torch_1_8_capitals_strings_and_lower_case_keys(tmp_path: Path) -> None:
    case = read(tmp_path, """{"schemaVersion": 1, "traceEvents": [
      {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 5, "tid": "3004819264",
       "ts": 1610366728298088, "dur": 5, "args": {"Input dims": [[2, 3]], "External id": 2}},
      {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": "3004819264",
       "ts": 1610366728298090, "dur": 2, "args": {"cbid": 211, "correlation": 9, "external id": 2}},
      {"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 0, "tid": "stream 7",
       "ts": 1610366728298095, "dur": 3, "args": {"correlation": 9, "external id": 2}},
      {"name": "[memory]", "ph": "i", "s": "t", "pid": 5, "tid": "1", "ts": 1610366728298096,
       "args": {"Device Type": 0, "Device Id": -1, "Bytes": -4}}
    ]}""")  # fmt: skip
    assert gpu(case, "stream, device, correlation, external_id") == [(7, 0, 9, 2)]
    assert case.rows("SELECT kind, tid, external_id, input_dims FROM cpu_op ORDER BY id") == [
        ("op", 3004819264, 2, "[[2,3]]"), ("runtime", 3004819264, 2, None),
    ]  # fmt: skip
    assert case.rows("SELECT device, delta_bytes, allocated_bytes FROM memory_event") == [
        (-1, -4, None)
    ]
    assert case.rows("SELECT cpu_op_id, delay_ns FROM launch") == [(1, 5000)]


def test_an_array_is_a_recording_too(tmp_path: Path) -> None:
    assert gpu(read(tmp_path, f"[\n{KERNEL},\n{KERNEL}\n]"), "name") == [("gemm",), ("gemm",)]


def test_memory_events_keep_both_spellings_of_bytes_apart(tmp_path: Path) -> None:
    copy = event("Memcpy HtoD (Pageable -> Device)", "1", "2", "gpu_memcpy", bytes=64)
    grown = event(
        "[memory]", "3", None, "cpu_instant_event", "i",
        **{"Bytes": 512, "Addr": 18446744073709551615, "Device Id": 0, "Device Type": 1, "Total Allocated": 9},
    )  # fmt: skip
    case = read(tmp_path, trace(copy, grown, copy))
    assert gpu(case, "bytes, copy_kind") == [(64, "HtoD"), (64, "HtoD")]
    assert case.rows(
        "SELECT delta_bytes, device, allocated_bytes, address FROM memory_event"
    ) == [(512, 0, 9, None)]
    assert recordings.notes(case)["large_number"] == 1


def test_numbers_that_do_not_fit_become_null(tmp_path: Path) -> None:
    huge = event("ncclKernel", "1", "2", "kernel", correlation=10159970886766084423, device=1)
    case = read(tmp_path, trace(huge, KERNEL, head=BASE))
    assert gpu(case, "correlation, device") == [(None, 1), (11, 2)]
    assert recordings.notes(case) == {"large_number": 1}


def test_numbers_that_are_absurd_break_nothing(tmp_path: Path) -> None:
    head = (
        '"baseTimeNanoseconds": 9999999999999999999, "distributedInfo": {"rank": 99999999999},'
        '"deviceProperties": [{"id": 4294967296}, {"id": 1, "numSms": 1e300, "name": 7}]'
    )
    odd = ["9" * 30, "-9223372036854775.808", "9223372036854775.807", "1e400", '"x"', "-1"]
    times = [event(f"t{i}", t, "1", "kernel") for i, t in enumerate(odd)]
    durations = [event(f"d{i}", "7", t, "kernel", device=2**40) for i, t in enumerate(odd)]
    case = read(tmp_path, trace(*times, *durations, head=head))
    assert gpu(case, "name")[0] == ("t5",)
    assert case.rows("SELECT count(*), count(device) FROM gpu_op WHERE name LIKE 'd%'") == [
        (6, 6)
    ]
    assert case.rows("SELECT id, sm_count, name FROM device") == [(1, None, None)]
    assert case.rows("SELECT rank, base_ns FROM source") == [(None, None)]
    assert case.scalar("SELECT busy_ns FROM gpu_breakdown WHERE device IS NULL") == 1000
    assert recordings.notes(case)["no_time"] == 5


def test_what_is_no_gpu_work_is_not_taken_for_it(tmp_path: Path) -> None:
    case = read(tmp_path, trace(
        event("triton_op", "1", "2", stream=7, grid="grid(4,)"),
        event("Stream Sync", "1", "2", "cuda_sync", stream=-1, correlation=4),
        event("step", "1", "2", "gpu_user_annotation"),
        event("job", "1", "2", "mtia_ccp_events", stream=3),
        event("PyTorch Profiler (0)", "1", "2", "Trace"),
    ))  # fmt: skip
    assert gpu(case, "kind, name") == [("accelerator", "job")]
    kinds = case.rows("SELECT kind, count(*) FROM cpu_op GROUP BY 1 ORDER BY 1")
    assert kinds == [("gpu_annotation", 1), ("op", 1), ("sync", 1)]
    assert case.scalar("SELECT busy_ns FROM gpu_breakdown") == 0


def test_bad_durations_are_kept_marked_and_counted_nowhere(tmp_path: Path) -> None:
    texts = [("-5", "negative_duration"), (None, "no_duration"), ("NaN", "no_duration"),
             ("7445000000000000", "absurd_duration"), ("1", None)]  # fmt: skip
    case = read(tmp_path, trace(*(event("k", "10", dur, "kernel") for dur, _ in texts)))
    assert gpu(case, "flaw") == [(flaw,) for _, flaw in texts]
    assert gpu(case, "dur_ns")[0] == (-5000,)
    assert case.scalar("SELECT busy_ns FROM gpu_breakdown WHERE device IS NULL") == 1000
    assert recordings.notes(case)["bad_duration"] == 4


def test_a_lost_time_is_no_time(tmp_path: Path) -> None:
    case = read(
        tmp_path, trace(event("k", "0", "0", "kernel"), event("k", "99", "1", "kernel"))
    )
    assert gpu(case, "start_ns") == [(99_000,)]
    assert recordings.notes(case)["no_time"] == 1
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_names_of_processes_threads_and_devices(tmp_path: Path) -> None:
    named = [
        event("process_name", "0", None, ph="M", name="python"),
        event("process_labels", "0", None, ph="M", labels="CPU"),
        event("thread_name", "0", None, ph="M", name="thread 7 (python)"),
    ]
    device = '"deviceProperties": [{"id": 0, "name": "H100", "totalGlobalMem": 85, "numSms": 132, "computeMajor": 9, "computeMinor": 0}]'
    case = read(tmp_path, trace(*named, KERNEL, head=device))
    assert case.rows("SELECT * EXCLUDE source_id FROM process") == [(7, "python", "CPU")]
    assert case.rows("SELECT * EXCLUDE source_id FROM thread") == [(7, 7, "thread 7 (python)")]
    assert case.rows("SELECT name, memory_bytes, sm_count, compute_capability FROM device") == [
        ("H100", 85, 132, "9.0")
    ]


def test_categories_that_are_not_known_are_said(tmp_path: Path) -> None:
    case = read(
        tmp_path,
        trace(event("x", "1", "2", "new_thing"), event("y", "1", None, ph="B"), KERNEL),
    )
    assert set(recordings.notes(case)) == {
        "unknown_category",
        "begin_end_events",
        "relative_time",
    }
    assert case.scalar("SELECT n_elements FROM source") == 3


def test_hostile_names_are_data(tmp_path: Path) -> None:
    names = [
        "'; DROP TABLE gpu_op; --",
        'a", "ts": 5, "b',
        '},\n  {"ph": "X"',
        "\\\\",
        "\u202e\x1b[31m",
        "]}",
    ]
    case = read(tmp_path, trace(*(event(n, "1", "2", "kernel") for n in names)))
    assert gpu(case, "name") == [(n,) for n in names]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (trace(KERNEL), True), ("\ufeff" + trace(KERNEL), True), (f"[{KERNEL}]", True), ("[]", False),
        ('{"data": [{"traceID": "1"}]}', False), ('{"resourceSpans": []}', False), ("", False),
        ("[[-1, 1, 512, 7]]", True),
    ],
)  # fmt: skip
def test_recognised_by_content(text: str, known: bool, tmp_path: Path) -> None:
    from rca.parsers.torch_profiler import FORMAT

    head = Head(tmp_path / "x", text.encode())
    assert FORMAT.recognise(head) == known
    if known:
        assert recognise(head) is FORMAT
