"""What a case says of the healthy service: sizes of the model, settings, requests, load."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any

from rca.case import Case
from rca.models.infer import Facts
from rca.models.shapes import ShapedOp, Shapes, infer

_OPERATORS = """
SELECT name, input_dims, input_types, count(*)
FROM cpu_op
WHERE source_id = ? AND input_dims IS NOT NULL AND kind = 'op'
GROUP BY ALL
ORDER BY ALL
"""
_PROFILES = """
SELECT s.id
FROM source AS s JOIN cpu_op AS c ON c.source_id = s.id
WHERE c.input_dims IS NOT NULL AND c.kind = 'op'
GROUP BY s.id, s.part
ORDER BY s.part = 'baseline' DESC, count(*) DESC, s.id
LIMIT 1
"""
_SETTINGS = """
SELECT key, value
FROM config JOIN source ON source.id = config.source_id
WHERE value IS NOT NULL
ORDER BY part = 'baseline', config.ts_ns NULLS FIRST, subject, key
"""
_CACHE_INFO = """
SELECT labels['num_gpu_blocks'], labels['block_size']
FROM series JOIN source ON source.id = series.source_id
WHERE name LIKE '%cache_config_info' AND TRY_CAST(labels['num_gpu_blocks'] AS BIGINT) > 0
ORDER BY part = 'baseline' DESC, series.id
LIMIT 1
"""
_POOLS = """
SELECT arg_min(blocks, at_ns), arg_max(blocks, at_ns)
FROM (
    SELECT TRY_CAST(labels['num_gpu_blocks'] AS BIGINT) AS blocks,
        max(sample.ts_ns) AS at_ns
    FROM series JOIN sample ON sample.series_id = series.id
    WHERE name LIKE '%cache_config_info'
    GROUP BY series.id, blocks
)
WHERE blocks > 0
"""
_REQUESTS = """
SELECT start_ns, input_tokens, output_tokens, tenant
FROM request
WHERE {reference}
ORDER BY start_ns
"""
_AT_WORK = """
SELECT coalesce(replica, ''), s.start_ns + coalesce(queue_ns, 0) AS from_ns, s.start_ns + dur_ns AS to_ns
FROM engine_span AS s JOIN source ON source.id = s.source_id
WHERE {reference}
ORDER BY ALL
"""
_LEVEL = "SELECT sum(num) / nullif(sum(den), 0) FROM role_value WHERE role = ? AND {reference}"
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)=(\S+)")
_FEW = 20  # requests that say nothing of their mix yet


def read(case: Case) -> Facts:
    """What the case says of the service before the incident."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    found["shapes"] = shapes = _shapes(case)
    found["settings"] = settings = _settings(case)
    found["kv_blocks"], found["block_size"] = _pool(case, settings, shapes)
    _add_requests(case, found, sources)
    _add_levels(case, found, sources)
    known = {name: value for name, value in found.items() if value is not None}
    return Facts(**known, sources=sources)


def _reference(case: Case, column: str) -> str:
    """A condition for the healthy side: the baseline, else what came before the incident."""
    if case.scalar("SELECT count(*) FROM source WHERE part = 'baseline'"):
        return "part = 'baseline'"
    rows = case.rows(
        "SELECT start_ns - margin_ns FROM incident_window WHERE status = 'incident' "
        "ORDER BY id LIMIT 1"
    )
    return f"{column} < {int(rows[0][0])}" if rows else "TRUE"


def _shapes(case: Case) -> Shapes:
    source = case.scalar(_PROFILES)
    if source is None:
        return Shapes()
    return infer(
        ShapedOp(name, _listed(dims), [str(t) for t in _listed(types)], calls)
        for name, dims, types, calls in case.rows(_OPERATORS, [source])
    )


