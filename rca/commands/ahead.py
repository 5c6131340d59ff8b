"""What the later stages of an analysis need, loaded while the first ones read recordings.

Clustering and drawing come with large libraries: loading them takes about as long as reading a
small bundle, and reading leaves a processor free, as it waits for disks and DuckDB.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TURN_S = 0.0005
_ONE_DOT = {"data": {"values": [{"at": 0}]}, "mark": "point"}


@contextmanager
def loaded_ahead() -> Iterator[None]:
    """Load them on a thread meanwhile; whoever needs one earlier waits for it as for any import.

    In the end the thread is gone: after a failure as soon as what it just loads is there.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_load, args=(stop,), name="rca-ahead")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)  # each of many short queries waits for its turn after it
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


def _load(stop: threading.Event) -> None:
    for load in _LOADS:
        if stop.is_set():
            return
        try:
            load()
        except Exception:  # noqa: BLE001 - who needs it will meet the same and tell of it
            return


def _clustering() -> None:
    import sklearn.cluster
    import sklearn.feature_extraction.text
    import sklearn.metrics  # noqa: F401


def _charts() -> None:
    import rca.postmortem.charts
    import rca.postmortem.html  # noqa: F401


def _drawing() -> None:
    """The first picture is what starts the engine that draws."""
    from rca.postmortem.charts.draw import svg

    svg(_ONE_DOT, "ahead")


_LOADS: tuple[Callable[[], None], ...] = (_clustering, _charts, _drawing)
