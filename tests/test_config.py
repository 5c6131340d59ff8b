"""Configuration: Kubernetes objects, Compose, environment files, command lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rca.case import Case
from rca.errors import BundleError
from rca.parsers import config_yaml
from rca.parsers.config_rows import flags, words_of

Read = Callable[..., Case]

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llm-engine
spec:
  replicas: 2
  template:
    spec:
      nodeName: node-a
      containers:
        - name: vllm
          image: vllm:0.32.0
          command: ["vllm", "serve", "tiny-llama"]
          args:
            - "--max-num-seqs=16"
            - --block-size
            - "32"
            - "--enforce-eager"
          env:
            - {name: VLLM_CPU_KVCACHE_SPACE, value: "1"}
            - {name: HF_TOKEN, value: "hf_secret"}
          resources:
            limits: {cpu: "2", memory: 4Gi, nvidia.com/gpu: 1}
        - name: sidecar
          image: envoy:1
          command: ["/bin/sh", "-c", "envoy --concurrency 2 --log-level info"]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gateway}
data:
  policy: least_request
  limits.yaml: |
    rate:
      acme: 40
"""


def _config(case: Case) -> dict[tuple[str, str], str | None]:
    return {(s, k): v for s, k, v in case.rows("SELECT subject, key, value FROM config")}


def test_kubernetes(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(_DEPLOYMENT, encoding="utf-8")
    case = read_files(path)
    engine, sidecar = "Deployment/llm-engine", "Deployment/llm-engine/sidecar"
    assert _config(case) == {
        (engine, "replicas"): "2",
        (engine, "nodeName"): "node-a",
        (engine, "image"): "vllm:0.32.0",
        (engine, "max_num_seqs"): "16",
        (engine, "block_size"): "32",
        (engine, "enforce_eager"): "true",
        (engine, "VLLM_CPU_KVCACHE_SPACE"): "1",
        (engine, "HF_TOKEN"): "<hidden>",
        (engine, "resources.limits.cpu"): "2",
        (engine, "resources.limits.memory"): "4Gi",
        (engine, "resources.limits.nvidia.com/gpu"): "1",
        (sidecar, "image"): "envoy:1",
        (sidecar, "concurrency"): "2",
        (sidecar, "log_level"): "info",
        ("ConfigMap/gateway", "policy"): "least_request",
        ("ConfigMap/gateway", "limits.yaml.rate.acme"): "40",
    }
    assert case.rows("SELECT kind, format, status FROM source") == [
        ("config", "config_yaml", "ok")
    ]


def test_kubernetes_as_json(tmp_path: Path, read_files: Read) -> None:
    import json

    import yaml

    items = list(yaml.safe_load_all(_DEPLOYMENT))
    path = tmp_path / "all.json"
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8"
    )
    assert _config(read_files(path))[("Deployment/llm-engine", "max_num_seqs")] == "16"


