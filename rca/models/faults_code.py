"""Causes of class code-regression, as experiments."""

from __future__ import annotations

from rca.models.fault import Fault, Remedy, replicas

_GPU = "needs CUDA"


def code_faults() -> tuple[Fault, ...]:
    """Slow paths that a build of the engine can contain."""
    return (*_memory(), *_cache(), *_host(), *_tensors())


def _memory() -> tuple[Fault, ...]:
    return (
        Fault(
            "logits_processor_leak",
            "code-regression",
            "retained_tensors_per_step",
            apply=lambda plan, dose, seconds: plan.with_build(
                retained_tensors_per_step=dose * 30.0 / seconds
            ),
            moves={"memory_growth": 1},
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "the processor keeps one tensor and no more",
                "processor_history_limit",
                lambda plan: plan.with_args(processor_history_limit=1),
            ),
            growth=True,
        ),
        Fault(
            "kv_object_leak",
            "code-regression",
            "held_blocks_per_request",
            apply=lambda plan, dose, seconds: plan.with_build(
                held_blocks_per_request=dose
                * 2
                * plan.args.total_blocks
                / (seconds * plan.traffic.rate_per_s)
            ),
            moves={"kv_usage": 1, "evictions_per_request": 1},
            timing=("ttft_p50",),
            fix=Remedy(
                "a pool three times as large",
                "num_gpu_blocks",
                lambda plan: plan.with_args(num_gpu_blocks=3 * plan.args.total_blocks),
            ),
            growth=True,
        ),
    )


def _cache() -> tuple[Fault, ...]:
    return (
        Fault(
            "stale_tokenizer_cache_key",
            "code-regression",
            "cache_key_churn",
            apply=lambda plan, dose, _s: plan.with_build(cache_key_churn=min(1.0, dose)),
            moves={"prefix_hit_rate": -1},
            timing=("ttft_p50",),
            fix=Remedy(
                "the tokenizer's revision is pinned, so keys repeat",
                "pin_tokenizer_revision",
                lambda plan: plan.with_args(pin_tokenizer_revision=True),
            ),
        ),
        Fault(
            "position_gap_kv_flush",
            "code-regression",
            "position_gap_every",
            apply=lambda plan, dose, _s: plan.with_build(
                position_gap_every=max(2, round(8 / dose))
            ),
            moves={"recomputed_per_output": 1, "tokens_per_step": 1},
            timing=("itl_p99", "e2e_p50"),
            fix=Remedy(
                "positions are closed up before the check",
                "compact_positions",
                lambda plan: plan.with_args(compact_positions=True),
            ),
        ),
    )


def _host() -> tuple[Fault, ...]:
    return (
        Fault(
            "detokenize_quadratic",
            "code-regression",
            "detokenize_repeats",
            apply=lambda plan, dose, _s: plan.with_build(detokenize_repeats=round(150 * dose)),
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "only the last tokens are decoded again",
                "detokenizer_window",
                lambda plan: plan.with_args(detokenizer_window=1),
            ),
        ),
        Fault(
            "gc_pause",
            "code-regression",
            "collected_objects",
            apply=lambda plan, dose, _s: plan.with_build(
                collected_objects=700_000, collect_every_steps=max(2, round(60 / dose))
            ),
            moves={"full_collections_per_step": 1},
            timing=("itl_p99",),
            fix=Remedy(
                "what is alive after start-up is frozen",
                "gc_freeze",
                lambda plan: plan.with_args(gc_freeze=True),
            ),
        ),
        Fault(
            "implicit_host_sync",
            "code-regression",
            "syncs_per_token",
            # A loop that reads the scores of a token's candidates one by one.
            apply=lambda plan, dose, _s: plan.with_build(syncs_per_token=round(90 * dose)),
            moves={"syncs_per_token": 1},
            timing=("itl_p50", "e2e_p50"),
        ),
    )


def _tensors() -> tuple[Fault, ...]:
    return (
        Fault(
            "dtype_or_layout_copy",
            "code-regression",
            "kv_copies_per_step",
            apply=lambda plan, dose, _s: plan.with_build(kv_copies_per_step=round(4 * dose)),
            moves={"op_converts": 1, "allocations_per_step": 1, "ops_per_step": 1},
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "an attention backend that reads the pool as it is",
                "attention_backend",
                lambda plan: plan.with_args(attention_backend="fused"),
            ),
        ),
        Fault(
            "sampler_slow_path",
            "code-regression",
            "sampler_sorts",
            apply=lambda plan, dose, _s: plan.with_build(sampler_sorts=round(4 * dose)),
            moves={"op_sorts": 1, "ops_per_step": 1},
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "a sampler that looks for the best 32 only",
                "sampler_backend",
                lambda plan: plan.with_args(sampler_backend="partial"),
            ),
        ),
        Fault(
            "version_upgrade_regression",
            "code-regression",
            "extra_copies_per_layer",
            apply=lambda plan, dose, _s: plan.with_build(
                extra_copies_per_layer=round(16 * dose)
            ),
            moves={"ops_per_step": 1, "allocations_per_step": 1},
            timing=("itl_p50", "e2e_p50"),
        ),
        Fault(
            "zombie_requests_after_disconnect",
            "code-regression",
            "ignores_aborts",
            # The same share of clients hangs up on a healthy build, and frees its place.
            apply=lambda plan, dose, _s: plan.with_traffic(
                abort_share=min(0.9, 0.4 * dose)
            ).with_build(ignores_aborts=True),
            moves={"running": 1},
            timing=("itl_p50", "e2e_p50"),
            fix=replicas(3),
        ),
    )
