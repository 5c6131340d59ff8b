"""A comparison for people: in the terminal, and as Markdown for a pull request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rca.plain import number, percent, printable
from rca.postmortem.escape import Markdown, cell, code

_TITLES = {
    "e2e": "end to end", "ttft": "first token", "itl": "between tokens",
    "throughput": "throughput", "token_throughput": "tokens generated",
    "input_tokens": "prompt", "output_tokens": "answer",
}  # fmt: skip
_MOST_OPS = 8
_CHANGES = {
    "shape": "with other shapes",
    "count": "called more or less often",
    "time": "slower or faster",
}


def terminal(found: Mapping[str, Any]) -> str:
    """The comparison as lines of plain text."""
    lines = [
        f"base       {_side(found['base'])}",
        f"candidate  {_side(found['candidate'])}",
        "",
    ]
    lines += _aligned(("", "base", "candidate", "change [95 %]"), list(_rows(found)))
    lines += ["", *(printable(line, 300) for line in (*_gpu_lines(found), *_op_lines(found)))]
    if found["quality"]:
        lines += ["", *(printable(line, 300) for line in _quality_lines(found["quality"]))]
    lines += [f"note: {printable(note, 400)}" for note in found["notes"]]
    if found["gate"]:
        lines += ["", *_gate_lines(found["gate"])]
    return "\n".join(lines)


def _side(facts: Mapping[str, Any]) -> str:
    group = f"  {printable(facts['group'], 100)}" if facts["group"] else ""
    return f"{printable(facts['path'], 200)}{group}  {facts['requests']:,} requests"


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for row in found["figures"]:
        yield _title(row["figure"]), _value(row, "base"), _value(row, "candidate"), _change(row)
    yield (
        "errors",
        _share(found["errors"]["base"]),
        _share(found["errors"]["candidate"]),
        "",
    )
    spread = found["ttft_spread"]
    p = spread["same_spread_p"]
    tail = f", p = {p:.2g}" if p is not None else ""
    yield (
        "first token, quartile distance",
        _value(spread, "base"),
        _value(spread, "candidate"),
        f"{_change(spread)}{tail}",
    )
    sigmas = [spread[f"sigma_{side}"] for side in ("base", "candidate")]
    shown = ["–" if s is None else f"{number(s)} ms" for s in sigmas]
    yield "first token, σ", shown[0], shown[1], ""


def _title(figure: str) -> str:
    name, _, quantile = figure.rpartition("_p")
    return f"{_TITLES[name]}, P{quantile}" if name in _TITLES else _TITLES[figure]


def _value(row: Mapping[str, Any], side: str) -> str:
    value = row[side]
    return "–" if value is None else f"{number(value)} {row['unit'].removesuffix('/request')}"


def _share(errors: Mapping[str, Any]) -> str:
    if errors["share"] is None:
        return "–"
    return f"{percent(errors['share'])} [{percent(errors['low'])}–{percent(errors['high'])}]"


def _change(row: Mapping[str, Any]) -> str:
    if row["log_ratio"] is None:
        return "–"
    text = _signed(row["log_ratio"])
    if row["low"] is None:
        return f"{text} (too few for an interval)"
    return f"{text} [{_signed(row['low'])}, {_signed(row['high'])}]"


def _signed(log_ratio: float) -> str:
    if log_ratio > math.log(10):
        return f"×{number(math.exp(log_ratio))}"
    return f"{math.expm1(log_ratio) * 100:+.1f} %".replace("-", "−")


def _aligned(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]


def _gpu_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What the devices did with their time, as far as a hundredth of it is concerned."""
    told = [
        f"{row['state']} {percent(row['base'])} → {percent(row['candidate'])}"
        for row in found["gpu"] or ()
        if max(row["base"], row["candidate"]) >= 0.01
    ]
    if told:
        yield f"GPU time: {', '.join(told)}"


