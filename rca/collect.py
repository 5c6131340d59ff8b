"""A read-only shell script that collects the bundle of an incident, for people to read and run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import NamedTuple
from urllib.parse import urlsplit

from rca import roles
from rca.errors import RcaError
from rca.parsers.times import point_ns
from rca.plain import printable

ENGINES = {
    "vllm": ("vllm_",),
    "sglang": ("sglang_",),
    "tgi": ("tgi_",),
    "triton": ("nv_",),
    "trtllm": ("trtllm_",),
    "ray": ("ray_serve_",),
    "llm-d": ("llm_d_", "inference_"),
}
"""Beginnings of the metric names that each engine has in roles.toml."""

_MAX_POINTS = 11_000
_TRACES_S, _TRACES, _MAX_TRACE_CALLS = 300, 5000, 24
_DAY_S = 86_400
_COLON = re.compile(r"(vllm|sglang)_")


class Step(NamedTuple):
    """One thing to collect: what it is, what it costs, what private data it holds, the commands."""

    title: str
    cost: str
    private: str
    commands: tuple[str, ...]


class Span(NamedTuple):
    """A time to collect, in whole seconds since the Unix epoch, and the side it belongs to."""

    part: str
    start_s: int
    end_s: int


@dataclass(frozen=True)
class Request:
    """What to collect.

    Attributes:
        service: Deployment, and the service's name in Jaeger.
        spans: The incident's time, then the baseline's if there is one.
        prometheus: Address of Prometheus, None to leave metrics out.
        jaeger: Address of Jaeger's query service, None to leave traces out.
        engines: Keys of ENGINES.
        matcher: PromQL matchers of series that belong to the service's namespace.
        pods: Label selector of the service's pods.
        step_s: Resolution of metrics.
        out: Folder that the script fills.
    """

    service: str
    namespace: str
    spans: tuple[Span, ...]
    prometheus: str | None
    jaeger: str | None
    engines: tuple[str, ...]
    matcher: str
    pods: str
    step_s: int
    out: str


def request(
    service: str,
    namespace: str,
    start: str,
    end: str,
    *,
    prometheus: str | None = None,
    jaeger: str | None = None,
    engines: Sequence[str] = ("vllm",),
    baseline: bool = True,
    matcher: str | None = None,
    pods: str | None = None,
    step_s: int = 15,
    out: str | None = None,
) -> Request:
    """A checked request; the baseline is the same time of the day before.

    Raises:
        RcaError: A time, an address or an engine is none.
    """
    begin, finish = _second(start, "--start"), _second(end, "--end")
    if finish <= begin:
        raise RcaError(
            "--end is not after --start", hint="both are UTC unless they name a zone"
        )
    for engine in engines:
        if engine not in ENGINES:
            raise RcaError(f"{engine!r} is no engine", hint=f"known: {', '.join(ENGINES)}")
    spans = [Span("incident", begin, finish)]
    if baseline:
        spans.append(Span("baseline", begin - _DAY_S, finish - _DAY_S))
    return Request(
        service, namespace, tuple(spans), _address(prometheus, "--prometheus"),
        _address(jaeger, "--jaeger"), tuple(engines),
        matcher if matcher is not None else f"namespace={_promql(namespace)}",
        pods or f"app={service}", step_s, out or f"bundle-{_file(service)}",
    )  # fmt: skip


def _second(text: str, option: str) -> int:
    ns = point_ns(text.strip())
    if ns is None:
        hint = "write for example 2026-01-31T02:10:00Z, or Unix seconds"
        raise RcaError(f"{printable(text, 60)!r} is no time for {option}", hint=hint)
    return ns // 1_000_000_000


def _address(url: str | None, option: str) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        hint = "write for example http://prometheus:9090"
        raise RcaError(f"{option} is no http address: {printable(url, 80)}", hint=hint)
    if "@" in parts.netloc:
        hint = "put it in ~/.netrc, which curl reads"
        raise RcaError(f"{option} holds a login, which the script would show", hint=hint)
    return url.rstrip("/")


def _promql(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _file(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".-") or "service"


def plan(wanted: Request) -> list[Step]:
    """All steps, in the order of their worth."""
    return [*_metrics(wanted), *_traces(wanted), *_cluster(wanted)]


def _metrics(wanted: Request) -> Iterator[Step]:
    if wanted.prometheus is None:
        return
    url = quote(f"{wanted.prometheus}/api/v1/query_range")
    for name, (patterns, matcher, note) in _groups(wanted).items():
        pattern = _promql("|".join(patterns))
        query = f"{{__name__=~{pattern}{',' if matcher else ''}{matcher}}}"
        commands, points = [f"query={quote(query)}"], 0
        for span in wanted.spans:
            for number, (start, end) in enumerate(_ranges(span, wanted.step_s)):
                points += (end - start) // wanted.step_s + 1
                commands.append(
                    f'get {span.part}/metrics-{name}-{number}.json {url} --data-urlencode "query=$query" '
                    f"-d start={start} -d end={end} -d step={wanted.step_s}"
                )
        yield Step(
            f"Metrics: {note}",
            f"{points:,} points a series in {len(commands) - 1} queries; counters as they are, no rate()",
            "names of pods, hosts and models, and label values such as routes and tenants",
            tuple(commands),
        )


def _ranges(span: Span, step_s: int) -> Iterator[tuple[int, int]]:
    """Parts of a span that stay below the server's limit of points a series."""
    width = (_MAX_POINTS - 1) * step_s
    for start in range(span.start_s, span.end_s, width + step_s):
        yield start, min(start + width, span.end_s)


