"""Progress of long work: a bar on stderr, when it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def progress_bar(silent: bool) -> Iterator[tuple[Any, Any]]:
    """Callbacks for stages and bytes; a bar on stderr when it is a terminal."""
    if silent or not sys.stderr.isatty():
        yield (lambda _: None), None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    from rca.plain import printable

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def step(name: str) -> None:
            bar.update(task, description=printable(name, 60))

        def progress(name: str, done: int, total: int) -> None:
            bar.update(
                task,
                description=printable(Path(name).name or "ingest", 40),
                completed=done,
                total=total or None,
            )

        yield step, progress
