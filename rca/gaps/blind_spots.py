"""Where the telemetry that is there does not look: rows for the table gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rca import sampling
from rca.case import Case
from rca.plain import printable

ORPHAN_SHARE = 0.02
PAUSE_STEPS = 3.0
UNLABELLED_SHARE = 0.5
_NAMED = 3


class Gap(NamedTuple):
    """One row of the table gap."""

    code: str
    statement: str
    would_decide: str | None
    record: str | None


def find(case: Case) -> list[Gap]:
    """All blind spots of the incident's telemetry."""
    looks: tuple[Callable[[Case], Iterator[Gap]], ...] = (
        _orphans, _lost_roots, _batches, _sampling, _objectives, _memory, _clock, _pauses, _span_labels,
        _series_labels, _identifiers,
    )  # fmt: skip
    return [gap for look in looks for gap in look(case)]


def find_usual(case: Case) -> list[Gap]:
    """Blind spots that most recordings have: what is peculiar to a case is told before them."""
    return [*_gpus(case), *_unchecked_clocks(case), *_series_versions(case)]


def _gpus(case: Case) -> Iterator[Gap]:
    """What is not known of the devices, where an engine is at work: their metrics, else their work in captures."""
    if not case.scalar("SELECT count(*) FROM engine_service"):
        return
    of_gpus = "SELECT count(*) FROM series_role WHERE role LIKE 'gpu\\_%' ESCAPE '\\' OR role = 'sm_clock'"
    captures = "SELECT count(*) FROM source WHERE part = 'incident' AND kind IN ('torch_profiler', 'nsys')"
    if not case.scalar(of_gpus):
        yield Gap(
            "no_gpu_metrics",
            "no metrics of the GPUs in the incident's recordings",
            "heat, power limits and errors of a device, full memory, a GPU that waits for its host",
            "run dcgm-exporter --kubernetes beside the engine, and export DCGM_FI_DEV_SM_CLOCK, "
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS, DCGM_FI_DEV_FB_USED and DCGM_FI_PROF_DRAM_ACTIVE",
        )
    elif case.scalar(captures) and not case.scalar("SELECT count(*) FROM gpu_op"):
        yield Gap(
            "no_gpu_capture",
            "the captures hold no work of a GPU, which the metrics show",
            "whether kernels are slow, or the GPU waits for launches, copies or other ranks",
            "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], or "
            "nsys profile -t cuda,nvtx --delay 30 --duration 5 on the engine",
        )


def _listed(names: Sequence[str]) -> str:
    shown = [printable(n, 60) or "an unnamed service" for n in names[:_NAMED]]
    return ", ".join(shown) + (
        f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    )


def _orphans(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT service, orphans, spans FROM orphan_span WHERE orphans > ? * spans ORDER BY orphans DESC, service",
        (ORPHAN_SHARE,),
    )
    if rows:
        yield Gap(
            "orphaned_spans",
            f"{sum(r[1] for r in rows)} of {sum(r[2] for r in rows)} spans of {_listed([r[0] for r in rows])} "
            "name a parent that is not there: context is lost on the way, or spans are dropped",
            "where those requests waited",
            "pass traceparent on through queues and background work; sample by trace, not by span",
        )


def _lost_roots(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT service, lost_roots, spans FROM orphan_span WHERE lost_roots > ? * spans "
        "ORDER BY lost_roots DESC, service",
        (ORPHAN_SHARE,),
    )
    if rows:
        yield Gap(
            "lost_context",
            f"{sum(r[1] for r in rows)} spans of {_listed([r[0] for r in rows])} begin a trace although the service "
            "is called by others: the context is lost at an asynchronous boundary",
            "which request, tenant and queue they belong to",
            "take the context along explicitly: inject traceparent into the queue's message, extract it in the worker",
        )


