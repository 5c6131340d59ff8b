"""A fix that a person names, as settings of the model: `max_num_seqs=4`.

Names are those of `EngineArgs` and `Gateway`, or as the engine's command line writes them;
times end in `_ms`. Sizes that the model has scaled are scaled alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import NamedTuple

from rca.errors import FixError
from rca.models.deployment import SPELLING
from rca.models.fault import Remedy
from rca.models.settings import MS, EngineArgs, Gateway, Plan

_DEFAULTS = {
    field.name: getattr(part, field.name)
    for part in (Gateway(), EngineArgs())
    for field in fields(part)
}
_GATEWAY = frozenset(field.name for field in fields(Gateway))
# The decoder's blocks have one size, and only a build has a middleware.
_FIXED = frozenset({"block_size", "middleware"})
_WORDS = {
    "attention_backend": ("generic", "fused"),
    "sampler_backend": ("torch", "partial"),
    "response_format": ("json", "packed"),
}
# What the model can be run with, in its own units; others take any number from 0 up.
_LIMITS = {
    "max_num_seqs": (1, 256),
    "max_num_batched_tokens": (1, 8192),
    "gpu_memory_utilization": (0.05, 1.0),
    "num_gpu_blocks": (0, 2048),
    "max_logprobs": (0, 1024),
    "omp_num_threads": (1, 64),
    "api_server_count": (1, 64),
    "replicas": (1, 64),
    "pool_size": (1, 1024),
    "attempts": (1, 16),
    "cache_ttl_ns": (MS, 10**18),
}
_ANY = (0, 10**18)


class Setting(NamedTuple):
    """One setting of a fix.

    Attributes:
        name: a field of `EngineArgs` or `Gateway`.
        value: as typed, times in ns.
        written: as it was typed, for people.
    """

    name: str
    value: bool | float | str
    written: str


def parse(texts: Sequence[str]) -> list[Setting]:
    """Settings of texts `NAME=VALUE`.

    Raises:
        FixError: no such setting, or a value that the model cannot be run with.
    """
    return [_setting(text) for text in texts]


def remedy(settings: Sequence[Setting], scale: Mapping[str, float]) -> Remedy:
    """The fix that makes all these settings.

    Args:
        settings: what `parse` made of what was typed; at least one.
        scale: name of a setting → the model's units for one of the recorded service.

    Raises:
        FixError: scaled, a value is beyond what the model can be run with.
    """
    values = {s.name: _scaled(s, scale.get(s.name, 1.0)) for s in settings}
    of_gateway = {name: value for name, value in values.items() if name in _GATEWAY}
    of_engine = {name: value for name, value in values.items() if name not in _GATEWAY}

    def apply(plan: Plan) -> Plan:
        return plan.with_args(**of_engine).with_gateway(**of_gateway)

    told = ", ".join(_told(s, values[s.name]) for s in settings)
    return Remedy(told, ", ".join(values), apply)


def _setting(text: str) -> Setting:
    written, equals, value = (part.strip() for part in text.partition("="))
    name, factor = _field(written)
    if not equals or name not in _DEFAULTS or name in _FIXED:
        raise FixError(f"{text!r} sets nothing of the model", hint=_near(name))
    found = _value(name, value)
    if found is None or (isinstance(found, str) and found not in _WORDS[name]):
        raise FixError(f"{text!r}: {value!r} is no value", hint=f"it takes {_form(name)}")
    if factor != 1 and not isinstance(found, str):
        found = found * factor
    return Setting(name, found, f"{written.lstrip('-')}={value}")


def _field(written: str) -> tuple[str, int]:
    """The field that a name means, and how many of its units are one of those written."""
    name = written.lstrip("-").replace("-", "_")
    spelt = {flag.replace("-", "_"): field for field, flag in SPELLING.items()}
    if name in spelt:
        return spelt[name], MS if name.endswith("_ms") else 1
    if name.endswith("_ms") and f"{name.removesuffix('_ms')}_ns" in _DEFAULTS:
        return f"{name.removesuffix('_ms')}_ns", MS
    return name, 1


def _near(name: str) -> str:
    """What to write instead: the names like this one, else all."""
    names = sorted(_shown(known) for known in _DEFAULTS.keys() - _FIXED)
    return f"write NAME=VALUE, of: {', '.join(get_close_matches(name, names) or names)}"


def _shown(name: str) -> str:
    return f"{name.removesuffix('_ns')}_ms" if name.endswith("_ns") else name


def _value(name: str, text: str) -> bool | float | str | None:
    """The value in the field's own type; None when it is none."""
    default = _DEFAULTS[name]
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _form(name: str) -> str:
    default = _DEFAULTS[name]
    if isinstance(default, str):
        return " or ".join(_WORDS[name])
    return "true or false" if isinstance(default, bool) else "a number"


def _scaled(setting: Setting, scale: float) -> bool | float | str:
    value = setting.value
    if isinstance(value, bool | str):
        return value
    least, most = _LIMITS.get(setting.name, _ANY)
    scaled = value * scale
    if isinstance(_DEFAULTS[setting.name], int):
        # Zero may mean no limit; what is small must not become that.
        scaled = max(round(scaled), 1) if value > 0 else round(scaled)
    if not least <= scaled <= most:
        raise FixError(
            f"{setting.written}: the model cannot be run with it",
            hint=f"between {_number(least / scale)} and {_number(most / scale)}",
        )
    return scaled


def _number(value: float) -> str:
    return f"{value:.4g}"


def _told(setting: Setting, value: bool | float | str) -> str:
    if isinstance(value, bool | str) or value == setting.value:
        return setting.written
    return f"{setting.written} (in the model {_number(value)})"
