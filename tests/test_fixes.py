"""Proposals: the right revision, gates that hold, files that are safe to read and to run."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rca.case import Case
from rca.catalogue import load
from rca.fixes import code, gates, propose, write_files
from rca.fixes.facts import Change, Facts, Workload, revisions, workload
from rca.parsers.config_rows import flags, words_of
from rca.pipeline import Options, analyze

SAMPLES = Path(__file__).parent.parent / "sample_traces"
NO_TRIAL = Options(trial_budget_s=None)
CHANGE = Change("chg-1", "deploy", "deployment/llm-engine", "image: a:1", "image: a:2", 0, {})


def facts(cause: str = "logits_processor_leak", **changed: Any) -> Facts:
    found: dict[str, Any] = {
        "cause": load()[cause], "confidence": 0.9, "score": 0.8, "guarded": True,
        "explained_share": 0.7, "change": CHANGE, "lag_ns": 2_000_000_000, "blame": 0.9, "trial": "validated",
        "slow": (),
    }  # fmt: skip
    found |= changed
    return Facts(**found)


@pytest.mark.parametrize(
    ("changed", "passes", "said"),
    [
        ({}, True, "reaches 0.87"),
        ({"trial": "not_reproducible_on_device"}, True, "(not_reproducible_on_device)"),
        ({"trial": "not_run"}, True, "not_run"),
        ({"cause": "kv_pool_too_small"}, True, "class config can be undone"),
        ({"blame": 0.869}, False, "is below 0.87"),
        ({"blame": 0.95, "confidence": 0.6}, True, "0.95 that it is to blame (0.60 for"),
        ({"blame": 0.95, "confidence": 0.49}, False, "the cause itself is below 0.5"),
        ({"guarded": False}, False, "not both explained"),
        ({"trial": "refuted"}, False, "(refuted) speaks against it"),
        ({"trial": "ambiguous"}, False, "(ambiguous) speaks against it"),
        ({"cause": "overload"}, False, "class traffic-spike cannot be undone"),
        ({"cause": "dependency_slow"}, False, "class dependency cannot be undone"),
        ({"change": None, "lag_ns": None}, False, "no change matches"),
        ({"change": CHANGE._replace(kind="restart")}, False, "kind restart"),
        ({"change": CHANGE._replace(kind="scale")}, False, "kind scale"),
        ({"lag_ns": -60_000_000_000}, False, "1 min after the window began"),
    ],
)
def test_the_gate_of_a_rollback(changed: dict[str, Any], passes: bool, said: str) -> None:
    gate = gates.rollback(facts(**changed))
    assert gate.passed is passes
    assert said in gate.words


def test_a_slow_service_is_what_is_to_be_mended_not_the_name_of_the_cause() -> None:
    assert facts("dependency_slow", slow=("retrieval", "auth")).subject == "retrieval"
    assert facts("dependency_slow").subject == "dependency_slow"
    assert facts("kv_pool_too_small", slow=("retrieval",)).subject == "kv_pool_too_small"


def test_the_strict_rule_is_told_beside_ours() -> None:
    assert "passes it too" in gates.strict(facts())
    assert "holds it back: class config" in gates.strict(facts("kv_pool_too_small"))
    assert "holds it back too" in gates.strict(facts(blame=0.5))


@pytest.mark.parametrize(
    ("changed", "passes"),
    [
        ({"change": None}, True),
        ({"change": CHANGE._replace(subject="deployment/retrieval")}, True),
        ({}, False),  # a change of our own fits
        ({"change": None, "confidence": 0.919}, False),
        ({"change": None, "trial": "refuted"}, False),
        ({"change": None, "cause": "overload"}, False),
    ],
)
def test_the_gate_of_a_circuit_breaker(changed: dict[str, Any], passes: bool) -> None:
    found = {"confidence": 0.93, "slow": ("retrieval",), **changed}
    assert gates.circuit_break(facts(**{"cause": "dependency_slow", **found})).passed is passes


@pytest.fixture
def case() -> Any:
    with Case.create() as made:
        yield made


def record(case: Case, **fields: Any) -> Change:
    before, after = fields.pop("before", None), fields.pop("after", None)
    return CHANGE._replace(before=before, after=after, details=fields)


ENGINE = Workload("deployment", "llm-engine", "llm")


@pytest.mark.parametrize(
    ("fields", "changed", "before"),
    [
        ({"revision": 41}, 41, 40),
        ({"revision": "41", "previous_revision": "38"}, 41, 38),
        ({"details": {"rev": 7}}, 7, 6),
        ({"after": "image: a:2 (rev 12)", "before": "rev 11"}, 12, 11),
        ({"revision": 1}, 1, None),  # nothing was before the first
        ({"after": "--model-revision=14"}, None, None),  # not a rollout's
        ({"after": "--revision 14"}, None, None),
        ({"after": "revision: r15"}, None, None),
        ({"revision": "41; reboot"}, None, None),
        ({}, None, None),
    ],
)
def test_revisions_of_a_change(
    case: Case, fields: dict[str, Any], changed: int | None, before: int | None
) -> None:
    found = revisions(case, record(case, **fields), ENGINE)
    assert (found.changed, found.before) == (changed, before)


MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llm-engine
  namespace: {namespace}
  annotations:
    deployment.kubernetes.io/revision: "{revision}"
spec:
  replicas: 2
  template:
    spec:
      containers:
        - {{name: llm-engine, image: "e:1", args: ["--max-num-seqs=16"]}}
"""