def _batches(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT service, name, spans, mean_requests FROM batch_span ORDER BY spans DESC, service, name"
    )
    for service, name, spans, mean in rows[:1]:
        yield Gap(
            "batch_mixed",
            f"{spans} spans {printable(name, 60)} of {printable(service, 60)} stand for {mean:.3g} requests each: "
            "their latency belongs to none of them",
            "which request of a batch made the others slow",
            "give each request a span of its own with a link to the batch's span, and the batch size as an attribute",
        )
    triton = case.rows(
        "SELECT max(v.value) FILTER (s.name = 'nv_inference_count') / "
        "nullif(max(v.value) FILTER (s.name = 'nv_inference_exec_count'), 0) "
        "FROM series AS s JOIN sample AS v ON v.series_id = s.id "
        "WHERE s.name IN ('nv_inference_count', 'nv_inference_exec_count')"
    )[0][0]
    if triton and triton > 1.05 and not rows:
        yield Gap(
            "batch_mixed",
            f"the server's counters are sums over batches of {triton:.3g} requests on average: quantiles for single "
            "requests cannot be had from them",
            "whether few requests are very slow or all a little",
            "start Triton with --metrics-config summary_latencies=true, or trace with --trace-config rate=100",
        )


def _sampling(case: Case) -> Iterator[Gap]:
    if told := sampling.told(case):
        yield Gap(
            "sampled_traces",
            f"{told}: counts and high quantiles from spans are biased",
            "which single requests were slow, and whose they were",
            "OTEL_TRACES_SAMPLER=always_on for the engine and gateway, or tail sampling that keeps all slow and failed requests",
        )


def _objectives(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT example, message FROM ingest_note WHERE code = 'objective_unchecked' ORDER BY rowid"
    )
    if rows:
        told = "; ".join(
            f"whether {printable(text, 80)} was kept is not known: {why}" for text, why in rows
        )
        yield Gap(
            "objective_unchecked",
            told,
            "whether the promise to users was broken, and when",
            "scrape the latency histogram of the gateway (http_server_request_duration_seconds) or the engine with a "
            "bucket whose bound is the limit, or trace every request",
        )


def _memory(case: Case) -> Iterator[Gap]:
    engines, replicas = case.rows(
        "SELECT count(DISTINCT service), count(DISTINCT (service, replica)) FROM series_role WHERE role = 'running'"
    )[0]
    if not engines:
        return
    watched = case.scalar(
        "SELECT count(DISTINCT (service, replica)) FROM series_role WHERE role IN ('host_memory', 'gpu_memory') "
        "AND service IN (SELECT service FROM series_role WHERE role = 'running') AND replica <> ''"
    )
    if watched < replicas:
        yield Gap(
            "no_instance_memory",
            f"memory is recorded for {watched} of {replicas} engine instances",
            "a leak against fragmentation, a larger batch, or a neighbour on the same device",
            "scrape container_memory_working_set_bytes (cAdvisor) and DCGM_FI_DEV_FB_USED with Kubernetes' pod labels "
            "(dcgm-exporter --kubernetes)",
        )


def _clock(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT n.message, s.part FROM ingest_note AS n JOIN source AS s ON s.id = n.source_id "
        "WHERE n.code = 'clock_skew_unknown' AND s.part = 'incident' ORDER BY s.id LIMIT 1"
    )
    if rows and case.scalar(
        "SELECT count(*) FROM source WHERE kind = 'metrics' AND part = 'incident'"
    ):
        yield Gap(
            "clock_skew_unknown",
            f"traces are not set against the metrics' clock: {printable(rows[0][0], 300)}",
            "the order of changes, spans and metrics within some seconds",
            "keep http_server_request_duration_seconds (or the engine's e2e histogram) with its buckets, scraped every "
            "15 s or closer, and run chrony on every node",
        )


_CLOCKS = {
    "change": "changes",
    "log": "logs",
    "alert": "alerts",
    "torch_profiler": "captures",
    "nsys": "captures",
}


def _unchecked_clocks(case: Case) -> Iterator[Gap]:
    """Recordings whose clock nothing was set against: only spans are held against the metrics."""
    kinds = {k for (k,) in case.rows(
        "SELECT DISTINCT kind FROM source WHERE part = 'incident' AND n_rows > 0 AND shift_error_ns IS NULL"
    )}  # fmt: skip
    timed = case.scalar(
        "SELECT count(*) FROM source WHERE part = 'incident' AND kind IN ('metrics', 'trace') AND n_rows > 0"
    )
    names = list(dict.fromkeys(words for kind, words in _CLOCKS.items() if kind in kinds))
    if timed and names:
        yield Gap(
            "clock_unchecked",
            f"the clock of {', '.join(names)} was not checked against that of metrics and traces: times stand as recorded",
            f"the order of {', '.join(names)} and the onset where they lie within seconds of each other",
            "chronyc tracking > chrony.HOST.txt on every machine that records",
        )