def _op_lines(found: Mapping[str, Any]) -> Iterator[str]:
    ops = found["ops"]
    if ops is None:
        return
    what = {"kernel": "kernels", "op": "operators"}[ops["kind"]]
    counts = ops["counts"]
    changed = ", ".join(
        f"{n} {_CHANGES[change]}" for change, n in ops["changes"].items() if change != "same"
    )
    yield (
        f"{what}: {counts['kept']} on both sides, {counts['gone']} gone, {counts['new']} new; "
        f"of those on both {changed or 'none changed'}"
    )
    for row in ops["gone"][:_MOST_OPS]:
        yield f"  gone  {printable(row['name'], 100)}  was {percent(row['share_base'])} of the time"
    for row in ops["new"][:_MOST_OPS]:
        yield f"  new   {printable(row['name'], 100)}  is {percent(row['share_candidate'])} of the time"
    for row in ops["kept"][:_MOST_OPS]:
        mean = "–" if row["mean_ratio"] is None else f"×{number(row['mean_ratio'])}"
        yield (
            f"  {row['change']:<5} {printable(row['name'], 100)}  count ×{number(row['count_ratio'])}, mean time {mean}, "
            f"{percent(row['share_base'])} → {percent(row['share_candidate'])} of the time"
        )


def _quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    yield f"quality and latency together: {quality['joint']} (latency: {quality['latency']})"
    for row in quality["metrics"]:
        why = f" ({row['why']})" if row["why"] else ""
        yield (
            f"  {printable(row['metric'], 60)}  {number(row['base'])} → {number(row['candidate'])}  "
            f"{row['word']}{why}"
        )


def _gate_lines(gate: Mapping[str, Any]) -> Iterator[str]:
    yield f"gate: {'passed' if gate['passed'] else 'FAILED'} ({printable(gate['file'], 200)})"
    for row in gate["checks"]:
        word = "ok    " if row["passed"] else "FAILED"
        yield f"  {word} {row['check']:<22} {_limit(row):<12} {printable(row['why'], 300)}"


def _limit(row: Mapping[str, Any]) -> str:
    limit = row["limit"]
    if limit is None:
        return ""
    if row["check"].startswith("requests"):
        return f"≥ {limit:,}"
    return f"≤ {number(limit)} ms" if row["check"].endswith("_ms") else f"≤ {percent(limit)}"


def markdown(found: Mapping[str, Any]) -> str:
    """The comparison as Markdown: the gate first, figures after it, kernels folded away."""
    lines: list[str] = []
    gate = found["gate"]
    if gate:
        lines += [f"## Performance gate: {'passed' if gate['passed'] else 'failed'}", ""]
        checks = [
            (
                Markdown("✓" if r["passed"] else "✗"),
                code(r["check"], in_table=True),
                Markdown(_limit(r)),
                r["why"],
            )
            for r in gate["checks"]
        ]
        lines += _table(("", "check", "limit", "found"), checks)
    else:
        lines += ["## Comparison", ""]
    sides = (("base", found["base"]), ("candidate", found["candidate"]))
    for name, facts in sides:
        group = f", {code(facts['group'])}" if facts["group"] else ""
        lines.append(f"- {name}: {code(facts['path'])}{group}, {facts['requests']:,} requests")
    lines += [
        "",
        *_table(("", "base", "candidate", "change, 95 % interval"), _own(_rows(found))),
    ]
    if found["quality"]:
        rows = [(m["metric"], number(m["base"]), number(m["candidate"]), m["word"]) for m in found["quality"]["metrics"]]  # fmt: skip
        lines += [f"Latency and quality together: **{found['quality']['joint']}**", ""]
        lines += _table(("metric", "base", "candidate", ""), rows)
    lines += [f"- {cell(note)}" for note in found["notes"]]
    lines += ["", *(cell(line) for line in _gpu_lines(found))]
    ops = list(_op_lines(found))
    if ops:
        items = [f"- {code(line.strip())}" for line in ops[1:]]
        lines += [
            "",
            "<details><summary>Kernels and operators</summary>",
            "",
            f"{cell(ops[0])}",
            "",
        ]
        lines += [*items, "", "</details>"]
    return "\n".join(lines).rstrip() + "\n"


def _own(rows: Iterator[tuple[str, ...]]) -> list[tuple[Any, ...]]:
    """Rows that hold nothing but our own words and numbers."""
    return [tuple(Markdown(text) for text in row) for row in rows]


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [*lines, ""]


def _cell(value: Any) -> Markdown:
    return value if isinstance(value, Markdown) else cell(value)
