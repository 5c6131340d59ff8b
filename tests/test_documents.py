"""README and docs work as printed: every shell block runs, every option is told, and no other.

Blocks run in a folder that has what they name (a case called CASE, folders BASE and CANDIDATE, ...).
Programs that need something that is not here are replaced by ones that do nothing; why is said below.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import case_builder
import pytest
import typer
from llm_server import serving, use
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from rca.cli import app

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_traces" / "03_batch_window_mismatch"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"sh", "text", "toml", "yaml", "json", "csv", "python", "sql"}

ELSEWHERE = {
    "pip": "installs from the network",
    "vllm": "serves a model on a GPU",
    "text-generation-launcher": "serves a model on a GPU",
    "tritonserver": "serves a model on a GPU",
    "trtllm-serve": "serves a model on a GPU",
    "curl": "asks a server",
    "kubectl": "asks a cluster",
    "nsys": "records a program on a GPU",
}
NOT_RUN = {
    "python scripts/twin_bundles.py": "makes dozens of bundles, which takes an hour",
    "python scripts/vllm_bundles.py": "needs vLLM and an hour",
    "python scripts/rollback_eval.py": "makes hundreds of bundles, which takes hours",
    "python -m sglang.launch_server": "serves a model on a GPU",
    "rca fleet ingest /mnt/traces": "needs a Dask cluster and an object store",
}
HEAVY = (
    "rca analyze",
    "rca compare",
    "rca eval",
    "rca judge",
    "rca fleet",
    "scripts/window_scores",
)
STAND_INS = """set -e
rca() {{ "{python}" -m rca.cli "$@"; }}
python() {{ test -f "{root}/$1"; script=$1; shift; PYTHONPATH="{root}" "{python}" "{root}/$script" "$@"; }}
make() {{ command make -n -C "{root}" "$@"; }}
sleep() {{ test ! -e slept && touch slept; }}
"""


class Block(NamedTuple):
    """A code block of a page."""

    page: Path
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
            if token.type in {"fence", "code_block"} and token.map:
                yield Block(page, token.map[0] + 1, token.info, token.content)


def shell_blocks() -> list[Any]:
    return [
        pytest.param(
            block.text,
            id=f"{block.page.name}:{block.line}",
            marks=[pytest.mark.slow] if any(words in block.text for words in HEAVY) else [],
        )
        for block in blocks()
        if block.language == "sh"
    ]


def commands() -> dict[str, Any]:
    """Every command of the tree by its words, as `fleet ingest`."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            walk(child, f"{words} {name}".strip())
        if not hasattr(command, "commands"):
            found[words] = command

    walk(typer.main.get_command(app), "")
    return found


def options(command: Any) -> set[str]:
    return {name for p in command.params for name in p.opts if name.startswith("--")}


