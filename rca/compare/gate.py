"""Limits for a comparison, held against the unfavourable end of each interval; fails closed."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rca.compare.quality import Rule
from rca.errors import RcaError
from rca.plain import number, percent

SHIPPED = "default"
MIN_REQUESTS = 200
_QUANTILE = re.compile(r"(?:(e2e|ttft|itl)_)?p(50|95|99)_(ms|increase)")
_OTHERS = ("error_share", "throughput_loss", "token_throughput_loss")
_KNOWN = "p95_ms, ttft_p95_ms, itl_p99_increase, error_share, throughput_loss"


@dataclass(frozen=True)
class Gate:
    """Limits by name, and the rules for quality metrics by lower-case name."""

    name: str
    min_requests: int
    limits: Mapping[str, float]
    rules: Mapping[str, Rule]


class Check(NamedTuple):
    """One limit. `value` is the figure's unfavourable end; None where it cannot be had."""

    check: str
    limit: float | None
    estimate: float | None
    value: float | None
    passed: bool
    why: str


def read(path: Path | None) -> Gate:
    """The limits of a TOML file; of the shipped one when `path` is None or 'default'.

    Raises:
        RcaError: No such file, or anything in it that is not known: a mistyped limit must not pass.
    """
    shipped = path is None or str(path) == SHIPPED
    name = "the shipped gate.toml" if shipped else str(path)
    try:
        text = (
            files("rca").joinpath("compare", "gate.toml").read_text(encoding="utf-8")
            if shipped or path is None
            else path.read_text(encoding="utf-8")
        )
        table = tomllib.loads(text)
    except FileNotFoundError as error:
        hint = f"--gate {SHIPPED} takes the shipped limits"
        raise RcaError("no such file", path=name, hint=hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RcaError(f"is not valid TOML: {error}", path=name) from error
    return _gate(name, table)


def _gate(name: str, table: dict[str, Any]) -> Gate:
    _only(name, table, ("min_requests", "limits", "quality"))
    limits, quality = table.get("limits", {}), table.get("quality", {})
    if not isinstance(limits, dict) or not isinstance(quality, dict) or not limits:
        raise RcaError("has no [limits]", path=name, hint=f"write for example {_KNOWN}")
    for key, value in limits.items():
        if not (_QUANTILE.fullmatch(key) or key in _OTHERS):
            raise RcaError(
                f"{key!r} is no limit", path=name, hint=f"known are {_KNOWN} and alike"
            )
        _positive(name, key, value)
    least = table.get("min_requests", MIN_REQUESTS)
    _positive(name, "min_requests", least)
    rules = {key.lower(): _rule(name, key, row) for key, row in quality.items()}
    return Gate(name, int(least), limits, rules)


def _only(name: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise RcaError(
                f"{key!r} is not known", path=name, hint=f"known: {', '.join(known)}"
            )


def _positive(name: str, key: str, value: Any) -> None:
    number_like = isinstance(value, int | float) and not isinstance(value, bool)
    if not number_like or not math.isfinite(value) or value < 0:
        raise RcaError(f"{key} must be a number from 0 on", path=name)


def _rule(name: str, key: str, row: Any) -> Rule:
    if not isinstance(row, dict) or row.get("better") not in ("higher", "lower"):
        raise RcaError(f'[quality.{key}] needs better = "higher" or "lower"', path=name)
    _only(name, row, ("better", "step"))
    _positive(name, f"quality.{key}.step", row.get("step"))
    if not row["step"]:
        raise RcaError(f"quality.{key}.step must be above 0", path=name)
    return Rule(row["better"] == "higher", float(row["step"]))


def check(gate: Gate, found: Mapping[str, Any]) -> dict[str, Any]:
    """Every limit against a comparison (the dictionary that `compare` makes)."""
    sound = [*_requests(gate, found), *_recordings(found)]
    rows = sound + [_limit(key, limit, found) for key, limit in gate.limits.items()]
    if found["quality"] is not None:
        word = found["quality"]["joint"]
        passed = word in ("better", "same")
        rows.append(Check("quality", None, None, None, passed, f"latency and quality: {word}"))
    return {
        "file": gate.name,
        "passed": all(row.passed for row in rows),
        "checks": [row._asdict() for row in rows],
    }


def _requests(gate: Gate, found: Mapping[str, Any]) -> list[Check]:
    rows = []
    for side in ("base", "candidate"):
        n = found[side]["requests"]
        passed = n >= gate.min_requests
        why = "enough" if passed else f"{gate.min_requests - n} requests too few: record longer"
        rows.append(Check(f"requests of {side}", gate.min_requests, n, n, passed, why))
    return rows


def _recordings(found: Mapping[str, Any]) -> list[Check]:
    rows = []
    for side in ("base", "candidate"):
        facts = found[side]
        wrong = [*facts["damaged"], *([facts["sampled"]] if facts["sampled"] else [])]
        why = "; ".join(wrong) or "whole"
        rows.append(Check(f"recording of {side}", None, None, None, not wrong, why))
    return rows


def _limit(key: str, limit: float, found: Mapping[str, Any]) -> Check:
    figures = {row["figure"]: row for row in found["figures"]}
    if form := _QUANTILE.fullmatch(key):
        row = figures[f"{form[1] or 'e2e'}_p{form[2]}"]
        if form[3] == "ms":
            return _held(key, limit, row["candidate"], row["candidate_high"], _milliseconds)
        grown = [None if row[k] is None else math.expm1(row[k]) for k in ("log_ratio", "high")]
        return _held(key, limit, grown[0], grown[1], percent)
    if key == "error_share":
        share = found["errors"]["candidate"]
        return _held(key, limit, share["share"], share["high"], percent)
    row = figures[key.removesuffix("_loss")]
    lost = [None if row[k] is None else -math.expm1(row[k]) for k in ("log_ratio", "low")]
    return _held(key, limit, lost[0], lost[1], percent)


def _milliseconds(value: float) -> str:
    return f"{number(value)} ms"


def _held(
    key: str, limit: float, estimate: float | None, bound: float | None, shown: Any
) -> Check:
    """A figure passes when the unfavourable end of its interval keeps the limit."""
    if estimate is None:
        return Check(key, limit, None, None, False, "the recordings do not show it")
    if bound is None:
        why = f"{shown(estimate)}, from too few requests to say how surely"
        return Check(key, limit, estimate, None, False, why)
    told = f"{shown(estimate)}, at worst {shown(bound)}"
    if bound <= limit:
        return Check(key, limit, estimate, bound, True, told)
    why = told if estimate > limit else f"{told}: too few requests to be sure"
    return Check(key, limit, estimate, bound, False, why)
