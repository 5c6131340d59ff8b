"""`rca collect`: a script that sh takes, that only reads, and whose files rca reads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from revisions_builder import replica_sets

from rca import collect, pipeline, roles
from rca.errors import RcaError

START, END = "2026-01-31T02:00:00Z", "2026-01-31T02:30:00Z"
START_S = 1_769_824_800

_KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *"get replicasets"*) printf '%s' "$REVISIONS" ;;
  *"-o yaml"*) printf 'apiVersion: apps/v1\\nkind: Deployment\\nmetadata:\\n  name: vllm\\nspec:\\n  template:\\n    spec:\\n      containers:\\n      - name: vllm\\n        args: [--max-num-seqs=8]\\n' ;;
  *"get events"*) exit 1 ;;
  *"get pods"*) echo pod/vllm-a ;;
  *"--previous=true"*) exit 1 ;;
  *logs*) echo "2026-01-31T02:05:00.000000000Z WARNING queue is full"; echo "2026-01-31T02:45:00.000000000Z INFO later" ;;
esac
"""  # fmt: skip


_ROLLOUTS = [
    (4, "2026-01-31T01:01:00Z", "vllm:0.8", ["--max-num-seqs=64"]),
    (5, "2026-01-31T02:01:00Z", "vllm:0.8", ["--max-num-seqs", "8"]),
]


