"""Reads a fleet with two workers of Dask and kills one in the middle; prints what became of it.

python fleet_kill.py FILES SHARDS KILL_WHEN_SO_MANY_ARE_READ
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from distributed import Client, LocalCluster

from rca.fleet import ingest


def main() -> None:
    """Kill the first worker when so many files have been read."""
    killed: list[int] = []
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):

        def kill_one(stage: str, done: int, _: int) -> None:
            if stage == "reading" and done == int(sys.argv[3]) and not killed:
                pids = client.run(os.getpid)
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        done = ingest(
            [Path(sys.argv[1])],
            sys.argv[2],
            scheduler=cluster.scheduler_address,
            progress=kill_one,
        )
    print(json.dumps({"killed": len(killed), "read": done.read, "failed": [Path(m.name).name for m in done.failed]}))  # fmt: skip


if __name__ == "__main__":
    main()
