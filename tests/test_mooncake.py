"""Mooncake's trace format: requests of a case go out, those of a file are asked of the model."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from test_reproduce import SHORT, _spans
from typer.testing import CliRunner

from rca.case import Case
from rca.cli import app
from rca.errors import CauseError, ParseError, RcaError
from rca.models import mooncake
from rca.models.mooncake import Asked, Replay
from rca.models.reproduce import reproduce
from rca.models.settings import MS, SECOND, Traffic
from rca.trial.export import export_requests

SAMPLE = Path(__file__).parent.parent / "sample_traces" / "05_dependency_slow"
# Three published lines: 512 tokens a block, the last one short; times in whole ms.
PUBLISHED = """\
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2353, 2354]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2366]}
{"timestamp": 30536, "input_length": 700, "output_length": 9, "hash_ids": [7, 8]}
"""


def _pulses(path: Path, seconds: int = 50) -> list[int]:
    """Three requests at once each second, a part of a ms beside it; returns their times."""
    times = [at * SECOND + 123_457 * (at > 0) for at in range(seconds) for _ in range(3)]
    mooncake.write(path, [Asked(at, 180, 12, (1,)) for at in times])
    return times


def test_published_lines_share_what_their_ids_share(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(PUBLISHED)
    read = mooncake.read(path)
    assert [one.at_ns for one in read] == [27482 * MS, 30535 * MS, 30536 * MS]
    replay = Replay(read, usual_prompt=471.0)
    assert replay.scale == pytest.approx(0.1, rel=0.01)
    asked = list(replay.arrivals(Traffic(), 0, 0, 4 * SECOND))
    assert [one.at_ns for one in asked] == [0, 3053 * MS, 3054 * MS]
    assert [len(one.prompt) for one in asked] == [
        round(n * replay.scale) for n in (6955, 6472, 700)
    ]
    one, other, third = (one.prompt for one in asked)
    shared = 12 * round(512 * replay.scale)
    assert one[:shared] == other[:shared]
    assert one[shared : shared + 16] != other[shared : shared + 16]
    assert third[:16] != one[:16]


def test_times_go_out_and_come_back_to_the_nanosecond(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    times = _pulses(path)
    assert [one.at_ns for one in mooncake.read(path)] == times
    stamps = [json.loads(line)["timestamp"] for line in path.read_text().splitlines()]
    assert stamps[0] == 0
    assert stamps[3] == 1000.123457


def test_a_trace_that_ends_starts_again(tmp_path: Path) -> None:
    replay = Replay([Asked(0, 9, 9), Asked(SECOND, 9, 9), Asked(2 * SECOND, 9, 9)], 200.0)
    assert replay.span_ns == 3 * SECOND
    at = [one.at_ns for one in replay.arrivals(Traffic(), 10 * SECOND, 8 * SECOND, 15 * SECOND)]
    assert at == [second * SECOND for second in range(8, 15)]
    assert [one.index for one in replay.arrivals(Traffic(), 0, 0, 2 * SECOND)] == [0, 1]


def test_pulses_of_a_file_survive_in_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    times = _pulses(path)
    replay = Replay(mooncake.read(path), 200.0)
    out = reproduce("tiny_batch", tmp_path / "b", engine="twin", lengths=SHORT, requests=replay)
    truth = tomllib.loads((out / "truth.toml").read_text())
    # The file begins with the baseline, and goes on with the lead-in, both of 15 s.
    zero_ns = truth["injected_start_ns"] - 30 * SECOND
    begun = Counter(
        int(s["startTimeUnixNano"]) - zero_ns
        for s in _spans(out / "incident")
        if s["name"] == "POST /v1/completions"
    )
    assert set(begun) <= set(times)
    assert [begun[at] for at in times[45:75:3]] == [3] * 10


def test_a_cause_that_changes_what_is_asked_needs_its_own_requests(tmp_path: Path) -> None:
    replay = Replay([Asked(0, 200, 20), Asked(SECOND, 200, 20)], 200.0)
    with pytest.raises(CauseError, match="overload changes what is asked"):
        reproduce("overload", tmp_path / "b", engine="twin", lengths=SHORT, requests=replay)
    out = tmp_path / "slow"
    reproduce("dependency_slow", out, engine="twin", lengths=SHORT, requests=replay)
    assert (out / "truth.toml").is_file()


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 1}',
        "[1]",
        '{"timestamp": -1, "input_length": 2, "output_length": 3}',
        '{"timestamp": 1e999999999, "input_length": 2, "output_length": 3}',
        '{"timestamp": NaN, "input_length": 2, "output_length": 3}',
        '{"timestamp": 1, "input_length": 2.5, "output_length": 3}',
        '{"timestamp": 1, "input_length": true, "output_length": 3}',
        '{"timestamp": "abc", "input_length": 2, "output_length": 3}',
        pytest.param("[" * 200_000, id="nested"),
        '{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": 4}',
    ],
)
def test_a_line_that_is_no_request_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 2, "output_length": 3}\n' + line + "\n")
    with pytest.raises(ParseError, match="line 2"):
        mooncake.read(path)
    path.write_text("\n")
    with pytest.raises(ParseError, match="no requests"):
        mooncake.read(path)


def test_a_trace_that_asks_more_than_can_be_replayed_is_refused() -> None:
    asked = [mooncake.Asked(n * 10_000, 8, 8) for n in range(2)]
    with pytest.raises(RcaError, match="100,000 requests a second, at most 1,000"):
        mooncake.Replay(asked, 8)


def test_a_cases_requests_go_out_in_blocks_of_512(
    read_files: Callable[..., Case], tmp_path: Path
) -> None:
    case = read_files(SAMPLE / "incident" / "traces.jsonl.gz")
    path = tmp_path / "requests.jsonl"
    said = export_requests(case, path)
    rows = case.rows(
        "SELECT start_ns, input_tokens, output_tokens FROM request ORDER BY start_ns, trace_id"
    )
    assert said.startswith(f"{len(rows)} requests of the incident, 0 with a prefix")
    read = mooncake.read(path)
    assert sorted((one.at_ns + rows[0][0], *one[1:3]) for one in read) == sorted(rows)
    assert all(len(one.hash_ids) == -(-one.input_tokens // 512) for one in read)
    assert len({key for one in read for key in one.hash_ids}) == sum(
        len(o.hash_ids) for o in read
    )


def test_requests_share_the_block_whose_prefix_their_spans_name(
    read_files: Callable[..., Case], tmp_path: Path
) -> None:
    case = read_files(SAMPLE / "incident" / "traces.jsonl.gz")
    case.execute(
        'UPDATE span SET attributes = json_merge_patch(attributes, \'{"prefix.hash": "p"}\') '
        "WHERE name = 'llm_request'"
    )
    export_requests(case, tmp_path / "requests.jsonl")
    read = mooncake.read(tmp_path / "requests.jsonl")
    assert {one.hash_ids[0] for one in read} == {0}
    long = [one for one in read if one.input_tokens > 512]
    assert len({one.hash_ids[1] for one in long}) == len(long) > 0


def test_a_case_without_lengths_says_so(
    read_files: Callable[..., Case], tmp_path: Path
) -> None:
    case = read_files(SAMPLE / "incident" / "changes.jsonl")
    with pytest.raises(RcaError, match="no request is recorded with the lengths"):
        export_requests(case, tmp_path / "requests.jsonl")
    assert not (tmp_path / "requests.jsonl").exists()


def test_the_commands_hand_requests_on(tmp_path: Path) -> None:
    with Case.create(tmp_path / "c.duckdb"):
        pass
    path = tmp_path / "trace.jsonl"
    done = CliRunner().invoke(
        app, ["trial", str(tmp_path / "c.duckdb"), "--export-requests", str(path)]
    )
    assert isinstance(done.exception, RcaError)
    _pulses(path)
    asked = ["reproduce", "tiny_batch", "--engine", "twin", "--duration", "15s", "--requests"]
    done = CliRunner().invoke(app, [*asked, str(path), "--out", str(tmp_path / "b")])
    assert done.exit_code == 0, done.output
    assert "requests: 3.04 a second for 1 replica," in done.output
