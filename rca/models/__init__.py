"""A small inference service that can be broken on purpose.

settings    what an operator, a build or the traffic can change: the knobs
workload    who asks for what, and when; Mooncake trace lines in and out
kv_cache    paged KV blocks with a ref-counted prefix cache
scheduler   continuous batching under a token budget
decoder     the transformer, in torch
worker      one engine step in torch, timed by CPU time
twin        the same step as a cost formula, bit-identical between runs
engine      the loop that joins them on a virtual clock
telemetry   what it leaves behind: prometheus, otlp, profile, deployment
faults      one entry a cause: how to switch it on, what must move, what mends it
figures     numbers of a run; effect: how two runs differ, and how surely
modelled_steps, modelled_profile  the operators of a step and a trace of them, from costs
shapes      operators with shapes → the sizes of the model that ran
infer       what a bundle says of its healthy service → a workload of its shape
what_if, what_if_torch  other settings tried on that workload
conclusion  what the runs of an experiment amount to
reproduce   a cause → a bundle
experiment  a hypothesis and its fix → a verdict, within a budget

Nothing here imports a stage of the analysis, and torch only where it computes.
"""

from __future__ import annotations

__all__ = ["experiment", "faults", "figures", "reproduce", "workload"]
