"""Offline trace analysis and root-cause diagnosis for LLM inference incidents.

case = rca.analyze("bundle")         a bundle, diagnosed; `case.verdict`, `case.sql("...")`
case = rca.open("case.duckdb")       a case that was kept
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rca.diagnosed import DiagnosedCase

__version__ = "0.1.0"
__all__ = ["analyze", "open"]


def analyze(
    *paths: str | Path,
    baseline: str | Path | None = None,
    out: str | Path | None = None,
    trial_budget_s: float | None = None,
    causes: str | Path | None = None,
) -> DiagnosedCase:
    """A bundle, diagnosed.

    Args:
        paths: Folders, archives or files of the incident.
        baseline: The same of a healthy time.
        out: Folder for the case, the postmortem, the report and the fixes; nothing is written
            without it.
        trial_budget_s: Wall time for the experiment in s; no experiment when None.
        causes: Folder with further causes, as TOML files.

    Raises:
        rca.errors.RcaError: Nothing could be read, or nothing can be written.
    """
    from rca import pipeline

    options = pipeline.Options(
        trial_budget_s=trial_budget_s, causes=Path(causes) if causes else None
    )
    folder = Path(out) if out else None
    return pipeline.analyze(
        [Path(p) for p in paths],
        Path(baseline) if baseline else None,
        folder / "case.duckdb" if folder else None,
        options,
        out=folder,
    )


def open(path: str | Path) -> DiagnosedCase:  # noqa: A001 - rca.open reads as what it is
    """A case that was kept, read-only; or the shards of `rca fleet ingest`, read where they lie.

    Raises:
        rca.errors.CaseError: No such file, not a case, or another version.
    """
    from rca.diagnosed import DiagnosedCase
    from rca.fleet import is_shards, open_shards

    if "://" in str(path) or (Path(path).is_dir() and is_shards(str(path))):
        return open_shards(str(path))
    return DiagnosedCase.open(Path(path), read_only=True)
