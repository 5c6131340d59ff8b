"""The notebooks run from the first cell to the last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def outputs_of(notebook: Any) -> dict[str, str]:
    """What each cell shows as text, by the cell's id."""
    return {
        cell.id: "\n".join(
            str(o.get("text") or o.get("data", "")) for o in cell.get("outputs", [])
        )
        for cell in notebook.cells
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert [c.id for c in notebook.cells if c.get("outputs") or c.get("execution_count")] == []


@pytest.mark.slow
def test_first_incident_runs_and_finds_the_cause() -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "01_first_incident.ipynb", as_version=4)
    folder = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=folder).execute()
    shown = outputs_of(notebook)
    assert "logits_processor_leak" in shown["analyze"]
    assert "live_memory_growth" in shown["evidence"]
    assert "image/svg+xml" in shown["attribution"]
    assert "image/svg+xml" in shown["timeline"]
    assert "reference" in shown["reproduce"]
    assert not re.search(r"<script[^>]+src=|https?://(?!www\.w3\.org)", "".join(shown.values()))