def test_compose_and_plain_yaml(tmp_path: Path, read_files: Read) -> None:
    compose = tmp_path / "compose.yaml"
    compose.write_text(
        "services:\n  engine:\n    image: vllm\n    command: serve m --max-num-seqs 8\n"
        "    environment: [A=1, B=x=y]\n    deploy: {replicas: 3}\n",
        encoding="utf-8",
    )
    plain = tmp_path / "engine.yml"
    plain.write_text(
        "# vLLM\nmax-num-seqs: 8\nenforce_eager: true\ncompilation: {level: 3}\n",
        encoding="utf-8",
    )
    case = read_files(compose, plain)
    assert _config(case) == {
        ("service/engine", "image"): "vllm",
        ("service/engine", "max_num_seqs"): "8",
        ("service/engine", "A"): "1",
        ("service/engine", "B"): "x=y",
        ("service/engine", "deploy.replicas"): "3",
        ("engine", "max_num_seqs"): "8",
        ("engine", "enforce_eager"): "true",
        ("engine", "compilation.level"): "3",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# env\nexport A=1\nB='two words' # why\nEMPTY=\nAPI_KEY=abc\n",
         {"A": "1", "B": "two words", "EMPTY": "", "API_KEY": "<hidden>"}),
        ("vllm serve tiny \\\n  --max-num-seqs 16 \\\n  --enforce-eager --dtype=bfloat16\n",
         {"max_num_seqs": "16", "enforce_eager": "true", "dtype": "bfloat16"}),
        ("--max-num-seqs=16\n--stop-tokens a b\n", {"max_num_seqs": "16", "stop_tokens": "a b"}),
    ],
)  # fmt: skip
def test_text(text: str, expected: dict[str, str], tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "engine.env"
    path.write_text(text, encoding="utf-8")
    assert _config(read_files(path)) == {("engine", k): v for k, v in expected.items()}


def test_alias_bombs_are_refused(tmp_path: Path, read_files: Read) -> None:
    rows = ["a0: &a0 [x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    ]
    merges = ["b0: &b0 {k: v}"] + [
        f"b{i}: &b{i} {{<<: [{', '.join([f'*b{i - 1}'] * 9)}]}}" for i in range(1, 12)
    ]
    for name, lines in (
        ("list.yaml", rows),
        ("merge.yaml", merges),
        ("loop.yaml", ["a: &a", "  b: *a"]),
    ):
        path = tmp_path / name
        path.write_text("\n".join(lines), encoding="utf-8")
        with pytest.raises(BundleError):
            read_files(path)


def test_yaml_inside_a_config_map_is_trusted_no_more(tmp_path: Path, read_files: Read) -> None:
    bomb = ["a0: &a0 [x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    ]
    inner = {"bomb": bomb, "loop": ["a: &a", "  b: *a"], "day": ["a: 2026-13-45", "b: 1"]}
    data = "\n".join(
        f"  {name}: |\n" + "\n".join(f"    {line}" for line in lines)
        for name, lines in inner.items()
    )
    path = tmp_path / "map.yaml"
    path.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n{data}\n")
    shown = _config(read_files(path))
    assert {k: v.strip() for (_, k), v in shown.items() if v} == {
        name: "\n".join(lines) for name, lines in inner.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: x, env: 5}]}\n",
        "services: {a: {image: x, environment: {1: 2, null: 3}}}\n",
    ],
)
def test_odd_environments_cost_no_other_setting(
    text: str, tmp_path: Path, read_files: Read
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    assert "x" in _config(read_files(path)).values()


def test_nesting_without_end_is_refused(
    tmp_path: Path, read_files: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer Pythons decode JSON far deeper than they walk through it."""
    endless: dict[str, object] = {}
    endless["a"] = endless
    monkeypatch.setattr("rca.parsers.config_yaml.parse", lambda *_: [endless])
    path = tmp_path / "deep.yaml"
    path.write_text("max_size: 1\nmin_size: 2\n")
    monkeypatch.setattr("rca.ingest.recognise", lambda _: config_yaml.FORMAT)
    with pytest.raises(BundleError, match=r"deep\.yaml: is nested too deeply"):
        read_files(path)


def test_python_tags_are_refused(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text("a: !!python/object/apply:os.system ['true']\nb: 1\n", encoding="utf-8")
    with pytest.raises(BundleError):
        read_files(path)


@pytest.mark.parametrize(
    "prose",
    [
        "The engine became slow.\nWe looked at it.\n",
        "Summary: the engine became very slow after lunch\nCause: nobody knows what it was\n",
        "TODO: look at the KV cache and find out\n",
        "# Title\n\nSome *markdown* text: with a colon.\n",
        "- one\n- two\n",
    ],
)
def test_prose_is_no_configuration(prose: str, tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(prose, encoding="utf-8")
    with pytest.raises(BundleError):
        read_files(path)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["--a=b", "--c-d", "e", "-x"], {"a": "b", "c_d": "e", "x": "true"}),
        ("serve --json '{\"k\": [1, 2]}' --neg -1", {"json": '{"k": [1, 2]}', "neg": "-1"}),
        (["sh", "-c", "run --a 1"], {"a": "1"}),
        (["/bin/bash", "-lc", "exec run \\\n --a 1"], {"a": "1"}),
        (["--flag=x=y"], {"flag": "x=y"}),
        (None, {}),
    ],
)
def test_flags(command: object, expected: dict[str, str]) -> None:
    assert dict(flags(words_of(command))) == expected


def test_triton(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(
        'name: "llm"\nbackend: "vllm"\nmax_batch_size: 8  # requests\n'
        "instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] }, { count: 2 kind: KIND_CPU } ]\n"
        "dynamic_batching { max_queue_delay_microseconds: 100 }\n"
        'parameters { key: "gpu_memory" value: { string_value: "0.5" } }\n'
        'parameters: { key: "mode" value: { string_value: "a b" } }\n',
        encoding="utf-8",
    )
    assert _config(read_files(path)) == {
        ("model/llm", key): value
        for key, value in {
            "name": "llm", "backend": "vllm", "max_batch_size": "8",
            "instance_group.count": "1", "instance_group.kind": "KIND_GPU", "instance_group.gpus": "0",
            "instance_group.1.count": "2", "instance_group.1.kind": "KIND_CPU",
            "dynamic_batching.max_queue_delay_microseconds": "100",
            "parameters.gpu_memory": "0.5", "parameters.mode": "a b",
        }.items()
    }  # fmt: skip