def shown_files() -> dict[str, str]:
    """Files that pages show in full, under a line that ends in "`NAME`" or "`NAME`, ...:"."""
    said = r"`([\w.]+\.(?:toml|csv|jsonl))`[^`\n]*:\n\n```\w+\n(.*?)^```$"
    texts = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return dict(re.findall(said, texts, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "case.duckdb"
    case_builder.diagnosed(path).close()
    return path


@pytest.fixture
def desk(tmp_path: Path, case: Path) -> Path:
    """A folder with everything that the blocks name."""
    shutil.copyfile(case, tmp_path / "CASE")
    (tmp_path / "out").mkdir()
    (tmp_path / "incident" / "config").mkdir(parents=True)
    shutil.copyfile(case, tmp_path / "out" / "case.duckdb")
    for name, part in (
        ("incident-folder", "incident"), ("last-week", "baseline"), ("BASE", "baseline"),
        ("CANDIDATE", "baseline"),
    ):  # fmt: skip
        shutil.copytree(SAMPLE / part, tmp_path / name)
    shutil.copytree(SAMPLE, tmp_path / "BUNDLES" / "one")
    for bundles in ("twin", "torch"):
        shutil.copytree(SAMPLE, tmp_path / bundles / "one")
    (tmp_path / "traces").mkdir()
    for path in SAMPLE.rglob("*.pt.trace.json.gz"):
        shutil.copyfile(path, tmp_path / "traces" / path.name)
    for name, text in shown_files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "gate.toml").write_text("min_requests = 50\n[limits]\np50_ms = 60_000\n")
    return tmp_path


@pytest.mark.parametrize("text", shell_blocks())
def test_shell_blocks_run_as_printed(
    text: str, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preamble = STAND_INS.format(python=sys.executable, root=ROOT)
    stubs = desk / ".stubs"
    stubs.mkdir()
    for name in ELSEWHERE:
        (stubs / name).write_text("#!/bin/sh\n")
        (stubs / name).chmod(0o755)
    for command in NOT_RUN:
        text = re.sub(rf"^{re.escape(command)}\b", f": {command}", text, flags=re.MULTILINE)
    with serving() as server:
        use(server, monkeypatch)
        text = re.sub(r"(OPENAI_BASE_URL)=\S+", rf"\1={server.url}", text)
        done = subprocess.run(
            ["sh", "-c", preamble + text], cwd=desk, capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{stubs}:{os.environ['PATH']}"},
        )  # fmt: skip
    assert done.returncode == 0, (text, done.stdout[-500:], done.stderr[-2000:])
    assert "Traceback" not in done.stderr


def test_blocks_name_their_language_and_programs_are_known() -> None:
    found = list(blocks())
    assert {b.language for b in found} <= LANGUAGES
    text = "\n".join(b.text for b in found if b.language == "sh").replace("\\\n", " ")
    words = (line.split() for line in text.splitlines() if line and line[0] != "#")
    first = {next(w for w in line if not re.match(r"[A-Z_]+=", w)) for line in words}
    known = {"rca", "python", "make", "export", "while", *ELSEWHERE}
    assert first <= known
    assert all(command in text for command in NOT_RUN)
    assert all(re.search(rf"\b{name}\b", text) for name in ELSEWHERE)
    for script in re.findall(r"\bpython ((?:scripts|benchmarks)/\w+\.py)", text):
        assert (ROOT / script).is_file()


@pytest.mark.slow
def test_python_of_the_readme_runs(desk: Path) -> None:
    (text,) = [
        b.text for b in blocks() if b.page.name == "README.md" and b.language == "python"
    ]
    done = subprocess.run(
        [sys.executable, "-c", text + "\nassert case.verdict['verdict']['cause']"],
        cwd=desk, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_data_blocks_can_be_read() -> None:
    import tomllib

    import yaml

    for block in blocks():
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.text))
        elif block.language == "python":
            compile(block.text, str(block.page), "exec")


def test_every_command_and_option_is_told() -> None:
    """docs/commands.md has a row of options for each command: these, and no others."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = text.split("| Command | Options beyond ")[1].split("\n\n")[0]
    told = {
        name: set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", said))
        for name, said in re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", table, re.MULTILINE)
    }
    common = {"--out", "--json", "--quiet"}
    wanted = {name: options(command) - common for name, command in commands().items()}
    assert told == {name: names for name, names in wanted.items() if names}


def test_options_in_running_text_exist() -> None:
    known = commands()
    for page in PAGES:
        for said in re.findall(r"`rca ([a-z][^`\n]*)`", page.read_text(encoding="utf-8")):
            words = shlex.split(said)
            name = next((n for n in (" ".join(words[:2]), words[0]) if n in known), "")
            assert name or words == ["fleet"], f"{page.name}: rca {said}"
            before = words[: words.index("--")] if "--" in words else words
            used = {w.split("=")[0] for w in before if w.startswith("--")}
            assert used <= (options(known[name]) if name else set()), f"{page.name}: rca {said}"


def test_help_says_what_each_command_is_for_and_how_to_call_it() -> None:
    from rca.commands.examples import EXAMPLES

    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    known = commands()
    assert list(EXAMPLES) == re.findall(
        r"^  (\w+)  +\S", shown.split("Commands:")[1], re.MULTILINE
    )
    for name, told in EXAMPLES.items():
        assert re.search(rf"^  {name} +{re.escape(told.short)}$", shown, re.MULTILINE), name
        words = shlex.split(told.line.partition(" > ")[0])[1:]
        called = next(n for n in (" ".join(words[:2]), words[0]) if n in known)
        assert called.split()[0] == name
        assert {word for word in words if word.startswith("--")} <= options(known[called])
        if name != "fleet":
            said = CliRunner().invoke(app, [name, "--help"], terminal_width=80).output
            assert f"  {told.line}\n" in said, name
