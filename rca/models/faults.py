"""Every cause of the catalogue as an experiment, or the reason why it is none here."""

from __future__ import annotations

from collections.abc import Mapping

from rca.errors import CauseError
from rca.models.fault import Fault, Remedy
from rca.models.faults_code import code_faults
from rca.models.faults_config import config_faults
from rca.models.faults_host import host_faults
from rca.models.faults_outside import outside_faults

# A change that must not help: no prompt is as long as this cap.
PLACEBO = Remedy(
    "a cap of 100,000 tokens on the pieces of a prompt",
    "long_prefill_token_threshold",
    lambda plan: plan.with_args(long_prefill_token_threshold=100_000),
)
HEALTHY = Fault("healthy", "", "", apply=lambda plan, _dose, _seconds: plan)

# Memory of the process grows and nothing gets slower: alarming, and no incident.
RED_HERRING = Fault(
    "red_herring",
    "",
    "host_bytes_per_request",
    apply=lambda plan, dose, _seconds: plan.with_build(
        host_bytes_per_request=round(400_000 * dose)
    ),
)

# The model moved and its tokenizer did not: the engine's cache and the one before it miss.
MODEL_WITHOUT_TOKENIZER = Fault(
    "stale_tokenizer_cache_key",
    "code-regression",
    "model_revision",
    apply=lambda plan, dose, _seconds: plan.with_build(
        cache_key_churn=min(1.0, dose), model_revision="r15"
    ).with_gateway(cache_starts_empty=True),
    change=(
        "deploy",
        "deployment/llm-engine",
        "--model-revision=r14 --tokenizer-revision=r14",
        "--model-revision=r15 --tokenizer-revision=r14",
    ),
    acceptable=("embedding_version_race",),
)
_INCIDENTS = {
    "red_herring": RED_HERRING,
    "model_without_tokenizer": MODEL_WITHOUT_TOKENIZER,
}

FAULTS: Mapping[str, Fault] = {
    fault.cause: fault
    for fault in (
        HEALTHY,
        *code_faults(),
        *config_faults(),
        *outside_faults(),
        *host_faults(),
    )
}

_ALIASES = {
    "prefix_key_churn": "stale_tokenizer_cache_key",
    "preemption_thrash": "kv_pool_too_small",
    "concurrency_cap_too_low": "tiny_batch",
    "enforce_eager": "cudagraph_not_covered",
    "thermal_throttle": "gpu_thermal_or_power_throttle",
    "noisy_neighbour": "noisy_neighbour_gpu",
    "scale_out_lag": "cold_start",
    "affinity_loss": "router_imbalance",
    "dependency_timeout": "dependency_slow",
    "zombie_requests": "zombie_requests_after_disconnect",
    "hot_key_stampede": "cache_breakdown",
    "cross_zone_rtt": "network_degraded",
    "packet_loss": "network_degraded",
}


def names() -> list[str]:
    """What can be switched on here; `A+B` switches on two of them."""
    return [*(name for name, known in FAULTS.items() if known.reproducible), *_INCIDENTS]


def is_known(cause: str) -> bool:
    """Whether a cause has an entry, reproducible or not."""
    return cause in _INCIDENTS or _ALIASES.get(cause, cause) in FAULTS


def find(cause: str) -> Fault:
    """The entry of a cause, by id or alias.

    Raises:
        CauseError: no such cause.
    """
    if cause in _INCIDENTS:
        return _INCIDENTS[cause]
    fault = FAULTS.get(_ALIASES.get(cause, cause))
    if fault is None:
        raise CauseError(f"no cause is called {cause}", hint=f"one of: {', '.join(names())}")
    return fault
