"""The whole road on recordings that nobody here made; runs where the conformance data is."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from rca.answer.summary import render
from rca.case import Case
from rca.errors import RcaError
from rca.pipeline import Options, analyze, write

SOUND = "SELECT count(*) FROM gpu_op WHERE flaw IS NULL AND kind <> 'accelerator'"
NO_TRIAL = Options(trial_budget_s=None)
DATA = Path(os.environ.get("RCA_CONFORMANCE_DATA") or "unset")
BUNDLES = sorted([*DATA.glob("incidents/inc-*"), *DATA.glob("vllm/vllm-*")])
CAPTURES = sorted(
    [*DATA.glob("kineto/*.json*"), *DATA.glob("nsys/*.sqlite"), *DATA.glob("nsys/*.nsys-rep"),
     *DATA.glob("nsys/*.qdrep")]
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BUNDLES, reason="RCA_CONFORMANCE_DATA does not name the data"),
]


def printed(case: Case) -> str:
    import io

    from rich.console import Console

    stream = io.StringIO()
    render(case, Console(file=stream, width=120))
    return stream.getvalue()


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: b.name)
def test_labelled_bundles_end_in_a_written_answer(bundle: Path, tmp_path: Path) -> None:
    truth = tomllib.loads((bundle / "truth.toml").read_text())
    with analyze([bundle], options=NO_TRIAL) as case:
        unread = case.rows("SELECT message FROM ingest_note WHERE level = 'error'")
        write(case, tmp_path)
        status = case.verdict["verdict"]["status"]
        assert printed(case)
    assert unread == []
    assert (tmp_path / "postmortem.md").is_file()
    if truth["kind"] == "healthy":
        assert status == "no_incident"


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: b.name)
def test_a_plain_list_of_files_is_enough(bundle: Path) -> None:
    files = sorted(p for p in (bundle / "incident").rglob("*") if p.is_file())
    with analyze(files, options=NO_TRIAL) as case:
        found = case.verdict["verdict"]["status"]
        assert printed(case)
    if tomllib.loads((bundle / "truth.toml").read_text())["kind"] == "healthy":
        assert found == "no_incident"


def test_the_class_is_right_in_most_of_them() -> None:
    """A floor, not a target: these bundles are examples, and nothing is tuned to them."""
    right = faulted = 0
    for bundle in BUNDLES:
        truth = tomllib.loads((bundle / "truth.toml").read_text())
        if bundle.name.startswith("inc-") and truth["kind"] != "healthy":
            with analyze([bundle], options=NO_TRIAL) as case:
                right += case.verdict["verdict"]["class"] == truth["class"]
                faulted += 1
    print(f"class right in {right} of {faulted}")
    assert right >= 7


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda c: c.name)
def test_a_lone_capture_tells_what_the_gpu_did_or_one_line_of_what_is_wrong(
    capture: Path,
) -> None:
    try:
        case = analyze([capture], options=NO_TRIAL)
    except RcaError as error:
        assert "\n" not in str(error)
        assert capture.name in str(error)
        assert error.hint or ";" in str(error)
        return
    with case:
        assert case.verdict["verdict"]["status"] == "unknown"
        text = printed(case)
        if case.scalar(SOUND):
            assert "GPU " in text
            assert "busy" in text