def _listed(text: str | None) -> list[Any]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _settings(case: Case) -> dict[str, str]:
    """Flags as they were before; without a baseline, as change records say."""
    found = dict(case.rows(_SETTINGS))
    if not case.scalar(
        "SELECT count(*) FROM config JOIN source ON source.id = config.source_id WHERE part = 'baseline'"
    ):
        for (before,) in case.rows(
            "SELECT before FROM change WHERE before IS NOT NULL ORDER BY ts_ns DESC, id"
        ):
            for flag, value in _FLAG.findall(before):
                found[flag.replace("-", "_")] = value
    return found


def _pool(
    case: Case, settings: dict[str, str], shapes: Shapes
) -> tuple[int | None, int | None]:
    rows = case.rows(_CACHE_INFO)
    blocks, size = rows[0] if rows else (None, None)
    blocks = blocks or settings.get("num_gpu_blocks_override") or shapes.kv_blocks
    size = size or settings.get("block_size") or shapes.block_size
    return _whole(blocks), _whole(size)


def pool_sizes(case: Case) -> tuple[int | None, int | None]:
    """KV blocks at the beginning and at the end of what was recorded; None when unknown."""
    rows = case.rows(_POOLS)
    return (rows[0][0], rows[0][1]) if rows else (None, None)


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and 0 < int(text) < 2**53 else None


def _add_requests(case: Case, found: dict[str, Any], sources: dict[str, str]) -> None:
    rows = case.rows(_REQUESTS.format(reference=_reference(case, "start_ns")))
    if len(rows) < _FEW:
        return
    times = [row[0] for row in rows]
    gaps = [b - a for a, b in pairwise(times)]
    if sum(gaps) > 0:
        found["arrival_cv"] = pstdev(gaps) / fmean(gaps)
    prompts = [row[1] for row in rows if row[1]]
    if len(prompts) >= _FEW:
        found["prompt_tokens"] = fmean(prompts)
        long = [n for n in prompts if n > 2 * median(prompts)]
        found["long_share"] = len(long) / len(prompts)
        if long:
            found["long_ratio"] = fmean(long) / found["prompt_tokens"]
    answers = [row[2] for row in rows if row[2]]
    if len(answers) >= _FEW:
        found["output_tokens"] = fmean(answers)
    found["tenants"] = len({row[3] for row in rows if row[3]}) or None
    _add_load(case, found)
    sources.update(dict.fromkeys(found.keys() - {"shapes", "settings"}, "spans"))
    sources["kv_blocks"] = "metrics" if case.rows(_CACHE_INFO) else "configuration"


def _add_load(case: Case, found: dict[str, Any]) -> None:
    """Requests at a time, and the share of time with any, by the engine's own spans."""
    by_replica: dict[str, list[tuple[int, int]]] = {}
    condition = _reference(case, "s.start_ns")
    for replica, from_ns, to_ns in case.rows(_AT_WORK.format(reference=condition)):
        by_replica.setdefault(replica, []).append((from_ns, max(from_ns, to_ns)))
    shares, running = [], []
    for spans in by_replica.values():
        whole = max(end for _, end in spans) - spans[0][0]
        if whole > 0:
            shares.append(_covered(spans) / whole)
            running.append(sum(end - begin for begin, end in spans) / whole)
    if shares:
        found["busy_share"], found["running"] = fmean(shares), fmean(running)


def _covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union; spans come in order of their start."""
    total, reached = 0, spans[0][0]
    for begin, end in spans:
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _add_levels(case: Case, found: dict[str, Any], sources: dict[str, str]) -> None:
    """What metrics say, where spans did not."""
    reference = _reference(case, "ts_ns")
    roles = {
        "prefix_share": "prefix_hit_rate",
        "prompt_tokens": "prompt_tokens",
        "output_tokens": "output_tokens",
        "running": "running",
    }
    for name, role in roles.items():
        if found.get(name) is None:
            value = case.scalar(_LEVEL.format(reference=reference), [role])
            found[name] = float(value) if value is not None else None
            sources[name] = "metrics"
    if found.get("busy_share") is None:
        found["busy_share"] = case.scalar(
            "SELECT avg(CAST(value > 0 AS INTEGER)) FROM role_value "
            f"WHERE role = 'running' AND {reference}"
        )
        sources["busy_share"] = "metrics"