def asked(**changes: object) -> collect.Request:
    wanted = {"prometheus": "http://p:9090", "jaeger": "http://j:16686", **changes}
    return collect.request("vllm", "chat", START, END, **wanted)  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """Prometheus and Jaeger in one: its address, and what it was asked."""
    calls: list[tuple[str, dict[str, list[str]]]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            calls.append((parts.path, query))
            body = json.dumps(_answer(parts.path, query)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", calls
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def _answer(path: str, query: dict[str, list[str]]) -> object:
    start = int(query["start"][0])
    if path == "/api/v1/query_range":
        names = re.search(r'__name__=~"([^"]*)"', query["query"][0])
        assert names
        known = (
            "vllm:num_requests_waiting",
            "up",
            "DCGM_FI_DEV_GPU_UTIL",
            "kube_pod_status_ready",
        )
        result = [
            {"metric": {"__name__": name}, "values": [[start, "1"], [start + 15, "2"]]}
            for name in known
            if re.fullmatch(names[1].replace("\\\\", "\\"), name)
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}
    span = {
        "traceID": f"{start:032x}", "spanID": f"{start % 2**60:016x}", "operationName": "llm_request",
        "references": [], "startTime": start, "duration": 1000, "tags": [], "logs": [], "processID": "p1",
    }  # fmt: skip
    trace = {"traceID": span["traceID"], "spans": [span], "processes": {"p1": {"serviceName": query["service"][0], "tags": []}}}  # fmt: skip
    return {"data": [trace]}


def sh(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = folder / "collect.sh"
    path.write_text(script)
    return subprocess.run(
        ["sh", str(path)], cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **variables},
    )  # fmt: skip


def test_the_script_makes_a_bundle_that_rca_reads(
    server: tuple[str, list[tuple[str, dict[str, list[str]]]]], tmp_path: Path
) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is not here")
    address, calls = server
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").write_text(_KUBECTL)
    (programs / "kubectl").chmod(0o755)
    script = collect.script(asked(prometheus=address, jaeger=address, out="b"))
    done = sh(
        script, tmp_path, PATH=f"{programs}:{os.environ['PATH']}", CALLS=str(tmp_path / "calls"),
        HOME=str(tmp_path), REVISIONS=json.dumps(replica_sets("vllm", _ROLLOUTS)),
    )  # fmt: skip
    assert "not collected: incident/events.json" in done.stderr
    assert done.returncode == 1
    metrics = [q for path, q in calls if path == "/api/v1/query_range"]
    assert {int(q["start"][0]) for q in metrics} == {START_S, START_S - 86_400}
    assert {q["step"][0] for q in metrics} == {"15"}
    with pipeline.read([tmp_path / "b"]) as case:
        told = case.rows(
            "SELECT part, kind, status, count(*) FROM source GROUP BY ALL ORDER BY ALL"
        )
        assert {(part, kind) for part, kind, _, _ in told} == {
            ("baseline", "metrics"), ("baseline", "trace"), ("incident", "metrics"),
            ("incident", "trace"), ("incident", "change"), ("incident", "config"), ("incident", "log"),
        }  # fmt: skip
        assert {status for _, _, status, _ in told} == {"ok"}
        assert case.rows("SELECT count(DISTINCT name) FROM series") == [(4,)]
        assert case.rows("SELECT count(*) FROM span") == [(12,)]
        assert case.rows("SELECT message FROM log") == [("queue is full",)]
        assert case.rows("SELECT subject, before, after FROM change ORDER BY ts_ns") == [
            ("deployment/vllm", None, "image: vllm:0.8"),
            ("deployment/vllm", "max_num_seqs: 64", "max_num_seqs: 8"),
        ]
        assert case.rows("SELECT value FROM config WHERE key = 'max_num_seqs'") == [("8",)]
    verbs = {line.split()[2] for line in (tmp_path / "calls").read_text().splitlines()}
    assert verbs == {
        "get",
        "logs",
    }


def test_every_metric_of_the_roles_is_asked_for() -> None:
    patterns = collect.metric_patterns()
    endings = {
        "gauge": [""], "gnum": [""], "gden": [""], "bits": [""], "rate": ["_total"],
        "num": ["_total"], "den": ["_total"], "histogram": ["_sum", "_count"], "count": ["_count"],
    }  # fmt: skip
    for metric, how, _ in roles.metrics():
        for ending in endings[how]:
            name = metric.removesuffix("_total") if ending == "_total" else metric
            assert re.fullmatch(patterns[metric], name + ending), (metric, how)
    waiting = patterns["vllm_num_requests_waiting"]
    for name in ("vllm:num_requests_waiting", "vllm_num_requests_waiting", "ray_vllm_num_requests_waiting"):  # fmt: skip
        assert re.fullmatch(waiting, name)
    assert "bucket" in patterns["vllm_e2e_request_latency_seconds"]
    assert "bucket" not in patterns["vllm_request_queue_time_seconds"]


@pytest.mark.parametrize("engine", list(collect.ENGINES))
def test_an_engine_is_asked_for_its_own_metrics_only(engine: str) -> None:
    step = collect.plan(asked(engines=[engine]))[0]
    others = [p for e, prefixes in collect.ENGINES.items() if e != engine for p in prefixes]
    names = step.commands[0].split('"')[1].replace("(ray_)?", "").split("|")
    assert names
    told = [n for n in names if n.startswith(tuple(others)) and "vllm|sglang" not in n]
    assert told == []


def test_long_spans_stay_below_the_servers_limit() -> None:
    wanted = collect.request(
        "s", "n", "0", str(11 * 86_400), prometheus="http://p", step_s=15, baseline=False
    )
    (step, *_) = collect.plan(wanted)
    ranges = [tuple(map(int, re.findall(r"(?:start|end)=(\d+)", c))) for c in step.commands[1:]]
    assert len(ranges) == 6
    assert all((end - start) // 15 + 1 <= 11_000 for start, end in ranges)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 11 * 86_400
    assert all(b[0] == a[1] + 15 for a, b in pairwise(ranges))


HOSTILE = "x'; touch pwned; '\n$(touch pwned) `touch pwned` \"\\"


def test_hostile_names_stay_arguments(tmp_path: Path) -> None:
    wanted = collect.request(
        HOSTILE, HOSTILE, START, END, prometheus="http://127.0.0.1:9/$(touch pwned)", jaeger="http://127.0.0.1:9",
        pods=HOSTILE, matcher=f'a="{HOSTILE}"', out=HOSTILE,
    )  # fmt: skip
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("mkdir", "basename", "awk", "rm", "rmdir"):
        (bare / name).symlink_to(shutil.which(name) or name)
    (bare / "curl").write_text("#!/bin/sh\nexit 7\n")
    (bare / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    for name in ("curl", "kubectl"):
        (bare / name).chmod(0o755)
    (bare / "sh").symlink_to("/bin/sh")
    done = sh(collect.script(wanted), tmp_path, PATH=str(bare))
    assert done.returncode == 1
    assert not [p for p in tmp_path.rglob("*") if p.name == "pwned"]
    assert "syntax" not in done.stderr.lower()


def test_each_step_says_its_cost_and_its_private_data() -> None:
    script = collect.script(asked())
    steps = collect.plan(asked())
    assert script.count("#   Costs: ") == script.count("#   Private: ") == len(steps) == 9
    assert "metrics" not in collect.script(asked(prometheus=None)).split("mkdir", 1)[1]
    assert "traces-" not in collect.script(asked(jaeger=None))
    assert "baseline/metrics" not in collect.script(asked(baseline=False))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prometheus": "p:9090"}, "no http address"),
        ({"jaeger": "http://me:secret@j"}, "holds a login"),
        ({"engines": ["vlm"]}, "is no engine"),
    ],
)
def test_what_cannot_be_asked_for_is_said(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(RcaError, match=problem) as told:
        asked(**changes)
    assert "secret" not in str(told.value)


def test_the_command(tmp_path: Path) -> None:
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "rca.cli",
            "collect",
            "--service",
            "s",
            "--namespace",
            "n",
        ]
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, check=False, timeout=60
        )

    done = run("--start", START, "--end", END, "--prometheus", "http://p")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "c.sh"
    path.write_text(done.stdout)
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
    steps = json.loads(run("--start", START, "--end", END, "--json").stdout)
    assert set(steps[0]) == set(collect.Step._fields)
    for wrong in (("--start", END, "--end", START), ("--start", "now", "--end", END)):
        done = run(*wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
