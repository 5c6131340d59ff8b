"""Bundles of a real engine: recorded from a fake one here, from vLLM itself where it is named."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from rca.case import Case
from rca.errors import BundleError, CauseError, EngineError
from rca.models import vllm_server
from rca.models.reproduce import Lengths
from rca.models.settings import SECOND
from rca.models.vllm_faults import VLLM_FAULTS, Service
from rca.models.vllm_host import node_lines
from rca.models.vllm_load import body
from rca.models.vllm_model import words, write_model
from rca.models.vllm_record import Pauses, record
from rca.models.vllm_scrape import samples
from rca.models.vllm_spans import receiving
from rca.models.workload import Arrival, arrivals
from rca.pipeline import read

HERE = Path(__file__).parent
SHORT = Lengths(baseline_s=1, lead_in_s=1, fault_s=1, scrape_s=1, profiled_steps=3)
NO_PAUSES = Pauses(warm_up_s=0.1, export_s=0.2, profile_s=0.1)
FAULTS = [fault for fault in VLLM_FAULTS.values() if fault.cause != "healthy"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bin") / "vllm"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_vllm.py"} "$@"\n')
    path.chmod(0o755)
    return path


def _service(folder: Path, **variables: str) -> Service:
    """The usual service under traffic that a second has enough of."""
    service = Service().with_environment(FAKE_CHILD=folder / "children", **variables)
    return service.asked(rate_per_s=12.0, output_tokens=20)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked about counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _leftovers(folder: Path) -> list[int]:
    """Children of the engine that are still there, when they had time to go."""
    pids = [int(line) for line in (folder / "children").read_text().split()]
    until = time.monotonic() + 10
    while any(map(_is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert pids
    return [pid for pid in pids if _is_alive(pid)]


class Recording:
    """A bundle, and the folder in which its engines left their children's numbers."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self.folder, self.bundle = folder, bundle


@pytest.fixture(scope="module")
def recorded(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("vllm")
    out = record(
        "tiny_batch", folder / "bundle", program=program, seed=3, lengths=SHORT,
        pauses=NO_PAUSES, healthy=_service(folder),
    )  # fmt: skip
    return Recording(folder, out)


def _metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    answer = json.loads(gzip.decompress((folder / "metrics.json.gz").read_bytes()))
    found: dict[str, list[dict[str, Any]]] = {}
    for series in answer["data"]["result"]:
        found.setdefault(series["metric"]["__name__"], []).append(series)
    return found


def test_a_bundle_has_every_recording(recorded: Recording) -> None:
    for part in ("baseline", "incident"):
        names = {path.name for path in (recorded.bundle / part).rglob("*") if path.is_file()}
        assert names >= {
            "metrics.json.gz", "traces.otlp.pb.gz", "vllm.log.gz",
            "llm-engine.yaml",
        }  # fmt: skip
        assert sum(name.endswith(".pt.trace.json.gz") for name in names) == 1
    log = gzip.decompress((recorded.bundle / "incident" / "vllm.log.gz").read_bytes()).decode()
    assert "'--max-num-seqs': '2'" in log and "'--max-num-seqs': '16'" not in log


def test_truth_change_and_configuration_agree(recorded: Recording) -> None:
    truth = tomllib.loads((recorded.bundle / "truth.toml").read_text())
    assert (truth["cause"], truth["class"], truth["source"]) == ("tiny_batch", "config", "vllm")
    assert truth["injected_start_ns"] < truth["start_ns"] < truth["end_ns"]
    lines = (recorded.bundle / "incident" / "changes.jsonl").read_text().splitlines()
    changes = {change["id"]: change for change in map(json.loads, lines)}
    assert len(changes) == 4
    change = changes[truth["change"]]
    assert (change["before"], change["after"]) == ("--max-num-seqs=16", "--max-num-seqs=2")
    for part, seats in (("baseline", 16), ("incident", 2)):
        text = (recorded.bundle / part / "config" / "llm-engine.yaml").read_text()
        container = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]
        assert f"--max-num-seqs={seats}" in container["args"]


