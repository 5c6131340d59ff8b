"""The torch workload with a fault at work, its steps in NVTX ranges: what sample_nsys.py records.

python scripts/nsys_workload.py RANGE CAUSE SEED
"""

from __future__ import annotations

import sys

import nvtx

from rca.models.engine import Engine
from rca.models.faults import find
from rca.models.gateway import admit
from rca.models.reproduce import torch_runtime
from rca.models.settings import SECOND, Plan
from rca.models.worker import TorchWorker
from rca.models.workload import arrivals

STEPS = 60
_GROWS_NS = 40 * SECOND  # virtual time in which the fault works before its steps are named
_UNTIL_NS = 10 * _GROWS_NS


def run(step: str, cause: str, seed: int) -> None:
    """Run the faulty service for a while, then some steps within ranges named `step`."""
    plan = find(cause).plan(Plan(), 1.0, 60.0)
    with torch_runtime() as made, TorchWorker(plan, made) as worker:
        engine = Engine(plan, worker, 0)
        engine.send(admit(plan, arrivals(plan.traffic, seed, 0, _UNTIL_NS)).requests)
        engine.run(_GROWS_NS)
        worker.annotate = nvtx.annotate
        done = 0
        while done < STEPS:
            with nvtx.annotate(step):
                stepped = engine.step()
            done += stepped
            if not stepped and not engine.skip_to_next_event():
                return


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
