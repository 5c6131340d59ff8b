"""What an experiment's runs amount to: a status, and the words for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rca.models.fault import Fault
from rca.models.figures import ASKED, Figures
from rca.models.pairing import PAIRS, Pairing
from rca.models.ranking import DEAD_BAND, Rank
from rca.models.screening import mean_of, still
from rca.plain import percent

FIXED_BELOW = 1.10  # the upper bound of a mended figure, against the healthy one
_NEARLY_ALL = 0.8
_HALF_MENDED = 0.5  # of the effect in logs, for a partial fix
_WORSE = 1.1
LATENCIES = ("ttft_p50", "itl_p50", "e2e_p50", "request_p50")
BUSY = "busy_share"  # of the time: the engine needs more of it for the same requests
# What a fix may give up, as a share, and how that is told.
_GIVEN_UP = {
    "turned_away": "{} of the requests are turned away",
    "prompt_cut": "{} of the prompts' tokens are cut off",
    "without_retrieval": "{} of the answers are made without the retrieval service",
}
_LEAST_GIVEN_UP = 0.01


class Verdict(NamedTuple):
    """A status and its reason."""

    status: str
    reason: str


HOST_IS_MODELLED = Verdict(
    "mechanism_only", "counters of the twin only: a cost model stands for the host"
)
NO_TORCH = Verdict(
    "mechanism_only",
    "counters of the twin only, since torch is not installed: pip install 'trace-rca[torch]'",
)


def on_pairs(fault: Fault, pairing: Pairing, *, has_incident: bool) -> Verdict:
    """The verdict on complete pairs of torch runs.

    Args:
        fault: what was tried.
        pairing: its runs.
        has_incident: whether it was compared with an incident's figures before.
    """
    # What was asked is the same in all engines, and a short run has few requests to count.
    moves = {figure: sign for figure, sign in fault.moves.items() if figure not in ASKED}
    if missing := still(moves, mean_of(pairing.ratios("fault"))):
        # The twin moved them, or it would not have come to these runs.
        told = f"in torch, in runs of {max(pairing.seconds):.2g} s; the twin moves it in longer ones"
        return Verdict("inconclusive", f"{still_text(missing)} {told}")
    slow = _slower(fault, pairing)
    if not has_incident:
        return Verdict("mechanism_only", "no figures of the incident to compare with")
    if not slow:
        return Verdict(
            "mechanism_only",
            "counters moved as they must, but no latency beyond the noise of equal arms",
        )
    if fault.fix is None:
        return Verdict("mechanism_only", "reproduced, but no other knob mends it here")
    found = _on_fix(pairing, slow)
    if fault.knob in fault.fix.knobs and found.status in ("validated", "partial_fix"):
        # Whatever a knob broke, turning it back mends it.
        told = "the fix turns the fault's own knob, which proves nothing of the cause"
        return Verdict("mechanism_only", f"{found.reason}; {told}")
    return found


def _slower(fault: Fault, pairing: Pairing) -> list[str]:
    return [figure for figure in fault.timing if _is_slower(pairing, figure)]


def _is_slower(pairing: Pairing, figure: str) -> bool:
    effect = pairing.effect("fault", figure)
    return bool(effect and effect.same_sign and effect.low > pairing.noise(figure))


def _on_fix(pairing: Pairing, slow: Sequence[str]) -> Verdict:
    if all(_is_mended(pairing, "placebo", figure) for figure in slow):
        return Verdict("inconclusive", "the placebo mends it too")
    costs = side_effects(pairing, slow)
    price = f"; side effect of the fix: {', '.join(costs)}" if costs else ""
    rules = {figure: _mended_by(pairing, "fix", figure) for figure in slow}
    if all(rules.values()):
        return Verdict(
            "validated",
            f"reproduced in {PAIRS} of {PAIRS} pairs, most like the incident, "
            f"mended by another knob and not by a placebo ({_rules_told(rules)}){price}",
        )
    share = min(_mended_share(pairing, figure) for figure in slow)
    if share >= _HALF_MENDED:
        noisy = all(_may_be_mended(pairing, figure) for figure in slow)
        doubt = "; whether that is all of it, the noise does not show" if noisy else ""
        return Verdict(
            "partial_fix", f"the fix takes {percent(share)} of the effect away{doubt}{price}"
        )
    return Verdict("mechanism_only", f"reproduced, but the fix does not mend it{price}")


def is_decided(fault: Fault, pairing: Pairing) -> bool:
    """Whether each interval of the fix lies on one side of the bar already."""
    effects = [pairing.effect("fix", figure) for figure in fault.timing]
    return all(e is None or e.high < FIXED_BELOW or e.low > FIXED_BELOW for e in effects)


def side_effects(pairing: Pairing, mended: Sequence[str]) -> list[str]:
    """What the fix makes worse than healthy, in words: latencies, and what users do without."""
    found = []
    for figure in (*LATENCIES, BUSY):
        effect = pairing.effect("fix", figure) if figure not in mended else None
        if effect and effect.low > max(pairing.noise(figure), _WORSE):
            found.append(f"{figure} ×{effect.ratio:.3g}")
    for figure, words in _GIVEN_UP.items():
        more = pairing.mean("fix", figure) - pairing.mean("healthy", figure)
        if more > _LEAST_GIVEN_UP:
            found.append(words.format(percent(more)))
    return found


def _is_mended(pairing: Pairing, arm: str, figure: str) -> bool:
    return bool(_mended_by(pairing, arm, figure))


def _mended_by(pairing: Pairing, arm: str, figure: str) -> str:
    """The rule by which an arm mends a figure, in words; empty where it does not.

    The whole interval lies below a tenth more than healthy. A busy machine widens intervals. One
    that holds healthy passes as well, when even its worst end takes four fifths of the least
    effect away.
    """
    effect, fault = pairing.effect(arm, figure), pairing.effect("fault", figure)
    if effect is None or fault is None:
        return ""
    if effect.high < FIXED_BELOW:
        return f"its whole interval lies below ×{FIXED_BELOW:.3g} of healthy"
    left = math.log(max(effect.high, 1.0)) / max(math.log(fault.low), 1e-9)
    if effect.low <= 1.0 and 0 <= left <= 1 - _NEARLY_ALL:
        return (
            f"its interval holds healthy, and even the worst end of it, ×{effect.high:.3g}, takes "
            f"{percent(_NEARLY_ALL)} of the least effect of the fault, ×{fault.low:.3g}, away"
        )
    return ""


def _rules_told(rules: Mapping[str, str]) -> str:
    """Figures with the rule that each passed, those of one rule together."""
    figures: dict[str, list[str]] = {}
    for figure, rule in rules.items():
        figures.setdefault(rule, []).append(figure)
    return "; ".join(f"{', '.join(names)}: {rule}" for rule, names in figures.items())


def _may_be_mended(pairing: Pairing, figure: str) -> bool:
    effect = pairing.effect("fix", figure)
    return effect is not None and effect.low <= 1.0


def _mended_share(pairing: Pairing, figure: str) -> float:
    fault, fix = pairing.effect("fault", figure), pairing.effect("fix", figure)
    if fault is None or fix is None or fault.ratio <= 1:
        return 0.0
    return 1 - max(0.0, math.log(fix.ratio)) / math.log(fault.ratio)


def describe(fault: Fault, pairing: Pairing) -> dict[str, object]:
    """Noise, effects with intervals and side effects of the fix, for the record."""
    noise = {figure: pairing.noise(figure) for figure in fault.timing}
    effects: dict[str, dict[str, object]] = {}
    for arm in sorted(pairing.runs):
        found = {figure: pairing.effect(arm, figure) for figure in fault.timing}
        effects[arm] = {key: value.as_dict() for key, value in found.items() if value}
    details: dict[str, object] = {
        "seconds_a_run": pairing.seconds,
        "noise": {k: v for k, v in noise.items() if math.isfinite(v)},
        "effects": effects,
    }
    if "fix" in pairing.runs:
        details["side_effects"] = side_effects(pairing, _slower(fault, pairing))
    return details


def lacks_hallmark(fault: Fault, observed: Mapping[str, float]) -> str | None:
    """Why the incident cannot be of this cause; None when nothing speaks against it."""
    figure = fault.hallmark
    if figure is None or figure not in observed:
        return None
    moved = observed[figure] * fault.moves[figure]
    if moved >= DEAD_BAND:
        return None
    way = "up" if fault.moves[figure] > 0 else "down"
    return f"{fault.cause} drives {figure} {way}, and the incident does not show that"


def leaves_hallmark(
    rival: str,
    fault: Fault,
    observed: Mapping[str, float],
    shown: Mapping[tuple[str, float], Figures],
) -> str | None:
    """Why a rival that looks as much like the incident is out: what marks the fault it leaves still.

    None where the incident does not show the mark clearly.
    """
    figure = fault.hallmark
    if figure is None or observed.get(figure, 0.0) * fault.moves[figure] < 2 * DEAD_BAND:
        return None
    sign = fault.moves[figure]
    moved = [f[figure] * sign for (c, _), f in shown.items() if c == rival and figure in f]
    if not moved or max(moved) >= DEAD_BAND:
        return None
    return f"{rival} does not move {figure}, as the incident does"


def still_text(missing: Sequence[str]) -> str:
    """That a fault leaves figures as they are."""
    return f"the fault does not move {', '.join(missing)} under this workload"


def calm_text(calm: Sequence[str]) -> str:
    """That the incident is no slower than chance makes equal services."""
    return (
        f"the incident's {', '.join(calm)} moved no further than equal services under other "
        "traffic lie apart"
    )


def explains_better(other: Rank, own: Rank) -> str:
    """That another cause looks more like the incident."""
    return (
        f"{other.cause} looks more like the incident ({other.likeness:.2f} against "
        f"{own.likeness:.2f}; worst in {own.worst_figure})"
    )