def test_a_restart_shows_in_the_scrapes(recorded: Recording) -> None:
    truth = tomllib.loads((recorded.bundle / "truth.toml").read_text())
    metrics = _metrics(recorded.bundle / "incident")
    (up,) = metrics["up"]
    assert up["metric"]["job"] == "vllm"
    times = [at * SECOND for at, _ in up["values"]]
    assert times[0] < truth["injected_start_ns"] and times[-1] > truth["start_ns"]
    assert {value for _, value in up["values"]} <= {"0", "1"}
    assert not [name for name in metrics if name.endswith("_created")]
    waiting = [float(value) for _, value in metrics["vllm:num_requests_waiting"][0]["values"]]
    assert max(waiting) >= 0
    assert "http_server_request_duration_seconds_bucket" in metrics


def test_spans_of_both_sides_meet(recorded: Recording, tmp_path: Path) -> None:
    with read([recorded.bundle / "incident"]) as case:
        formats = {row[0] for row in case.rows("SELECT format FROM source")}
        assert {"otlp_proto", "prometheus_json", "torch_profiler"} <= formats
        (asked, served) = case.rows(
            "SELECT count(*), count(child.span_id) FROM span AS parent LEFT JOIN span AS child"
            " ON child.parent_id = parent.span_id AND child.name = 'llm_request'"
            " WHERE parent.name = 'upstream llm-engine'"
        )[0]
        assert asked > 8
        assert served >= asked - 3  # whose spans came after the end


def test_nothing_is_left_running(recorded: Recording) -> None:
    assert _leftovers(recorded.folder) == []


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_recorder_that_is_ended_ends_its_engine(
    sent: signal.Signals, program: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from rca.models.vllm_faults import Service;"
        "from rca.models.vllm_record import record;"
        "record('healthy', Path(sys.argv[1]) / 'b', program=Path(sys.argv[2]),"
        " healthy=Service().with_environment(FAKE_CHILD=Path(sys.argv[1]) / 'children'))"
    )
    recorder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(program)])
    until = time.monotonic() + 60
    while not (tmp_path / "children").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    recorder.send_signal(sent)
    assert recorder.wait(30) != 0
    assert _leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("how", "said"),
    [("dies", "ended by itself .exit code 1.; its log says: ValueError: no available memory"),
     ("silent", "was not ready within 1 s")],
)  # fmt: skip
def test_an_engine_that_does_not_start(
    how: str, said: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "START_TIMEOUT_S", 1.0 if how == "silent" else 60.0)
    service = _service(tmp_path, FAKE_VLLM=how)
    with pytest.raises(EngineError, match=said):
        record("healthy", tmp_path / "b", program=program, healthy=service, pauses=NO_PAUSES)
    assert _leftovers(tmp_path) == []
    assert not (tmp_path / "b").exists()


def test_an_engine_too_busy_for_its_profiler_is_recorded_without(
    program: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    out = record(
        "context_inflation", tmp_path / "b", program=program, lengths=SHORT, pauses=NO_PAUSES,
        healthy=_service(tmp_path, FAKE_VLLM="busy"), progress=said.append,
    )  # fmt: skip
    assert [line for line in said if line.startswith("no profile: vLLM answers /start_profile")]
    assert list(out.rglob("*.pt.trace.json.gz")) == []
    assert (out / "incident" / "metrics.json.gz").exists()
    assert (out / "truth.toml").exists()


def test_what_cannot_be_recorded(program: Path, tmp_path: Path) -> None:
    with pytest.raises(CauseError, match="not given collective_straggler; one of: healthy, kv"):
        record("collective_straggler", tmp_path / "b", program=program)
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match="not empty"):
        record("healthy", tmp_path, program=program)


def test_without_vllm_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop(vllm_server.VARIABLE, None)
    command = [sys.executable, "-m", "rca.cli", "reproduce", "healthy", "--engine", "vllm"]
    command += ["--out", str(tmp_path / "b")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("rca: vLLM is not here; in a venv of its own: pip install")
    assert done.stderr.count("\n") == 1
    with pytest.raises(EngineError, match="no/such: is not a program"):
        vllm_server.find("no/such")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.cause)
def test_a_dose_changes_what_the_fault_is_about(fault: Any) -> None:
    healthy = Service()
    assert fault.service(healthy, 0.0) == healthy
    assert fault.service(healthy, 1.0) != healthy
    assert fault.service(healthy, 0.5) != fault.service(healthy, 1.5)
    flags = {name for name, text in fault.service(healthy, 1.0).arguments.items()
             if healthy.arguments.get(name) != text}  # fmt: skip
    assert bool(flags) == (fault.cause_class == "config" and fault.change is None)


