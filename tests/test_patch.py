"""Settings in configuration files: changed alone, as a patch that applies and can be taken back."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from configs import CONFIGS, Config

from rca.case import Case
from rca.fixes.edit import Row, edited, settings
from rca.patch import diff, safe_path, settings_in

ARGS = CONFIGS["kubernetes list of flags"].text
NAMED = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def form_of(config: Config) -> str:
    if config.path.endswith(".pbtxt"):
        return "triton_config"
    return "config_text" if config.path.endswith((".sh", ".env", ".service")) else "config_yaml"


def change(config: Config) -> str | None:
    place = Row(config.subject, config.key, config.old)
    return edited(config.text, form_of(config), config.path, place, config.new)


def apply(folder: Path, patch: str) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    done = subprocess.run(
        ["patch", "-p1"], input=patch.encode(), cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


@NAMED
def test_one_setting_is_changed_and_nothing_else(config: Config) -> None:
    changed = change(config)
    assert changed is not None
    assert config.expected in changed
    before = settings(config.text, form_of(config), config.path) or []
    after = settings(changed, form_of(config), config.path) or []
    assert len(after) - len(before) == (config.old is None) - (config.new is None)
    moved = set(before) ^ set(after)
    assert {r.key for r in moved} == {config.key}


@NAMED
def test_the_patch_applies_and_its_undo_restores_every_byte(
    config: Config, tmp_path: Path
) -> None:
    changed = change(config)
    assert changed is not None
    file = tmp_path / config.path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(config.text.encode())
    apply(tmp_path, diff(config.path, config.text, changed))
    assert file.read_bytes() == changed.encode()
    if form_of(config) == "config_yaml":
        assert list(yaml.safe_load_all(file.read_text())) != list(
            yaml.safe_load_all(config.text)
        )
    apply(tmp_path, diff(config.path, changed, config.text))
    assert file.read_bytes() == config.text.encode()


@NAMED
def test_configurations_are_read_as_what_they_are(
    config: Config, tmp_path: Path, read_files: object
) -> None:
    path = tmp_path / Path(config.path).name
    path.write_bytes(config.text.encode())
    case = read_files(path)  # type: ignore[operator]
    assert isinstance(case, Case)
    assert case.rows("SELECT format, kind FROM source") == [(form_of(config), "config")]
    assert case.scalar("SELECT text FROM config_file").encode() == config.text.encode()


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("max_num_seqs", "99", "64"),  # the file says otherwise
        ("max_model_len", "1", "64"),  # the file does not say
        ("max_num_seqs", "16", "64; reboot"),  # not a value
        ("max_num_seqs", "16", "$(reboot)"),
        ("max_num_seqs", "16", "64\n- --trust-remote-code"),
        ("max_num_seqs", "16", ""),
    ],
)
def test_nothing_is_changed_where_it_is_not_certain(key: str, old: str, new: str) -> None:
    place = Row("deployment/vllm-chat", key, old)
    assert edited(ARGS, "config_yaml", "x.yaml", place, new) is None


def test_two_places_are_no_certain_place() -> None:
    twice = "args: [--max-num-seqs=1, --max-num-seqs=1]\n"
    text = f"kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - name: a\n    {twice}"
    assert edited(text, "config_yaml", "x.yaml", Row("", "max_num_seqs", "1"), "2") is None
    both = Row("", "pool_size", "4")
    many = CONFIGS["one of several documents"]
    assert edited(many.text, "config_yaml", many.path, both, "64") is None


def test_a_value_shared_through_an_anchor_is_not_changed_for_all() -> None:
    shared = CONFIGS["one user of an anchor"]
    place = Row("service/reranker", "omp_num_threads", "24")
    changed = edited(shared.text, "config_yaml", shared.path, place, "8")
    if changed is not None:
        services = yaml.safe_load(changed)["services"]
        assert services["vllm"]["environment"]["OMP_NUM_THREADS"] == "24"


def test_settings_are_read_from_the_text_of_a_change() -> None:
    assert [(s.key, s.value) for s in settings_in("--max-num-seqs 14")] == [
        ("max_num_seqs", "14")
    ]
    assert [(s.key, s.value) for s in settings_in("lb_policy: least_request")] == [
        ("lb_policy", "least_request")
    ]
    assert settings_in(None) == []


def test_lines_end_where_patch_says() -> None:
    """Form feeds and Unicode's line separators are part of a line."""
    text = "a: 1\x0c\nb: 2\u2028c\nd: 3\n"
    assert "\n-d: 3\n+d: 4\n" in diff("x.yaml", text, text.replace("3", "4"))
    assert diff("x.yaml", text, text.replace("3", "4")).count("\n") == 7


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "-rf", "a b", "a\nb", ""])
def test_paths_that_could_leave_the_folder_are_not_patched(path: str) -> None:
    assert not safe_path(path)