def _groups(wanted: Request) -> dict[str, tuple[list[str], str, str]]:
    """Patterns of metric names, matchers and a title by group; names are those of roles.toml."""
    engine = tuple(p for e in wanted.engines for p in ENGINES[e])
    others = tuple(p for prefixes in ENGINES.values() for p in prefixes)
    found: dict[str, tuple[list[str], str, str]] = {
        "engine": ([], wanted.matcher, f"the engine ({', '.join(wanted.engines)})"),
        "service": ([], wanted.matcher, "gateway, process, pools and caches"),
        "pods": ([], wanted.matcher, "containers and pods (cAdvisor, kube-state-metrics)"),
        "hosts": ([], "", "GPUs (DCGM) and hosts, of the whole cluster"),
    }
    for metric, pattern in metric_patterns().items():
        if metric.startswith(engine):
            found["engine"][0].append(pattern)
        elif metric.startswith(("container_", "kube_")):
            found["pods"][0].append(pattern)
        elif metric.startswith(("DCGM_", "node_", "coredns_")):
            found["hosts"][0].append(pattern)
        elif not metric.startswith(others):
            found["service"][0].append(pattern)
    if {"vllm", "sglang"} & set(wanted.engines):
        found["engine"][0].append("(ray_)?(vllm|sglang)[:_]cache_config_info")
    found["service"][0].extend(
        [".+_build_info", "python_info", "up", "scrape_duration_seconds", "ALERTS"]
    )
    found["pods"][0].extend(
        [
            "kube_[a-z]+_(metadata_generation|(spec_)?replicas)",
            "kube_pod_container_(info|status_restarts_total)",
        ]
    )
    return found


def metric_patterns() -> dict[str, str]:
    """Regular expressions of exported names, by the metric's name in roles.toml.

    Buckets only of what users feel: there quantiles matter, elsewhere the mean does.
    """
    found: dict[str, set[str]] = {}
    for metric, how, layer in roles.metrics():
        endings = {
            "histogram": "_(bucket|sum|count)" if layer == "symptom" else "_(sum|count)",
            "count": "_(bucket|sum|count)" if layer == "symptom" else "_count",
        }.get(how, "" if metric.endswith("_total") or how == "gauge" else "(_total)?")
        found.setdefault(metric, set()).add(endings)
    patterns = {}
    for metric, variants in sorted(found.items()):
        # vLLM and SGLang write a colon, which some exporters turn into an underscore.
        name = _COLON.sub(r"(ray_)?\1[:_]", metric) if _COLON.match(metric) else metric
        ending = max(variants, key=len)
        # A name that some export as a gauge and others as a histogram.
        plain = "" in variants and ending.startswith("_")
        patterns[metric] = f"{name}({ending})?" if plain else f"{name}{ending}"
    return patterns


