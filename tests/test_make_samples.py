"""The bundled samples are what the script that makes them would make."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_samples  # noqa: E402 - a script beside the one that it imports

TWINS = [name for name, sample in make_samples.SAMPLES.items() if sample.engine == "twin"]


@pytest.mark.parametrize("name", make_samples.SAMPLES)
def test_a_sample_is_of_the_seed_and_dose_that_the_script_names(name: str) -> None:
    truth = tomllib.loads((make_samples.ROOT / name / "truth.toml").read_text())
    sample = make_samples.SAMPLES[name]
    assert (truth["source"], truth["seed"], truth["dose"]) == (
        sample.engine,
        sample.seed,
        sample.dose,
    )


@pytest.mark.parametrize(
    "name", [TWINS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in TWINS[1:])]
)
def test_the_twins_samples_come_again_to_the_byte(name: str, tmp_path: Path) -> None:
    make_samples.make(make_samples.SAMPLES[name], tmp_path / name)
    assert contents(tmp_path / name) == contents(make_samples.ROOT / name)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
