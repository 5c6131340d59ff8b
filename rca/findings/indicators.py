"""Single figures of window and reference, each beside the form in which it is commonly given.

Bounds come from the reference itself: what it stays within by chance in all but one of 200 cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.findings import amplification
from rca.findings.cohort import query
from rca.findings.queueing import TRUSTED, Replayed
from rca.findings.records import Cohort, Indicator
from rca.plain import duration, number, percent, printable, role_words

Floats = npt.NDArray[np.float64]

_FEWEST = 20
_COLD_NS = 300 * 10**9
_BY_CHANCE = 0.005
_SEED = 7
_COLLAPSE = 0.5
_COLUMNS = ("side", "start_ns", "e2e_ns", "ttft_ns", "itl_ns", "input_tokens", "output_tokens", "tenant", "batch")  # fmt: skip


def measure(case: Case, cohort: Cohort, replayed: Replayed | None) -> None:
    """Write indicator."""
    case.clear(["indicator"])
    requests = case.sql(
        f"SELECT {', '.join(_COLUMNS)} FROM cohort_request ORDER BY start_ns, trace_id"
    )
    old = requests.filter(pl.col("side") == "reference")
    new = requests.filter(pl.col("side") == "window")
    found = [*_jitter(old, new), *_spread(old, new), *_drift(old, new), *_tenants(old, new)]
    found += [*_cold_keys(case, cohort), *_hit_rates(case, cohort), *_replay(replayed)]
    found += amplification.measure(case, cohort)
    if cohort.is_sampled:
        found = [_sampled(i) if i.subject == "" else i for i in found]
    if found:
        case.insert(
            "indicator", pl.DataFrame([vars(i) for i in found], infer_schema_length=None)
        )


def _sampled(one: Indicator) -> Indicator:
    note = "traces are a sample: shares and spreads among them are biased"
    return replace(one, note=f"{one.note}; {note}" if one.note else note)


def _values(rows: pl.DataFrame, column: str) -> Floats:
    return rows[column].drop_nulls().cast(pl.Float64).to_numpy()


def jitter(latency: Floats, batch: Floats) -> tuple[float, float, float] | None:
    """Spread of a latency that the batch size does not explain, CV·√(1−ρ²); the common form; ρ.

    ρ is the correlation with the batch, 0 where the batch is constant. None below 20 values.
    """
    if len(latency) < _FEWEST or latency.mean() <= 0:
        return None
    cv = float(latency.std() / latency.mean())
    constant = batch.std() == 0 or latency.std() == 0
    rho = 0.0 if constant else float(np.corrcoef(latency, batch)[0, 1])
    return cv * float(np.sqrt(1 - rho * rho)), cv * (1 - rho) ** 2, rho


def _jitter(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[Indicator]:
    for column, name in (("itl_ns", "itl_jitter"), ("e2e_ns", "jitter")):
        sides = []
        for rows in (old, new):
            kept = rows.select(column, "batch").drop_nulls()
            sides.append((jitter(_values(kept, column), _values(kept, "batch")), len(kept)))
        (before, n_old), (after, n_new) = sides
        if after is None:
            continue
        what = "time between tokens" if column == "itl_ns" else "end-to-end time"
        was = f", {number(before[0])} when healthy" if before else ""
        yield Indicator(
            name, "", "ratio", before[0] if before else None, after[0], n_old, n_new,
            f"spread of the {what} that the batch size does not explain: {number(after[0])}{was}",
            common=after[1],
            common_formula="CV·(1−ρ)²; it counts a spread that falls with the batch (ρ < 0) up to four times",
            note="the batch size did not move" if after[2] == 0 else None,
        )  # fmt: skip


def _spread(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[Indicator]:
    """Quartile distance of the time to first token, which a single slow request does not move."""
    before, after = _values(old, "ttft_ns"), _values(new, "ttft_ns")
    if len(after) < 100 or len(before) < 100:
        return
    iqr = [float(np.subtract(*np.percentile(v, (75, 25)))) for v in (before, after)]
    sigma = [float(v.std(ddof=1)) for v in (before, after)]
    yield Indicator(
        "ttft_spread", "", "ns", iqr[0], iqr[1], len(before), len(after),
        f"middle half of the times to first token spreads over {duration(iqr[1])}, {duration(iqr[0])} when healthy",
        common=sigma[1] - sigma[0], common_formula="σ of the window less σ of the reference; the tail alone can make it",
    )  # fmt: skip


def distance(a: Floats, b: Floats) -> float:
    """Kolmogorov and Smirnov's distance of two distributions, 0 to 1."""
    a, b = np.sort(a), np.sort(b)
    every = np.concatenate([a, b])
    shares = (np.searchsorted(v, every, side="right") / len(v) for v in (a, b))
    return float(np.abs(np.subtract(*shares)).max())


