"""Causes of class config, as experiments."""

from __future__ import annotations

from rca.models.fault import Fault, Remedy, replicas
from rca.models.settings import MS, SECOND, Plan

ENGINE = "deployment/llm-engine"


def config_faults() -> tuple[Fault, ...]:
    """Arguments of the deployment that do not fit the traffic."""
    return (
        *_capacity(),
        *_batching(),
        *_output(),
        *_compiler(),
        *_processes(),
        *_absent(),
    )


def _small_pool(plan: Plan, dose: float, _seconds: float) -> Plan:
    # At least 44 blocks, or the longer prompts would not fit at all.
    share = max(0.127, plan.args.gpu_memory_utilization / (1 + 4.2 * dose))
    return plan.with_args(gpu_memory_utilization=round(share, 3))


def _capacity() -> tuple[Fault, ...]:
    return (
        Fault(
            "kv_pool_too_small",
            "config",
            "gpu_memory_utilization",
            apply=_small_pool,
            moves={"preemptions_per_request": 1, "kv_usage": 1},
            timing=("ttft_p50", "e2e_p50"),
            fix=Remedy(
                "a pool of 180 blocks by name, little more than half of the healthy one",
                "num_gpu_blocks",
                lambda plan: plan.with_args(num_gpu_blocks=180),
            ),
        ),
        Fault(
            "tiny_batch",
            "config",
            "max_num_seqs",
            apply=lambda plan, dose, _s: plan.with_args(
                max_num_seqs=max(1, round(plan.args.max_num_seqs / (1 + 7 * dose)))
            ),
            moves={"waiting": 1},
            timing=("ttft_p50", "e2e_p50"),
            fix=replicas(4),
        ),
    )


def _batching() -> tuple[Fault, ...]:
    return (
        Fault(
            "batch_window_mismatch",
            "config",
            "max_queue_delay_ns",
            apply=lambda plan, dose, _s: plan.with_args(
                max_queue_delay_ns=round(300 * MS * dose)
            ),
            moves={"queue_mean": 1},
            timing=("ttft_p50",),
            fix=Remedy(
                "one waiting request ends the delay",
                "preferred_batch_size",
                lambda plan: plan.with_args(preferred_batch_size=1),
            ),
        ),
        Fault(
            "prefill_starves_decode",
            "config",
            "max_num_batched_tokens",
            # At dose 1 nearly every long prompt is computed in one step.
            apply=lambda plan, dose, _s: plan.with_args(
                max_num_batched_tokens=round(plan.args.max_num_batched_tokens * (1 + 9 * dose))
            ),
            moves={"tokens_per_step_max": 1},
            timing=("itl_p99",),
            fix=Remedy(
                "one prompt gets at most 24 tokens a step",
                "long_prefill_token_threshold",
                lambda plan: plan.with_args(long_prefill_token_threshold=24),
            ),
        ),
        Fault(
            "chunk_too_small",
            "config",
            "max_num_batched_tokens",
            apply=lambda plan, dose, _s: plan.with_args(
                max_num_batched_tokens=max(
                    4, round(plan.args.max_num_batched_tokens / (1 + 2 * dose))
                )
            ),
            moves={"tokens_per_step_max": -1},
            timing=("ttft_p50",),
            fix=replicas(3),
        ),
    )


def _output() -> tuple[Fault, ...]:
    return (
        Fault(
            "verbose_logging",
            "config",
            "log_lines_per_token",
            apply=lambda plan, dose, _s: plan.with_args(log_lines_per_token=0.5 * dose),
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "log lines are buffered",
                "log_buffered",
                lambda plan: plan.with_args(log_buffered=True),
            ),
        ),
        Fault(
            "serialization_overhead",
            "config",
            "max_logprobs",
            apply=lambda plan, dose, _s: plan.with_args(max_logprobs=round(400 * dose)),
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "numbers are packed instead of written as text",
                "response_format",
                lambda plan: plan.with_args(response_format="packed"),
            ),
        ),
        Fault(
            "structured_output_compile",
            "config",
            "grammar_states",
            apply=lambda plan, dose, _s: plan.with_build(grammar_states=round(1500 * dose)),
            timing=("ttft_p50", "itl_p99"),
            fix=Remedy(
                "a schema is compiled once",
                "grammar_cache",
                lambda plan: plan.with_args(grammar_cache=True),
            ),
        ),
    )


def _compiler() -> tuple[Fault, ...]:
    return (
        Fault(
            "jit_recompile_storm",
            "config",
            "static_shapes",
            apply=lambda plan, dose, _s: plan.with_build(static_shapes=round(8 * dose)),
            timing=("itl_p99", "ttft_p99", "ttft_p50"),
            recovers=True,  # past the compiler's limit nothing is compiled any more
            fix=Remedy(
                "the number of rows is marked dynamic",
                "compile_dynamic",
                lambda plan: plan.with_args(compile_dynamic=True),
            ),
            change=(
                "config",
                "deployment/llm-engine",
                "--compile-mode=none",
                "--compile-mode=static",
            ),
        ),
    )


def _processes() -> tuple[Fault, ...]:
    return (
        Fault(
            "thread_oversubscription",
            "config",
            "omp_num_threads",
            apply=lambda plan, dose, _s: plan.with_args(
                omp_num_threads=max(5, round(24 * dose))
            ),
            # Whether threads wait busily or asleep differs between machines: no counter must move.
            timing=("itl_p50", "e2e_p50"),
            fix=Remedy(
                "the engine's threads are bound to the cores that it has",
                "threads_bound",
                lambda plan: plan.with_args(threads_bound=True),
            ),
        ),
        Fault(
            "frontend_gil_bound",
            "config",
            "middleware_ns",
            # At dose 1 one process works nearly all the time.
            apply=lambda plan, dose, _s: plan.with_args(
                middleware="frontend.audit.Scan"
            ).with_build(middleware_ns=round(0.95 * dose / plan.traffic.rate_per_s * SECOND)),
            moves={"frontend_wait": 1},
            timing=("request_p50",),
            fix=Remedy(
                "eight processes of the API server",
                "api_server_count",
                lambda plan: plan.with_args(api_server_count=8),
            ),
            change=("config", ENGINE, "--middleware=", "--middleware=frontend.audit.Scan"),
        ),
    )


def _absent() -> tuple[Fault, ...]:
    needs = {
        "cudagraph_not_covered": "needs CUDA graphs",
        "http2_window": "needs a real network path with delay",
        "quantisation_slower": "needs the kernels of the GPU in question",
        "spec_decode_low_acceptance": "needs a draft model with the service's texts",
        "lora_slot_thrash": "needs adapters and a device to load them to",
        "allocator_fragmentation": "needs the CUDA caching allocator",
    }
    return tuple(Fault(cause, "config", "", device=why) for cause, why in needs.items())
