"""What a series speaks of, by its labels as labels.toml knows them: service, replica, device, model, ..."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What labels tell; `service` and `replica` are '' and all others None where they do not.

    Attributes:
        device: Unique in a case: the device's own id, else HOST/NUMBER.
    """

    service: str
    replica: str
    device: str | None
    model: str | None
    runtime: str | None
    tenant: str | None


def told(name: str, labels: Mapping[str, str]) -> Told:
    """What the labels of a series tell.

    Args:
        name: The metric, as `rca.roles.normalise` writes it.
    """
    plain = {_plain(key): value for key, value in labels.items() if value}
    return Told(
        _service(plain),
        _first("pod", plain) or _first("replica", plain) or "",
        _device(plain),
        _first("model", plain),
        _first("runtime", plain) or _by_prefix(name),
        _first("tenant", plain),
    )


def _service(labels: Mapping[str, str]) -> str:
    if found := _first("service", labels):
        return found
    if pod := _first("pod", labels):
        return re.sub(_table()["pod"]["strip"], "", pod)
    return _first("workload", labels) or ""


def _device(labels: Mapping[str, str]) -> str | None:
    part = _first("device_part", labels)
    if found := _first("device", labels):
        return f"{found}/{part}" if part else found
    parts = [_first("host", labels), _first("device_number", labels), part]
    return "/".join(p for p in parts if p) if parts[1] else None


def _by_prefix(name: str) -> str | None:
    prefixes: dict[str, str] = _table()["runtime"]["prefixes"]
    return next((v for k, v in prefixes.items() if name.startswith(f"{k}_")), None)


def _first(what: str, labels: Mapping[str, str]) -> str | None:
    return next((labels[k] for k in _table()[what]["labels"] if k in labels), None)


@cache
def _plain(key: str) -> str:
    return key.replace(".", "_").lower()


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("rca").joinpath("labels.toml").read_text(encoding="utf-8"))