def _drift(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[Indicator]:
    flags = []
    for column, name in (("input_tokens", "prompt_drift"), ("output_tokens", "answer_drift")):
        before, after = _values(old, column), _values(new, column)
        n, m = len(before), len(after)
        if min(n, m) < _FEWEST:
            continue
        far = distance(before, after)
        bound = float(np.sqrt(-np.log(_BY_CHANCE / 2) / 2 * (n + m) / (n * m)))
        middle, sigma = float(np.median(before)), float(before.std())
        flags.append(far > bound)
        what = "prompts" if column == "input_tokens" else "answers"
        yield Indicator(
            name, "", "ratio", 0.0, far, n, m,
            f"lengths of {what} lie {number(far)} apart from healthy ones ({number(bound)} by chance): "
            f"median {number(middle)} → {number(float(np.median(after)))} tokens",
            bound=bound, is_flagged=far > bound,
            common=float((np.abs(after - middle) > 3 * sigma).mean()),
            common_formula="share with |length − median| > 3σ; lengths are skewed, so healthy ones pass it too",
        )  # fmt: skip
    if len(flags) == 2:
        level = ("none", "medium", "high")[sum(flags)]
        yield Indicator(
            "length_drift", "", "count", 0.0, float(sum(flags)), len(old), len(new),
            f"prompts and answers together: {level} (both moved: high, one: medium)", is_flagged=all(flags),
        )  # fmt: skip


def entropy(counts: npt.NDArray[np.int64]) -> float:
    """Entropy in bits."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log2(p)).sum())


def _tenants(old: pl.DataFrame, new: pl.DataFrame) -> Iterator[Indicator]:
    both = pl.concat([old, new]).filter(pl.col("tenant").is_not_null())
    names = both["tenant"].unique().sort().to_list()
    before, after = (
        np.array([int((rows["tenant"] == name).sum()) for name in names], np.int64)
        for rows in (old, new)
    )
    if len(names) < 2 or len(names) > 5000 or min(before.sum(), after.sum()) < _FEWEST:
        return
    scale = float(np.log2(len(names)))
    random = np.random.default_rng(_SEED)
    drawn = random.multinomial(int(after.sum()), before / before.sum(), size=400)
    bound = float(np.quantile([entropy(d) / scale for d in drawn], _BY_CHANCE))
    was, now = entropy(before) / scale, entropy(after) / scale
    top = names[int(after.argmax())]
    yield Indicator(
        "tenant_entropy", "", "ratio", was, now, int(before.sum()), int(after.sum()),
        f"evenness of requests over {len(names)} tenants: {number(was)} → {number(now)} of 1 "
        f"(most from {printable(top, 60)}, {percent(float(after.max() / after.sum()))})",
        bound=bound, is_flagged=now < bound, common=entropy(after),
        common_formula="entropy in bits, flagged below 0.3; it depends on the number of tenants",
    )  # fmt: skip


def cold_share(
    times: npt.NDArray[np.int64], keys: list[str], horizon_ns: int
) -> tuple[float, float, int]:
    """Share of uses whose key is not used again within a horizon; the common form; uses counted.

    Uses at the end, whose horizon the recording does not cover, are left out; the common form
    counts them as cold.
    """
    following: dict[str, int] = {}
    again = np.full(len(times), np.iinfo(np.int64).max)
    for i in range(len(times) - 1, -1, -1):
        again[i] = following.get(keys[i], again[i])
        following[keys[i]] = int(times[i])
    is_cold = again - times > horizon_ns
    seen = times <= times[-1] - horizon_ns
    return (
        float(is_cold[seen].mean()) if seen.any() else float("nan"),
        float(is_cold.mean()),
        int(seen.sum()),
    )


def _cold_keys(case: Case, cohort: Cohort) -> Iterator[Indicator]:
    table = case.sql(query("key_access"))
    incident = table.filter(
        (pl.col("part") == "incident")
        & pl.col("ts_ns").is_between(cohort.start_ns, cohort.end_ns)
    )
    if cohort.reference == "baseline":
        reference = table.filter(pl.col("part") == "baseline")
    else:
        reference = table.filter(
            (pl.col("part") == "incident") & (pl.col("ts_ns") < cohort.start_ns)
        )
    sides = [
        (rows["ts_ns"].to_numpy(), rows["key"].to_list()) for rows in (reference, incident)
    ]
    if min(len(keys) for _, keys in sides) < _FEWEST:
        return
    horizon = min(_COLD_NS, *(int(times[-1] - times[0]) // 3 for times, _ in sides))
    (was, _, n_old), (now, common, n_new) = (cold_share(*side, horizon) for side in sides)
    if min(n_old, n_new) < _FEWEST:
        return
    short = (
        f"within {duration(horizon)}: the recordings are too short for 5 min"
        if horizon < _COLD_NS
        else None
    )
    yield Indicator(
        "cold_key_ratio", "cache keys", "ratio", was, now, n_old, n_new,
        f"{percent(now)} of the uses of a key are the last for {duration(horizon)}, {percent(was)} when healthy",
        common=common, common_formula="uses at the end of the recording count as cold", note=short,
    )  # fmt: skip


def _hit_rates(case: Case, cohort: Cohort) -> Iterator[Indicator]:
    table = case.sql(query("hit_rate"))
    for (role, service), rows in table.group_by(["role", "service"], maintain_order=True):
        inside = (pl.col("part") == "incident") & pl.col("ts_ns").is_between(
            cohort.start_ns, cohort.end_ns
        )
        outside = (
            pl.col("part") == "baseline"
            if cohort.reference == "baseline"
            else (pl.col("part") == "incident") & (pl.col("ts_ns") < cohort.start_ns)
        )
        before, after = rows.filter(outside), rows.filter(inside)
        if min(len(before), len(after)) < 4:
            continue
        was, now = (float(r["num"].sum()) / float(r["den"].sum()) for r in (before, after))
        lowest = float(
            np.quantile(before["num"].to_numpy() / before["den"].to_numpy(), _BY_CHANCE)
        )
        bound = min(lowest, _COLLAPSE * was)
        what = role_words(role)
        yield Indicator(
            "hit_collapse", printable(f"{role} {service}".strip(), 80), "ratio", was, now, len(before), len(after),
            f"{what}{f' of {printable(service, 60)}' if service else ''}: {percent(was)} → {percent(now)}"
            + (": a collapse" if now < bound else ""),
            bound=bound, is_flagged=now < bound, common=now,
            common_formula="below 85 % or 75 %, whatever the cache usually reaches",
        )  # fmt: skip


def _replay(replayed: Replayed | None) -> Iterator[Indicator]:
    if replayed is None:
        return
    meets = TRUSTED[0] <= replayed.ratio <= TRUSTED[1]
    old, new = replayed.slots
    yield Indicator(
        "queue_model_ratio", "", "ratio", 1.0, replayed.ratio, replayed.n_reference, replayed.n_window,
        f"the replayed queue is {number(replayed.ratio)} times the measured one, with {old} slots when healthy and {new} now",
        is_flagged=not meets,
        note=None if meets else "outside of 0.5 to 2: the queue is not put down to anything",
    )  # fmt: skip
