"""What tests share: the conformance data where it is at hand, and a way to read files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from llm_server import Server, serving, use

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.ingest import ingest

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # no test is about how long it takes
os.environ["RCA_RAISE"] = "1"  # a fault of a reader is to be seen, here and in child processes


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of conformance data; the test is skipped without it."""
    place = os.environ.get("RCA_CONFORMANCE_DATA")
    if not place:
        pytest.skip("RCA_CONFORMANCE_DATA does not name the folder of conformance data")
    return Path(place)


@pytest.fixture
def read_files() -> Iterator[Callable[..., Case]]:
    """A function that reads files into a new case in memory; it raises when none can be read."""
    cases: list[Case] = []

    def read(*paths: Path, part: str = "incident") -> Case:
        case = Case.create()
        cases.append(case)
        ingest(case, Bundle([BundleFile(path, path.name, part) for path in paths]))
        return case

    yield read
    for case in cases:
        case.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A fake endpoint of a language model, which the environment names."""
    with serving() as made:
        use(made, monkeypatch)
        yield made
