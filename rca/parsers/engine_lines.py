"""What the lines of inference engines and their servers say, one line at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rca.parsers import access_lines
from rca.parsers.log_rows import level_of
from rca.parsers.python_repr import settings
from rca.parsers.times import iso_ns


class Line(NamedTuple):
    """One line, taken apart; `ts_ns` None when it has no time or lacks its year (`monthly`).

    `template` is None where the message's own will do.
    """

    ts_ns: int | None
    monthly: str | None
    service: str | None
    level: str | None
    message: str
    fields: dict[str, Any]
    template: str | None = None


_MOST = 2.0**53  # beyond it numbers are not exact, and no engine counts so far
_MOST_DIGITS = 18
_WORD = r"TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# vLLM: (APIServer pid=1) INFO 11-29 16:38:33 [core.py:133] text; older: INFO 11-29 16:38:33 core.py:1] text
_VLLM = re.compile(
    rf"(?:\((?P<service>[\w.-]+)(?: \w+)? pid=(?P<pid>\d+)\)\s+)?(?P<level>{_WORD})\s+"
    r"(?P<monthly>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? \[?(?P<at>[^\]\s]+)\]\s?(?P<message>.*)"
)
# SGLang and plain Python: [2026-11-29 16:38:33 TP0] text
_BRACKET = re.compile(
    rf"\[(?P<time>{_ISO})(?: (?P<service>[\w .-]+))?\]\s+(?:(?P<level>{_WORD}):?\s+)?(?P<message>.*)"
)
# uvicorn: INFO:     10.0.0.7:39232 - "GET /metrics HTTP/1.1" 200 OK
_UVICORN = re.compile(rf"(?P<level>{_WORD}):\s+(?P<message>.*)")
_ACCESS = re.compile(
    r'(?P<client>[\w.:\[\]-]+) - (?:- )?"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+"\s+(?P<status>\d{3})\b.*'
)
# glog and klog: W1129 16:38:45.343190 42 utils.cpp:68] text
_GLOG = re.compile(
    r"\[?(?P<level>[IWEF])(?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)\s+"
    r"(?:\d+ )?(?P<at>[\w./-]+:\d+)\]\s?(?P<message>.*)"
)
# Many: 2026-11-29T16:38:33.123Z INFO logger: text
_PLAIN = re.compile(
    rf"(?P<time>{_ISO})\s+(?:[-|]\s*)?(?:\[?(?P<level>{_WORD})\]?:?\s+)?(?P<message>.*)",
    re.IGNORECASE,
)
_ENGINE = re.compile(r"Engine (\d+):")
_STATS = {
    "prompt_throughput": re.compile(r"Avg prompt throughput: ([\d.]+)"),
    "generation_throughput": re.compile(
        r"(?:Avg generation throughput: |gen throughput \(token/s\): )([\d.]+)"
    ),
    "running": re.compile(r"(?:Running: |#running-req: )(\d+)"),
    "waiting": re.compile(r"(?:Waiting: |Pending: |#queue-req: )(\d+)"),
    "swapped": re.compile(r"Swapped: (\d+)"),
    "new_tokens": re.compile(r"#new-token: (\d+)"),
    "cached_tokens": re.compile(r"#cached-token: (\d+)"),
    "retracted": re.compile(r"#retracted_reqs?: (\d+)"),
    "kv_cache_usage": re.compile(r"(?:KV cache usage: |token usage: )([\d.]+%?)"),
    "prefix_cache_hit_rate": re.compile(r"Prefix cache hit rate: (?:GPU: )?([\d.]+%?)"),
}
_IS_STATS = re.compile(r"Avg prompt throughput|#running-req|#queue-req|KV cache usage")
_SETTINGS = (
    re.compile(r"non-default args: (\{.*)"),
    re.compile(r"Initializing an? (?:\S+ )?LLM engine \(v[^)]*\) with config: (.*)"),
    re.compile(r"server_args=(ServerArgs\(.*)"),
    re.compile(r"args: (Namespace\(.*\))"),
    re.compile(r"enabled with (max_num_batched_tokens=\d+)"),
)
_FACTS = (
    ("kv_cache_size_tokens", re.compile(r"KV cache size: ([\d,]+) tokens")),
    ("num_gpu_blocks", re.compile(r"# (?:GPU|cuda|CPU) blocks: (\d+)")),
    ("num_gpu_blocks", re.compile(r"num_gpu_blocks_override=(\d+)")),
    ("max_total_num_tokens", re.compile(r"max_total_num_tokens=(\d+)")),
)
_VERSION = re.compile(r"(?:LLM engine \(v|vLLM API server version )([0-9][\w.+]*)")


def parse(text: str) -> Line | None:
    """A line of a known form; None for any other text."""
    line = _ANSI.sub("", text).rstrip("\r\n")
    return parse_untimed(line) or _plain(line)


def _request(line: str) -> Line | None:
    found = access_lines.of_text(line)
    return found and of_access(found)


def of_access(found: access_lines.Access) -> Line:
    """A request as a line."""
    return Line(
        found.ts_ns,
        None,
        found.service,
        found.level,
        found.message,
        found.fields,
        found.template,
    )


def _vllm(line: str) -> Line | None:
    found = _VLLM.fullmatch(line)
    if found is None:
        return None
    fields: dict[str, Any] = {"at": found["at"]}
    if found["pid"]:
        fields["pid"] = int(found["pid"][:_MOST_DIGITS])
    return Line(
        None,
        found["monthly"],
        found["service"],
        level_of(found["level"]),
        found["message"],
        fields | stats(found["message"]),
    )


def _bracket(line: str) -> Line | None:
    found = _BRACKET.fullmatch(line)
    if found is None:
        return None
    message = found["message"]
    level = level_of(found["level"]) or "info"
    return Line(iso_ns(found["time"]), None, found["service"], level, message, stats(message))


def _uvicorn(line: str) -> Line | None:
    found = _UVICORN.fullmatch(line)
    if found is None:
        return None
    message = found["message"]
    return Line(None, None, None, level_of(found["level"]), message, access(message))


def _glog(line: str) -> Line | None:
    found = _GLOG.match(line)
    if found is None:
        return None
    monthly = f"{found['month']}-{found['day']} {found['clock']}"
    return Line(
        None, monthly, None, level_of(found["level"]), found["message"], {"at": found["at"]}
    )


def _plain(line: str) -> Line | None:
    found = _PLAIN.fullmatch(line)
    if found is None:
        return None
    ts_ns, rest = iso_ns(found["time"]), found["message"]
    inner = None if found["level"] else parse_untimed(rest)
    if inner is not None:
        return inner._replace(ts_ns=ts_ns, monthly=None)
    return Line(ts_ns, None, None, level_of(found["level"]), rest, stats(rest) | access(rest))


def parse_untimed(text: str) -> Line | None:
    """A line whose time stands elsewhere, such as before it or in the record around it."""
    for form in (_request, _vllm, _bracket, _uvicorn, _glog):
        found = form(text)
        if found is not None:
            return found
    return None


def access(message: str) -> dict[str, Any]:
    """What an access line says."""
    found = _ACCESS.fullmatch(message)
    if found is None:
        return {}
    return {
        "client": found["client"],
        "method": found["method"],
        "path": found["path"],
        "status": int(found["status"]),
    }


def stats(message: str) -> dict[str, Any]:
    """The figures that engines log every few seconds; shares are 0 to 1."""
    if not _IS_STATS.search(message):
        return {}
    found: dict[str, Any] = {}
    engine = _ENGINE.search(message)
    if engine:
        found["engine"] = engine[1]
    for name, pattern in _STATS.items():
        match = pattern.search(message)
        value = figure(match[1]) if match else None
        if value is not None:
            found[name] = value
    return found


def figure(text: str) -> int | float | None:
    """A number, of which '%' makes a share; None for what a damaged line has in its place."""
    try:
        value = float(text.rstrip("%"))
    except ValueError:
        return None
    if not abs(value) < _MOST:
        return None
    if text.endswith("%"):
        return round(value / 100, 9)
    return int(value) if value.is_integer() else round(value, 9)


def configuration(message: str) -> Iterator[tuple[str, str | None]]:
    """Settings that an engine logs when it starts."""
    for pattern in _SETTINGS:
        found = pattern.search(message)
        if found:
            yield from settings(found[1])
            break
    else:
        for name, pattern in _FACTS:
            found = pattern.search(message)
            if found:
                yield name, found[1].replace(",", "")
    version = _VERSION.search(message)
    if version:
        yield "version", version[1]