def test_the_strongest_doses_still_start() -> None:
    """vLLM refuses a pool without room for one long request, and a budget below the seats."""
    for dose in (1.0, 10.0, 1000.0):
        flags = VLLM_FAULTS["kv_pool_too_small"].service(Service(), dose).flags
        blocks = int(flags["--num-gpu-blocks-override"])
        assert blocks * int(flags["--block-size"]) > int(flags["--max-model-len"])
        flags = VLLM_FAULTS["chunk_too_small"].service(Service(), dose).flags
        assert int(flags["--max-num-batched-tokens"]) >= int(flags["--max-num-seqs"])
        assert (
            int(VLLM_FAULTS["tiny_batch"].service(Service(), dose).flags["--max-num-seqs"]) >= 1
        )


def test_the_model_knows_each_word_of_a_prompt(tmp_path: Path) -> None:
    write_model(tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    longest = max(_requests(Service(), 60), key=lambda arrival: len(arrival.prompt))
    assert all(word in vocabulary for word in words(longest.prompt).split())
    assert len(words(longest.prompt).split()) == len(longest.prompt)
    # vLLM refuses what is longer than --max-model-len.
    longest_tokens = len(longest.prompt) + longest.output_tokens
    assert longest_tokens < int(Service().flags["--max-model-len"])


def _requests(service: Service, seconds: int) -> list[Arrival]:
    return list(arrivals(service.traffic, 5, 0, seconds * SECOND))


def test_schemas_are_each_another_one() -> None:
    service = VLLM_FAULTS["structured_output_compile"].service(Service(), 1.0)
    sent = [body(arrival, service) for arrival in _requests(service, 60)]
    schemas = [json.dumps(b["structured_outputs"]) for b in sent if "structured_outputs" in b]
    assert 0.15 < len(schemas) / len(sent) < 0.45
    assert len(set(schemas)) == len(schemas)
    assert not any("structured_outputs" in body(a, Service()) for a in _requests(Service(), 60))


def test_samples_of_an_exposition() -> None:
    text = '# HELP a b\na{x="1 } 2"} 3.0\nb_created{x="1"} 4\n\nnot a sample\nc 1e3\n'
    assert list(samples(text)) == [('a{x="1 } 2"}', "3.0"), ("c", "1e3")]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this system has no /proc")
def test_the_node_tells_of_each_processor() -> None:
    lines = list(node_lines())
    seconds = [value for name, _, value in lines if name == "node_cpu_seconds_total"]
    assert len(seconds) >= 8 and all(value >= 0 for value in seconds)
    assert {"node_context_switches_total", "node_load1"} <= {name for name, _, _ in lines}


def test_the_receiver_keeps_what_it_can_and_refuses_the_rest(tmp_path: Path) -> None:
    def send(data: bytes, **headers: str) -> int:
        asked = urllib.request.Request(receiver.endpoint, data, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with receiving() as receiver:
        assert send(b"\x0a\x01a") == 200
        assert send(gzip.compress(b"\x0a\x01b"), **{"content-encoding": "gzip"}) == 200
        assert send(b"no gzip", **{"content-encoding": "gzip"}) == 400
        assert send(b"x", **{"content-length": "999999999"}) == 413
    assert [export.body for export in receiver.exports] == [b"\x0a\x01a", b"\x0a\x01b"]
    receiver.write(tmp_path / "spans", 0, time.time_ns())
    assert (
        gzip.decompress((tmp_path / "spans").read_bytes())
        == b"\0\0\0\x03\x0a\x01a\0\0\0\x03\x0a\x01b"
    )


@pytest.mark.slow
def test_a_real_vllm_is_recorded(tmp_path: Path) -> None:
    if not os.environ.get(vllm_server.VARIABLE):
        pytest.skip(f"{vllm_server.VARIABLE} names no vllm program")
    lengths = Lengths(baseline_s=15, lead_in_s=15, fault_s=15, scrape_s=2, profiled_steps=8)
    out = record("kv_pool_too_small", tmp_path / "b", lengths=lengths)
    for part, blocks in (("baseline", "768"), ("incident", "66")):
        with read([out / part]) as case:
            assert _count(case, "name = 'llm_request'") > 10
            assert case.scalar("SELECT count(*) FROM cpu_op") > 100
        info = _metrics(out / part)["vllm:cache_config_info"]
        assert blocks in {series["metric"]["num_gpu_blocks"] for series in info}


def _count(case: Case, condition: str) -> int:
    return int(case.scalar(f"SELECT count(*) FROM span WHERE {condition}"))