def bundle(folder: Path, **sides: str) -> list[Path]:
    for side, text in sides.items():
        file = folder / side / "config" / "engine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return [folder]


def test_revisions_are_read_from_the_manifests(tmp_path: Path) -> None:
    from rca.pipeline import read

    paths = bundle(
        tmp_path,
        incident=MANIFEST.format(namespace="llm", revision=9),
        baseline=MANIFEST.format(namespace="llm", revision=6),
    )
    with read(paths) as case:
        found = workload(case, "deployment/llm-engine")
        assert found == ENGINE
        assert revisions(case, CHANGE, ENGINE)[:2] == (9, 6)


@pytest.mark.parametrize(
    "subject",
    ["deployment/a; reboot", "deployment/$(reboot)", "deployment/-rf", "flag/x", "pod/a"],
)
def test_only_names_of_workloads_reach_a_command(case: Case, subject: str) -> None:
    assert workload(case, subject) is None


def test_namespaces_that_are_no_names_are_left_out(tmp_path: Path) -> None:
    from rca.pipeline import read

    paths = bundle(tmp_path, incident=MANIFEST.format(namespace='"a; reboot"', revision=9))
    with read(paths) as case:
        assert workload(case, "deployment/llm-engine") == ENGINE._replace(namespace=None)


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every faulted sample with its proposals written out."""
    found = {}
    for name in ("01_logits_processor_leak", "02_kv_pool_too_small", "05_dependency_slow", "06_overload", "08_tiny_batch"):  # fmt: skip
        out = tmp_path_factory.mktemp(name)
        with analyze([SAMPLES / name], options=NO_TRIAL) as case:
            write_files(case, out)
            found[name] = (case.verdict, out / "fixes")
    return found


def test_the_revision_of_a_rollback_is_the_one_before(proposed: dict[str, Any]) -> None:
    seen = 0
    for name, (verdict, folder) in proposed.items():
        truth = tomllib.loads((SAMPLES / name / "truth.toml").read_text())
        rollbacks = [f for f in verdict["fixes"] if f["kind"] == "rollback"]
        if truth["class"] not in ("config", "code-regression"):
            assert rollbacks == []
        if not rollbacks:
            continue
        (rollback,) = rollbacks
        seen += 1
        assert rollback["change"] == truth["change"]
        assert f"\nrevision={truth['revision']}\n" in (folder / rollback["file"]).read_text()
        undo = (folder / rollback["undo"]).read_text()
        assert f"\nrevision={truth['revision'] + 1}\n" in undo
        assert "strict rule" in rollback["strict"]
        assert rollback["confidence"] >= 0.87
    assert seen >= 2


def test_proposals_say_what_a_person_asks(proposed: dict[str, Any]) -> None:
    for verdict, folder in proposed.values():
        assert verdict["fixes"]
        for fix in verdict["fixes"]:
            assert fix["approver"]
            if fix["kind"] == "investigate":
                continue
            assert fix["revert_when"]
            assert fix["trial"] is None, "nothing ran"
            assert fix["explained_share"] is None or 0 <= fix["explained_share"] <= 1
            assert (fix["file"] is None) or (folder / fix["file"]).is_file()


def test_every_script_is_shell_and_every_manifest_is_yaml(proposed: dict[str, Any]) -> None:
    for _, folder in proposed.values():
        for path in folder.glob("*.sh"):
            done = subprocess.run(["sh", "-n", str(path)], capture_output=True, check=False)
            assert done.returncode == 0, done.stderr
        for path in folder.glob("*.yaml"):
            assert all(d["kind"] for d in yaml.safe_load_all(path.read_text()))


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_every_patch_applies_to_the_bundle_and_can_be_undone(
    proposed: dict[str, Any], tmp_path: Path
) -> None:
    applied = 0
    for name, (_, folder) in proposed.items():
        for path in sorted(folder.glob("*-config.patch")):
            copy = tmp_path / name / path.stem
            shutil.copytree(SAMPLES / name / "incident" / "config", copy / "config")
            before = {p: p.read_bytes() for p in copy.rglob("*.yaml")}
            for patch in (path, folder / path.name.replace("config", "undo")):
                subprocess.run(
                    ["patch", "-p1", "--quiet"], input=patch.read_bytes(), cwd=copy, check=True
                )
                if patch is path:
                    assert {p: p.read_bytes() for p in copy.rglob("*.yaml")} != before
            assert {p: p.read_bytes() for p in copy.rglob("*.yaml")} == before
            applied += 1
    assert applied >= 3


def test_scripts_stop_when_the_service_was_changed_again(
    proposed: dict[str, Any], tmp_path: Path
) -> None:
    """The script runs against a kubectl that only tells its revision and notes what it is asked."""
    verdict, folder = proposed["02_kv_pool_too_small"]
    truth = tomllib.loads((SAMPLES / "02_kv_pool_too_small" / "truth.toml").read_text())
    fake = tmp_path / "kubectl"
    asked = tmp_path / "asked"
    script = folder / next(f["file"] for f in verdict["fixes"] if f["kind"] == "rollback")
    for revision, code_ in ((truth["revision"] + 1, 0), (truth["revision"] + 2, 1)):
        asked.write_text("")
        fake.write_text(
            f'#!/bin/sh\necho "$@" >> {asked}\ncase "$*" in *jsonpath*) echo {revision};; esac\n'
        )
        fake.chmod(0o755)
        done = subprocess.run(
            ["sh", str(script)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code_, done.stderr
        undone = f"rollout undo deployment/llm-engine --to-revision={truth['revision']}"
        assert (undone in asked.read_text()) is (code_ == 0)


HOSTILE = [
    "deployment/llm-engine\nreboot",
    "deployment/llm-engine`reboot`",
    "configmap/gateway'; reboot; '",
    "configmap/x",
    "flag/\u202eevil",
]


@pytest.mark.parametrize("subject", HOSTILE)
def test_names_and_values_of_a_change_are_never_commands(subject: str, tmp_path: Path) -> None:
    sample = tmp_path / "bundle"
    shutil.copytree(SAMPLES / "02_kv_pool_too_small", sample)
    file = sample / "incident" / "changes.jsonl"
    rows = [json.loads(x) for x in file.read_text().splitlines()]
    evil = (
        "gpu_memory_utilization: 0.9'; touch pwned; `touch pwned` $(touch pwned)\ntouch pwned\n"
    )
    for row in rows:
        if "gpu-memory" in row["after"]:
            row |= {"subject": subject + " llm-engine" if "engine" not in subject else subject}
            row |= {"before": evil, "after": evil.replace("0.9", "0.1")}
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    with analyze([sample], options=NO_TRIAL) as case:
        propose(case)
        written = write_files(case, tmp_path)
    fake = tmp_path / "bin" / "kubectl"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    for path in written:
        if path.suffix == ".sh":
            subprocess.run(
                ["sh", str(path), "3"], cwd=tmp_path, capture_output=True, check=False,
                env={"PATH": f"{fake.parent}:/usr/bin:/bin"},
            )  # fmt: skip
        assert "\u202e" not in path.read_text()
    assert not (tmp_path / "pwned").exists()


def test_functions_that_grew_are_pointed_at(
    read_files: Callable[..., Case], tmp_path: Path
) -> None:
    """Own time: what a function calls is not its own."""
    files = []
    for part, own_us in (("baseline", 5), ("incident", 400)):
        events = []
        at = 1000.0
        for _ in range(4):
            for name, cat, start, dur in (
                ("engine.py(10): step", "python_function", 0, 600 + own_us),
                ("sampler.py(88): sort", "python_function", 10, 20 + own_us),
                ("aten::mm", "cpu_op", 15, 10),
            ):
                events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": at + start, "dur": dur})  # fmt: skip
            at += 2000
        path = tmp_path / part / "x.pt.trace.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        files.append(path)
    from rca.pipeline import read

    with read([tmp_path]) as case:
        (first, *_) = code.find(case)
    assert first.name == "sampler.py(88): sort"
    assert first.healthy_ns == pytest.approx(15_000)
    assert first.now_ns == pytest.approx(410_000)


def test_flags_of_changes_and_of_command_lines_are_read_alike() -> None:
    from rca.patch import settings_in

    text = "--enforce-eager --max-num-seqs=16 --enable-prefix-caching"
    told = {s.key: s.value for s in settings_in(text)}
    assert told == dict(flags(words_of(text)))


def spans_of_keys(folder: Path, per_window: dict[str, list[int]]) -> Path:
    spans = [
        {
            "traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": "GET", "kind": 3,
            "startTimeUnixNano": str(10**18 + window * 10**10 + 10**9), "endTimeUnixNano": str(10**18 + window * 10**10 + 2 * 10**9),
            "attributes": [{"key": "cache.key", "value": {"stringValue": key}}],
        }
        for n, (key, window) in enumerate(
            ((key, w) for key, counts in per_window.items() for w, c in enumerate(counts) for _ in range(c)), start=1
        )
    ]  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "cache"}}]}
    path = folder / "traces.json"
    path.write_text(json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}))  # fmt: skip
    return path


def test_keys_live_as_long_as_they_are_hot(
    read_files: Callable[..., Case], tmp_path: Path
) -> None:
    from rca.fixes.heat import keys

    case = read_files(
        spans_of_keys(tmp_path, {"hot": [10, 10], "warm": [0, 5], "cooling": [10, 0]})
    )
    found = {k.name: (k.requests, round(k.heat, 3), k.ttl_s, k.weight) for k in keys(case)}
    # 0.8 x last window + 0.2 x the one before, as a share of the hottest: 10, 4 and 2.
    assert found == {
        "hot": (20, 1.0, 300, 2.5), "warm": (5, 0.4, 120, 1.0), "cooling": (10, 0.2, 30, 0.5),
    }  # fmt: skip


def test_the_scaling_score_rises_with_load(proposed: dict[str, Any]) -> None:
    verdict, folder = proposed["06_overload"]
    (scale,) = [f for f in verdict["fixes"] if f["kind"] == "scale"]
    score = float(scale["action"].split("scaling score ")[1].split(" ")[0])
    assert 0.5 < score <= 1
    script = (folder / scale["file"]).read_text()
    assert "kubectl -n llm scale deployment/llm-engine --replicas=" in script
    assert "--replicas=1\n" in (folder / scale["undo"]).read_text()
