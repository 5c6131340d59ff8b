"""Faults of a real vLLM: which flag, variable, or kind of traffic makes which cause.

Everything here is something that an operator or a client can do to vLLM; nothing in the
engine is replaced. Doses were chosen for a CPU with two cores and the model of `vllm_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rca.errors import CauseError
from rca.models.settings import Traffic

ENGINE = "deployment/llm-engine"
MIDDLEWARE = "audit.scan"  # see `vllm_record`: a module in the folder where vLLM runs
_MIDDLEWARE_MS = "AUDIT_SCAN_MS"
_POOL, _SEATS = "--num-gpu-blocks-override", "--max-num-seqs"
_BUDGET, _LOGPROBS = "--max-num-batched-tokens", "--max-logprobs"
_LEAST_BLOCKS = 66  # two more than one request of --max-model-len needs, or it does not start
_TRAFFIC = Traffic(
    rate_per_s=2.5, prefix_groups=8, prefix_tokens=320, unique_tokens=60, output_tokens=60,
    long_share=0.05, long_tokens=1000,
)  # fmt: skip
_FLAGS = {
    "--served-model-name": "tiny-llama",
    "--load-format": "dummy",
    "--dtype": "bfloat16",
    "--enforce-eager": "",
    "--max-model-len": "2048",
    "--block-size": "32",
    _POOL: "768",
    _SEATS: "16",
    _BUDGET: "256",
}


@dataclass(frozen=True)
class Service:
    """How vLLM is started and what is asked of it.

    Attributes:
        flags: of `vllm serve`; '' for a flag without a value.
        environment: variables that the deployment sets.
        traffic: arrivals and lengths; a request `has_schema` by its `schema_share`.
        logprobs: alternatives that each request asks for, a token; 0 for none.
        schema_properties: of the schema of a request that has one, each time another one.
        hogs: processes beside the engine that never wait.
    """

    flags: Mapping[str, str] = field(default_factory=lambda: dict(_FLAGS))
    environment: Mapping[str, str] = field(
        default_factory=lambda: {"VLLM_CPU_KVCACHE_SPACE": "1", "OTEL_SERVICE_NAME": "vllm"}
    )
    traffic: Traffic = _TRAFFIC
    logprobs: int = 0
    schema_properties: int = 0
    hogs: int = 0

    def flagged(self, flag: str, value: object) -> Service:
        """With a flag set."""
        return replace(self, flags={**self.flags, flag: str(value)})

    def with_environment(self, **variables: object) -> Service:
        """With variables set."""
        told = {name: str(value) for name, value in variables.items()}
        return replace(self, environment={**self.environment, **told})

    def asked(self, **changes: Any) -> Service:
        """Under other traffic."""
        return replace(self, traffic=replace(self.traffic, **changes))

    @property
    def arguments(self) -> dict[str, str]:
        """What differs between two starts: flags and variables, name to what one writes."""
        flags = {
            name: f"{name}={value}" if value else name for name, value in self.flags.items()
        }
        return flags | {name: f"{name}={value}" for name, value in self.environment.items()}


@dataclass(frozen=True)
class VllmFault:
    """A cause and how a real vLLM is given it.

    Attributes:
        apply: the service with the fault, at a dose above 0.
        component: whom the truth names.
        change: (kind, subject, before, after) of the record of who asks otherwise than before;
            a fault of flags or variables leaves their difference instead.
    """

    cause: str
    cause_class: str
    apply: Callable[[Service, float], Service]
    component: str = "llm-engine"
    change: tuple[str, str, str, str] | None = None
    acceptable: tuple[str, ...] = ()

    def service(self, healthy: Service, dose: float) -> Service:
        """The service with the fault; dose 0 leaves it as it is."""
        return self.apply(healthy, dose) if dose > 0 else healthy


def _pool(service: Service, dose: float) -> Service:
    whole = int(service.flags[_POOL])
    return service.flagged(_POOL, max(_LEAST_BLOCKS, round(whole / (1 + 10.64 * dose))))


def _seats(service: Service, dose: float) -> Service:
    return service.flagged(_SEATS, max(1, round(int(service.flags[_SEATS]) / (1 + 7 * dose))))


def _budget(service: Service, dose: float) -> Service:
    least = int(service.flags[_SEATS])  # vLLM wants a token for each seat
    return service.flagged(
        _BUDGET, max(least, round(int(service.flags[_BUDGET]) / (1 + 15 * dose)))
    )


def _logprobs(service: Service, dose: float) -> Service:
    many = max(1, round(40 * dose))
    return replace(service.flagged(_LOGPROBS, many), logprobs=many)


def _middleware(service: Service, dose: float) -> Service:
    # At dose 1 one process works for four fifths of the time on requests that come singly.
    milliseconds = round(800 * dose / service.traffic.rate_per_s)
    return service.flagged("--middleware", MIDDLEWARE).with_environment(
        **{_MIDDLEWARE_MS: milliseconds}
    )


def _threads(service: Service, dose: float) -> Service:
    return service.with_environment(
        VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS=max(2, round(16 * dose))
    )


def _schemas(service: Service, dose: float) -> Service:
    asked = service.asked(schema_share=0.3)
    return replace(asked, schema_properties=max(1, round(10 * dose)))


_ALL = (
    VllmFault("healthy", "", lambda service, _dose: service),
    VllmFault("kv_pool_too_small", "config", _pool),
    VllmFault("tiny_batch", "config", _seats),
    VllmFault("chunk_too_small", "config", _budget),
    VllmFault("serialization_overhead", "config", _logprobs),
    VllmFault("frontend_gil_bound", "config", _middleware),
    VllmFault("thread_oversubscription", "config", _threads),
    VllmFault(
        "structured_output_compile", "config", _schemas,
        change=("flag", "flag/answer-format", "response_format: text", "response_format: json_schema"),
    ),
    VllmFault(
        "context_inflation", "traffic-spike",
        lambda service, dose: service.asked(long_share=min(1.0, 0.05 + 0.33 * dose)),
    ),
    VllmFault(
        "overload", "traffic-spike",
        lambda service, dose: service.asked(rate_per_s=service.traffic.rate_per_s * (1 + 2.5 * dose)),
    ),
    VllmFault(
        "burst_arrivals", "traffic-spike",
        lambda service, dose: service.asked(burst_factor=1 + 14 * dose),
    ),
    VllmFault(
        "noisy_neighbour_gpu", "infra",
        lambda service, dose: replace(service, hogs=max(1, round(2 * dose))),
        component="node-a",
    ),
)  # fmt: skip
VLLM_FAULTS: Mapping[str, VllmFault] = {fault.cause: fault for fault in _ALL}


def find(cause: str) -> VllmFault:
    """The fault of a cause.

    Raises:
        CauseError: vLLM is not given this cause.
    """
    fault = VLLM_FAULTS.get(cause)
    if fault is None:
        names = ", ".join(VLLM_FAULTS)
        raise CauseError(f"a real vLLM is not given {cause}", hint=f"one of: {names}")
    return fault