def _traces(wanted: Request) -> Iterator[Step]:
    if wanted.jaeger is None:
        return
    url = quote(f"{wanted.jaeger}/api/traces")
    commands = []
    for span in wanted.spans:
        width = max(_TRACES_S, -(-(span.end_s - span.start_s) // _MAX_TRACE_CALLS))
        for number, start in enumerate(range(span.start_s, span.end_s, width)):
            end = min(start + width, span.end_s)
            commands.append(
                f"get {span.part}/traces-{number:02d}.json {url} "
                f"--data-urlencode {quote(f'service={wanted.service}')} "
                f"-d start={start}000000 -d end={end}000000 -d limit={_TRACES}"
            )
    yield Step(
        "Request traces from Jaeger",
        f"{len(commands)} searches, some kB a trace; Jaeger drops what goes beyond {_TRACES:,} a search",
        "span attributes: user or tenant ids, URLs, with some instrumentations the prompt itself",
        tuple(commands),
    )


def _cluster(wanted: Request) -> Iterator[Step]:
    """What kubectl tells: changes, configuration, logs, events; nothing is written to the cluster."""
    kubectl = f"kubectl -n {quote(wanted.namespace)}"
    deployment = quote(f"deployment/{wanted.service}")
    pods, incident = quote(wanted.pods), wanted.spans[0]
    yield Step(
        "Changes: the revisions of the workload that are kept",
        "one request; a rollback reuses an old revision, and its time does not show: add it to changes.jsonl",
        "environment variables and arguments, with secrets if they are written there in plain",
        (f"save revisions.json {kubectl} get replicasets -l {pods} -o json",),
    )
    yield Step(
        "Configuration in force; put the manifest of before, from Git, into baseline/config/",
        "one request",
        "environment variables and arguments, with secrets if they are written there in plain",
        (
            f"save incident/config/{_file(wanted.service)}.yaml {kubectl} get {deployment} -o yaml",
        ),
    )
    yield Step(
        "Events, of which clusters keep about an hour",
        "one request",
        "names of pods and nodes",
        (f"save incident/events.json {kubectl} get events -o json",),
    )
    start, end = (_iso(t) for t in (incident.start_s, incident.end_s))
    yield Step(
        "Logs of the pods that are there now, and of their containers before a restart",
        "reads all that was written since the start; may be hundreds of MB on busy services",
        "whatever is logged: prompts when the engine logs requests, client addresses, tokens",
        (
            f"for pod in $({kubectl} get pods -l {pods} -o name); do",
            "  name=$(basename \"$pod\")",
            "  for before in false true; do",
            f"    {kubectl} logs \"$pod\" --all-containers --timestamps --since-time={start} "
            f"--previous=$before 2>/dev/null |",
            f"      awk -v end={end} '$1 <= end' > \"incident/$name-$before.log\"",
            "    test -s \"incident/$name-$before.log\" || rm -f \"incident/$name-$before.log\"",
            "  done",
            "done",
        ),
    )  # fmt: skip


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_HEAD = """\
#!/bin/sh
# Collects the recordings of an incident of {service} into {out}/.
# Written by rca collect; read it before you run it. It only reads: from Prometheus and Jaeger with
# curl (logins come from ~/.netrc), from the cluster with kubectl get and logs.
{spans}
set -u
umask 077
failed=0

# get FILE URL CURL-ARGUMENTS...: one answer into a file.
get() {{
  file=$1; shift
  echo "$file" >&2
  curl -fsSG --compressed --netrc-optional --max-time 300 -o "$file" "$@" || {{
    echo "not collected: $file" >&2; rm -f "$file"; failed=1
  }}
}}

# save FILE COMMAND...: what a command prints into a file.
save() {{
  file=$1; shift
  echo "$file" >&2
  "$@" > "$file" || {{ echo "not collected: $file" >&2; rm -f "$file"; failed=1; }}
}}

mkdir -p {quoted}/incident/config {quoted}/baseline/config
cd {quoted} || exit 1
"""
_TAIL = """
rmdir baseline/config baseline 2>/dev/null
test "$failed" = 0 || echo "some of it was not collected, see above" >&2
echo "next: rca init" {quoted} "and then: rca analyze" {quoted}
exit "$failed"
"""


def script(wanted: Request) -> str:
    """The steps as a POSIX shell script."""
    shown = [f"# {s.part}: {_iso(s.start_s)} to {_iso(s.end_s)}" for s in wanted.spans]
    head = _HEAD.format(
        service=printable(wanted.service, 80), out=printable(wanted.out, 200),
        quoted=quote(f"./{wanted.out}" if not wanted.out.startswith("/") else wanted.out),
        spans="\n".join(shown),
    )  # fmt: skip
    parts = [head]
    for step in plan(wanted):
        lines = [
            f"# {step.title}.",
            f"#   Costs: {step.cost}.",
            f"#   Private: {step.private}.",
        ]
        parts.append("\n".join([*lines, *step.commands]) + "\n")
    tail = _TAIL.format(quoted=quote(printable(wanted.out, 200)))
    return "\n".join(parts) + tail
