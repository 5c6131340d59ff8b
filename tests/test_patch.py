"""Settings in configuration files: found, changed, and changed back byte for byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rca.patch import diff, replaced, safe_path, settings_in

KUBERNETES = """\
containers:
  - name: vllm
    args:
      - "--max-num-seqs=16"
      - --block-size
      - "32"
      - --gpu-memory-utilization=0.60
    env:
      - name: OMP_NUM_THREADS
        value: "64"
    resources:
      limits:
        cpu: 4
"""
SHELL = "vllm serve model --max-num-seqs 16 --enforce-eager --gpu-memory-utilization=0.60"


@pytest.mark.parametrize(
    ("text", "key", "old", "new", "expected"),
    [
        (KUBERNETES, "max_num_seqs", "16", "64", '"--max-num-seqs=64"'),
        (KUBERNETES, "gpu_memory_utilization", "0.60", "0.92", "--gpu-memory-utilization=0.92"),
        (KUBERNETES, "block_size", "32", "16", '- --block-size\n      - "16"'),
        (KUBERNETES, "OMP_NUM_THREADS", "64", "8", 'value: "8"'),
        (KUBERNETES, "cpu", "4", "16", "cpu: 16"),
        (SHELL, "max_num_seqs", "16", "64", "--max-num-seqs 64 --enforce-eager"),
        ("MAX_WAIT_MS=500\n", "max_wait_ms", "500", "50", "MAX_WAIT_MS=50\n"),
        (
            "lb_policy: ring_hash\n",
            "lb_policy",
            "ring_hash",
            "least_request",
            "lb_policy: least_request",
        ),
    ],
)
def test_one_place_is_changed(text: str, key: str, old: str, new: str, expected: str) -> None:
    changed = replaced(text, key, old, new)
    assert changed is not None
    assert expected in changed
    assert replaced(changed, key, new, old) == text


def test_nothing_is_changed_where_it_is_not_certain() -> None:
    assert replaced(KUBERNETES, "max_num_seqs", "99", "64") is None
    assert replaced(KUBERNETES, "max_model_len", None, "64") is None
    assert replaced("--max-num-seqs=1\n--max-num-seqs=1\n", "max_num_seqs", "1", "2") is None
    assert replaced("--max-num-seqs=16\n", "max_num_seqs", "1", "2") is None


def test_settings_are_read_from_the_text_of_a_change() -> None:
    assert [(s.key, s.value) for s in settings_in("--max-num-seqs 14")] == [
        ("max_num_seqs", "14")
    ]
    assert [(s.key, s.value) for s in settings_in("lb_policy: least_request")] == [
        ("lb_policy", "least_request")
    ]
    assert settings_in(None) == []


@pytest.mark.parametrize("text", [KUBERNETES, KUBERNETES.rstrip("\n")])
def test_the_diff_applies_and_its_undo_restores(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config" / "engine.yaml"
    file.parent.mkdir()
    file.write_text(text)
    changed = replaced(text, "max_num_seqs", "16", "64")
    assert changed is not None
    for content, wanted in (
        (diff("config/engine.yaml", text, changed), changed),
        (diff("config/engine.yaml", changed, text), text),
    ):
        subprocess.run(
            ["patch", "-p1", "--quiet"], input=content, text=True, cwd=tmp_path, check=True
        )
        assert file.read_text() == wanted


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "-rf", "a b", "a\nb", ""])
def test_paths_that_could_leave_the_folder_are_not_patched(path: str) -> None:
    assert not safe_path(path)