def _pauses(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT target, pauses, longest_ns, step_ns FROM scrape_pause WHERE longest_ns >= ? * step_ns "
        "ORDER BY longest_ns DESC, target",
        (PAUSE_STEPS,),
    )
    if rows:
        yield Gap(
            "scrape_gaps",
            f"{_listed([r[0] for r in rows])} could not be scraped for up to {rows[0][2] / 1e9:.0f} s "
            f"(usually every {rows[0][3] / 1e9:.0f} s)",
            "whether an outage, a restart or a failed scrape lies in the pause",
            "export up and scrape_duration_seconds with the rest, and keep the scrape timeout below the interval",
        )


def _span_labels(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT service, spans, no_version, no_environment FROM unlabelled_span ORDER BY service"
    )
    lacking = [
        (label, flag, [r[0] for r in rows if r[column] > UNLABELLED_SHARE * r[1]])
        for label, flag, column in (
            ("service.version", "service.version=VERSION", 2),
            ("deployment.environment.name", "deployment.environment.name=ENV", 3),
        )
        # One environment needs no name: it is missed where others have it.
        if column == 2 or any(r[column] < r[1] for r in rows)
    ]
    unnamed = [r for r in rows if not r[0]]
    lacking += (
        [("service.name", "service.name=NAME", ["spans without a service"])] if unnamed else []
    )
    told = [(label, flag, names) for label, flag, names in lacking if names]
    if told:
        yield Gap(
            "span_labels",
            "; ".join(
                f"spans of {_listed(names)} carry no {label}" for label, _, names in told
            ),
            "whether a new version came at the onset"
            if "service.version" in {t[0] for t in told}
            else None,
            f"OTEL_RESOURCE_ATTRIBUTES={','.join(flag for _, flag, _ in told)}",
        )


def _series_labels(case: Case) -> Iterator[Gap]:
    nameless, series = case.rows(
        "SELECT count(*) FILTER (service = ''), count(*) FROM series_role"
    )[0]
    if series and nameless > UNLABELLED_SHARE * series:
        yield Gap(
            "series_labels",
            f"{nameless} of {series} series do not say which service they speak of",
            "which service is to blame",
            "export with job, instance and pod labels: query_range keeps them unless the query sums them away",
        )


def _series_versions(case: Case) -> Iterator[Gap]:
    """Engines of which neither metrics nor spans name a version; an environment is missed where others have one."""
    rows = case.rows(
        "SELECT service, series, with_version, with_environment FROM labelled_series ORDER BY service"
    )
    engines = {s for (s,) in case.rows("SELECT service FROM engine_service")}
    told_by_spans = {s for (s,) in case.rows(
        "SELECT service FROM unlabelled_span WHERE no_version < spans"
    )}  # fmt: skip
    unversioned = [r[0] for r in rows if r[0] in engines - told_by_spans and not r[2]]
    nowhere = [r[0] for r in rows if not r[3]] if any(r[3] for r in rows) else []
    told = [
        f"series of {_listed(names)} carry no {label}"
        for label, names in (("version", unversioned), ("environment", nowhere))
        if names
    ]
    if told:
        yield Gap(
            "series_versions",
            "; ".join(told),
            "whether a new version came at the onset"
            if unversioned
            else "which environment the figures are of",
            "add labels at the scrape, from the pod: relabel_configs: [{source_labels: "
            "[__meta_kubernetes_pod_label_app_kubernetes_io_version], target_label: version}]",
        )


def _identifiers(case: Case) -> Iterator[Gap]:
    rows = case.rows(
        "SELECT key, n_values, n_series, metric FROM identifier_label ORDER BY n_values DESC, key"
    )
    if rows:
        key, values, _, metric = rows[0]
        yield Gap(
            "identifier_labels",
            f"label {printable(key, 60)} has {values} values (on {printable(metric, 80)}): an identifier as a label "
            "makes a series for each request, and none is long enough to tell anything",
            "which service or replica moved, by series that last long enough to be compared",
            f"drop it at the scrape: metric_relabel_configs: [{{action: labeldrop, regex: {printable(key, 60)}}}]; "
            "put identifiers on spans and exemplars",
        )
