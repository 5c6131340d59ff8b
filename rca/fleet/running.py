"""Calls spread over processes, of this machine or of a Dask cluster, none of them ever lost."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from rca.errors import MissingExtra, RcaError

T = TypeVar("T")
R = TypeVar("R")
DIED = "the process that read it ended twice, perhaps for want of memory"


class Runner(Protocol):
    """Runs a call on each item, in any order.

    Gives the position of each item with its result; None when the process died on it, and again
    when it was tried alone.
    """

    name: str

    def run(
        self, call: Callable[[T], R], items: Sequence[T]
    ) -> Iterator[tuple[int, R | None]]: ...


class Processes:
    """Processes of this machine, started afresh: a forked child would inherit locks."""

    def __init__(self, workers: int) -> None:
        self.name, self.workers = f"{workers} processes", workers

    def run(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R | None]]:
        """See Runner."""
        waiting = deque(range(len(items)))
        while waiting:
            suspects: list[int] = []
            yield from self._until_one_dies(call, items, waiting, suspects)
            for number in suspects:
                yield number, self._alone(call, items, number)

    def _alone(self, call: Callable[[T], R], items: Sequence[T], number: int) -> R | None:
        """Its result, None when the process dies twice; another item may have been to blame before."""
        for _ in range(2):
            for _, result in Processes(1)._until_one_dies(call, items, deque([number]), []):
                return result
        return None

    def _until_one_dies(
        self,
        call: Callable[[T], R],
        items: Sequence[T],
        waiting: deque[int],
        suspects: list[int],
    ) -> Iterator[tuple[int, R]]:
        """Work off `waiting`; when a process dies, those that were at work become `suspects`."""
        fresh = multiprocessing.get_context("spawn")
        running: dict[Future[R], int] = {}
        with ProcessPoolExecutor(
            self.workers, mp_context=fresh, initializer=_end_with_its_parent
        ) as pool:
            while (waiting or running) and not suspects:
                while waiting and len(running) < self.workers:
                    try:
                        running[pool.submit(call, items[waiting[0]])] = waiting[0]
                    except BrokenProcessPool:  # it died between two calls
                        break
                    waiting.popleft()
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(done)
                    try:
                        yield number, done.result()
                    except BrokenProcessPool:
                        suspects.append(number)
            suspects += running.values()


def _end_with_its_parent() -> None:
    """Let this process end when the one that started it was killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


class Dask:
    """Workers of a Dask cluster, which gives the work of one that died to another."""

    def __init__(self, client: Any, name: str) -> None:
        self.name, self._client = name, client

    def run(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R | None]]:
        """See Runner."""
        from distributed import KilledWorker, as_completed

        futures = self._client.map(call, items, pure=False)
        numbers = {future.key: number for number, future in enumerate(futures)}
        for future in as_completed(futures):
            try:
                yield numbers[future.key], future.result()
            except KilledWorker:  # it took several workers with it
                yield numbers[future.key], None


@contextmanager
def runner(
    workers: int, scheduler: str | None, *, dask: bool | None = None
) -> Iterator[Runner]:
    """Where the work is done: a running cluster, a cluster of this machine, or plain processes.

    Args:
        workers: Processes of this machine; a scheduler has its own.
        scheduler: Address of a Dask scheduler, such as 'tcp://10.0.0.1:8786'.
        dask: Whether Dask starts the processes; it does where it is installed when None.

    Raises:
        MissingExtra: Dask is asked for and not installed.
        RcaError: The scheduler does not answer.
    """
    installed = find_spec("distributed") is not None
    if not installed and (scheduler or dask):
        raise MissingExtra("dask", "fleet")
    if scheduler is None and not (installed if dask is None else dask):
        yield Processes(workers)
        return
    from distributed import Client, LocalCluster

    if scheduler is None:
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                host="127.0.0.1",
                # Workers of a cluster that closes complain of it; what fails, is told by its task.
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield Dask(client, f"{workers} workers of Dask")
        return
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, TimeoutError, ValueError) as error:
        raise RcaError(
            f"the scheduler does not answer: {error}",
            path=scheduler,
            hint="check --scheduler, or take --workers",
        ) from error
    with client:
        yield Dask(client, f"the cluster at {scheduler}")
