"""Record a real vLLM with each of some faults, analyse the bundles, and print the table of docs/reproducer.md.

    python scripts/vllm_bundles.py OUT [CAUSE...] [--seed 1] [--rate 2.5] [--duration 60]

Needs vLLM (docs/reproducer.md) and four to six minutes a cause, one after the other. Bundles that are there
already are not recorded again. The rate is that of the healthy service, requests a second: fewer suit a machine
that is busy otherwise, and then a longer recording, in seconds of baseline and fault. No experiment is run. Load is node_load1, the mean of the incident's part.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from rca.evaluate import Task, judge_bundle
from rca.evaluate.scores import Outcome
from rca.models.reproduce import Lengths
from rca.models.vllm_faults import VLLM_FAULTS, Service
from rca.models.vllm_record import PROFILED_STEPS, SCRAPE_S, record
from rca.pipeline import read

_HEAD = (
    "| Fault | Slower | Load | Status | Cause named | Confidence | True cause's rank | IoU |\n"
    "|---|---:|---:|---|---|---:|---:|---:|"
)
_MEDIAN = (
    "SELECT median(dur_ns) FROM span JOIN source ON source.id = span.source_id"
    " WHERE name = 'POST /v1/completions' AND part = ? AND start_ns BETWEEN ? AND ?"
)
_LOAD = (
    "SELECT avg(value) FROM sample JOIN series ON series.id = sample.series_id"
    " JOIN source ON source.id = series.source_id"
    " WHERE series.name = 'node_load1' AND part = 'incident'"
)
_ALWAYS_NS = 2**63 - 1


def main(arguments: list[str]) -> int:
    """Record what is missing, print the table; returns the exit status."""
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("out", type=Path)
    told.add_argument("causes", nargs="*", default=list(VLLM_FAULTS))
    told.add_argument("--seed", type=int, default=1)
    told.add_argument("--rate", type=float, default=Service().traffic.rate_per_s)
    told.add_argument("--duration", type=int, default=60)
    options = told.parse_args(arguments)
    lengths = Lengths(
        baseline_s=options.duration, lead_in_s=options.duration * 3 // 4,
        fault_s=options.duration, scrape_s=SCRAPE_S, profiled_steps=PROFILED_STEPS,
    )  # fmt: skip
    rows = []
    for cause in options.causes:
        bundle = options.out / cause
        if not (bundle / "truth.toml").exists():
            record(
                cause,
                bundle,
                seed=options.seed,
                lengths=lengths,
                healthy=Service().asked(rate_per_s=options.rate),
                progress=lambda line: print(line, file=sys.stderr),
            )
        rows.append(row(bundle))
        print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join([_HEAD, *rows]))
    return 0


def row(bundle: Path) -> str:
    """A line of the table."""
    one = judge_bundle(Task(bundle))
    slower, load = effect(bundle)
    cells = (
        f"`{bundle.name}`",
        f"×{slower:.2f}" if slower else "no request came in time",
        f"{load:.1f}",
        one.status,
        f"`{one.named[0]}`" if one.named and one.status != "no_incident" else "",
        f"{one.confidence:.2f}",
        rank(one),
        "" if one.iou is None else f"{one.iou:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def rank(one: Outcome) -> str:
    """Where the true cause stands among those that are named; '' for a healthy service."""
    places = [n for n, cause in enumerate(one.named, 1) if cause in one.right]
    return str(places[0]) if places else "" if one.kind == "healthy" else "not named"


def effect(bundle: Path) -> tuple[float | None, float]:
    """How many times longer the median request took than in the baseline, and the node's load.

    None where no request was done within one of the two stretches.
    """
    truth = tomllib.loads((bundle / "truth.toml").read_text(encoding="utf-8"))
    stretch = (truth["start_ns"], truth["end_ns"] or _ALWAYS_NS)
    with read([bundle]) as case:
        slow = case.scalar(_MEDIAN, ("incident", *stretch))
        healthy = case.scalar(_MEDIAN, ("baseline", 0, _ALWAYS_NS))
        load = float(case.scalar(_LOAD))
        return (float(slow) / float(healthy) if slow and healthy else None), load


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
