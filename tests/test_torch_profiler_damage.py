"""Damaged recordings: what is whole is kept, what is lost is said, nothing breaks."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

import gpu_recordings as recordings
import pytest
from gpu_recordings import event, trace

from rca import machine
from rca.errors import BundleError, ParseError
from rca.parsers import recognise, torch_profiler, torch_profiler_half, torch_profiler_reader
from rca.parsers.stream import read_head

HEAD = '"schemaVersion": 1, "baseTimeNanoseconds": 1751410836000000000'
N_EVENTS = 30


def pretty(events: list[str], indent: int | None) -> str:
    """A recording as one of its writers formats it."""
    if indent is None:
        return trace(*events, head=HEAD)
    return json.dumps(json.loads(trace(*events, head=HEAD)), indent=indent or None)


def events() -> list[str]:
    """Operators, launches and kernels with names that are hard to cut."""
    made = []
    for i in range(N_EVENTS // 3):
        at = 1000 + 10 * i
        made += [
            event(
                f'f("{i}"), {{"ph": "X"}}, {{',
                f"{at}.125",
                "8",
                **{"External id": i, "Ev Idx": i},
            ),
            event("cudaLaunchKernel", f"{at}.5", "1.25", "cuda_runtime", correlation=i),
            event(
                f"void gemm<{i}>(é, ∑)",
                f"{at}.75",
                "3",
                "kernel",
                correlation=i,
                grid=[i, 1, 1],
            ),
        ]
    return made


def complete_before(text: bytes, cut: int, made: list[str]) -> int:
    """How many events end before a place."""
    return sum(1 for end in ends(text, made) if end <= cut)


def ends(text: bytes, made: list[str]) -> list[int]:
    """Where each event of the text ends."""
    decoder = json.JSONDecoder()
    whole = text.decode()
    at = whole.index("[", whole.index('"traceEvents"')) + 1
    found = []
    for _ in made:
        while whole[at] in " \n,":
            at += 1
        _, at = decoder.raw_decode(whole, at)
        found.append(len(whole[:at].encode()))
    return found


def kept(path: Path) -> tuple[set[str], bool, dict[str, int]]:
    """Names of all operations that were kept, whether anything was lost, the notes."""
    sink = recordings.MemorySink()
    recognise(read_head(path)).read(path, sink)
    made = [("g", row) for row in sink.tables.get("gpu_op", [])]
    made += [("c", row) for row in sink.tables.get("cpu_op", [])]
    assert len(made) + sink.codes.get("lost_event", 0) <= sink.n_elements
    return {f"{t}{row['id']}{row['name']}" for t, row in made}, sink.lost, sink.codes


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every boundary between blocks and pieces is met."""
    monkeypatch.setattr(torch_profiler_reader, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(torch_profiler_reader, "PIECE_BYTES", 600)


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_blocks_of_any_size_give_the_same_rows(
    indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text(pretty(events(), indent))
    whole = kept(path)
    assert len(whole[0]) == N_EVENTS
    for size in (150, 1024, 5000):
        monkeypatch.setattr(torch_profiler_reader, "BLOCK_BYTES", size)
        monkeypatch.setattr(torch_profiler_reader, "PIECE_BYTES", max(size // 3, 32))
        assert kept(path) == whole


def _cut_at(text: bytes, cut: int, path: Path, made: list[str]) -> None:
    path.write_bytes(text[:cut])
    try:
        names, lost, notes = kept(path)
    except ParseError:  # not even the beginning of the events is there
        assert complete_before(text, cut, made) == 0
        return
    assert len(names) == complete_before(text, cut, made)
    # Only what follows the end of the array can be cut off without a loss.
    assert lost == ("truncated" in notes)
    assert ("truncated" in notes) == (cut <= text.rindex(b"]"))


def _cuts(tmp_path: Path, n: int, seed: int) -> None:
    made = events()
    rng = random.Random(seed)
    for i in range(n):
        text = pretty(made, (None, 0, 2)[i % 3]).encode()
        _cut_at(text, rng.randrange(1, len(text)), tmp_path / f"{i}.json", made)


def test_cut_anywhere(tmp_path: Path) -> None:
    _cuts(tmp_path, 40, 1)


@pytest.mark.usefixtures("small_blocks")
def test_cut_anywhere_in_small_blocks(tmp_path: Path) -> None:
    _cuts(tmp_path, 12, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_cut_at_many_more_places(tmp_path: Path) -> None:
    _cuts(tmp_path, 250, 3)


def _corrupted(tmp_path: Path, n: int, seed: int) -> None:
    """Bytes overwritten at one place: every event that ends before it is there."""
    made = events()
    rng = random.Random(seed)
    junk = [
        b"\x00\x01",
        b"\xff\xfe",
        b'"',
        b"\\",
        b"\n",
        b"{",
        b"}",
        b"]",
        b",",
        b"NaN",
        b'},{"',
    ]
    for i in range(n):
        text = pretty(made, (None, 0, 2)[i % 3]).encode()
        first = text.index(b"[", text.index(b'"traceEvents"')) + 1
        at, what = rng.randrange(first, len(text)), rng.choice(junk)
        path = tmp_path / f"{i}.json"
        path.write_bytes(text[:at] + what + text[at + len(what) :])
        names, _, _ = kept(path)
        before = complete_before(text, at, made)
        expected = _names(made)[:before]
        assert set(expected) <= names, (i, at, what)
        if what in (b'"', b"\xff\xfe", b"\x00\x01", b"NaN"):  # what follows is still an array
            assert len(names) >= N_EVENTS - 3, (i, at, what)


def _names(made: list[str]) -> list[str]:
    parsed = [json.loads(e) for e in made]
    return [
        f"{'g' if e['cat'] == 'kernel' else 'c'}{i}{e['name']}" for i, e in enumerate(parsed)
    ]


def test_corrupted_anywhere(tmp_path: Path) -> None:
    _corrupted(tmp_path, 40, 4)


@pytest.mark.usefixtures("small_blocks")
def test_corrupted_anywhere_in_small_blocks(tmp_path: Path) -> None:
    _corrupted(tmp_path, 8, 5)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_corrupted_at_many_more_places(tmp_path: Path) -> None:
    _corrupted(tmp_path, 250, 6)


@pytest.mark.parametrize(
    ("broken", "name", "note"),
    [
        ('"name": "a "quoted" name", "pid"', 'a "quoted" name', "repaired_event"),
        ('"name": "a\nb", "pid"', "a\nb", None),
        ('"name": "C:\\code\\_x", "pid"', "C:\\code\\_x", "repaired_event"),
        ('"name": "é \x01", "pid"', "é \x01", None),
    ],
)
def test_names_that_writers_do_not_escape(
    broken: str, name: str, note: str | None, tmp_path: Path
) -> None:
    good = event("good", "1.5", "2", "kernel")
    text = trace(good, good.replace('"name": "good", "pid"', broken), good, head=HEAD)
    path = tmp_path / "t.json"
    path.write_text(text)
    case = recordings.read(path)
    assert case.rows("SELECT name FROM gpu_op ORDER BY id") == [("good",), (name,), ("good",)]
    assert set(recordings.notes(case)) == ({note} if note else set())
    assert case.scalar("SELECT status FROM source") == "ok"


def test_bytes_that_are_not_utf8_are_replaced_and_said(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(
        trace(event("good", "1", "2", "kernel"), head=HEAD).encode().replace(b"good", b"g\xffd")
    )
    case = recordings.read(path)
    assert case.rows("SELECT name FROM gpu_op") == [("g\ufffdd",)]
    assert "not_utf8" in recordings.notes(case)


def test_elements_that_are_no_events_are_counted_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = event("good", "1", "2", "kernel")
    path.write_text(
        trace(good, "5", "[3]", '{"ph": "X", "ph": "X", "args": 7}', good, head=HEAD)
    )
    case = recordings.read(path)
    assert case.scalar("SELECT count(*) FROM gpu_op") == 2
    assert case.scalar("SELECT n_elements FROM source") == 5
    assert recordings.notes(case)["lost_event"] == 2


def test_a_gzip_stream_that_ends_early(tmp_path: Path) -> None:
    rng = random.Random(7)
    many = [event(f"k{rng.random()}", str(i), "1", "kernel") for i in range(1, 3000)]
    packed = gzip.compress(trace(*many, head=HEAD).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    case = recordings.read(path)
    assert 1000 < case.scalar("SELECT count(*) FROM gpu_op") < 2000
    assert {"damaged_compression", "truncated"} <= set(recordings.notes(case))
    assert case.scalar("SELECT status FROM source") == "salvaged"


def test_nothing_before_the_first_event_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "deviceProperties": [')
    with pytest.raises(BundleError, match="no traceEvents"):
        recordings.read(path)


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are read by two processes."""
    monkeypatch.setattr(machine, "idle_processors", lambda: 1.0)
    monkeypatch.setattr(torch_profiler_half, "MIN_BYTES", 1)


def everything(path: Path) -> tuple[object, ...]:
    """All that was written to the sink."""
    sink = recordings.MemorySink()
    recognise(read_head(path)).read(path, sink)
    return sink.tables, sink.codes, sink.facts, sink.n_elements, sink.lost


def names() -> list[str]:
    """Names of the process and of a thread, which both halves repeat."""
    return [
        event("process_name", "0", None, ph="M", name="python"),
        event("thread_name", "0", None, ph="M", name="main"),
    ]


@pytest.mark.parametrize("indent", [None, 2])
def test_two_processes_give_the_rows_of_one(
    indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_processes: None
) -> None:
    path = tmp_path / "t.json"
    text = pretty([*names(), *events(), event("k", "5", "-1", "kernel"), *names()], indent)
    path.write_text(text.replace('"traceName": "t"', '"distributedInfo": {"rank": 3}'))
    taken = []
    monkeypatch.setattr(
        torch_profiler, "take", lambda *a: taken.append(1) or torch_profiler_half.take(*a)
    )
    parallel = everything(path)
    assert taken == [1]
    monkeypatch.setattr(torch_profiler_half, "MIN_BYTES", 1 << 40)
    assert parallel == everything(path)
    assert parallel[2]["rank"] == 3  # type: ignore[index]


@pytest.mark.parametrize("share", [0.2, 0.47, 0.8])
def test_a_wrong_middle_or_a_failed_process_costs_nothing_but_time(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_processes: None
) -> None:
    path = tmp_path / "t.json"
    path.write_text(pretty(events(), None))
    whole = everything(path)
    middle = path.read_bytes().index(b"}, {", int(path.stat().st_size * share)) + 1
    monkeypatch.setattr(torch_profiler, "place", lambda *_: middle)
    assert everything(path) == whole
    monkeypatch.setattr(torch_profiler_half.sys, "executable", shutil.which("false"))
    assert everything(path) == whole


def test_damage_near_the_middle_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_processes: None
) -> None:
    rng = random.Random(8)
    for i in range(8):
        text = pretty(events(), None).encode()
        at = rng.randrange(int(len(text) * 0.4), int(len(text) * 0.6))
        path = tmp_path / f"{i}.json"
        path.write_bytes(text[:at] + b'"' + text[at + 1 :])
        monkeypatch.setattr(torch_profiler_half, "MIN_BYTES", 1)
        parallel = everything(path)
        monkeypatch.setattr(torch_profiler_half, "MIN_BYTES", 1 << 40)
        assert parallel == everything(path), i


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        trace(event("good", "1", "2", "kernel").replace("good", "a\\ud800b"), head=HEAD)
    )
    assert recordings.read(path).rows("SELECT name FROM gpu_op") == [("a?b",)]
