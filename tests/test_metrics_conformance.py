"""Metric exports of other people: every count of the index, exactly; what has no samples says so."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rca.case import Case
from rca.errors import BundleError

_DATA = os.environ.get("RCA_CONFORMANCE_DATA")
_MS = 1_000_000


def _rows() -> list[dict[str, str]]:
    if not _DATA:
        return []
    with (Path(_DATA) / "metrics" / "INDEX.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


# An OTLP histogram and an exponential one are counted by the index as data points, not as native.
_COUNTS = """
WITH value AS (
    SELECT series_id, ts_ns, value, false AS native FROM sample
    UNION ALL SELECT series_id, ts_ns, NULL, true FROM histogram_sample
)
SELECT (SELECT count(*) FROM series) AS n_series,
    count(*) AS n_samples,
    count(*) FILTER (isnan(value)) AS n_nan,
    count(*) FILTER (isinf(value)) AS n_inf,
    count(*) FILTER (native) AS n_hist,
    min(ts_ns) AS first_ns, max(ts_ns) AS last_ns
FROM value"""
_READ = [r for r in _rows() if r["n_samples"] not in ("", "0")]
_NO_SAMPLES = [r for r in _rows() if r["n_samples"] == "0"]


def test_index_is_there(conformance: Path) -> None:
    assert len(_rows()) >= 45


@pytest.mark.parametrize("row", _READ, ids=lambda r: r["file"])
def test_counts_are_those_of_the_oracle(
    row: dict[str, str], read_files: Callable[..., Case], conformance: Path
) -> None:
    case = read_files(conformance / "metrics" / row["file"])
    [found] = case.sql(_COUNTS).to_dicts()
    names = ["n_series", "n_samples", "n_nan", "n_inf"]
    if row["file"] != "otelproto_metrics.json":
        names.append("n_hist")
    assert {n: found[n] for n in names} == {n: int(row[n]) for n in names}
    if row["first_ms"]:
        assert found["first_ns"] // _MS == int(row["first_ms"])
        assert found["last_ns"] // _MS == int(row["last_ms"])
    else:  # no time stamps: one instant, and it is said
        assert found["first_ns"] == found["last_ns"]
        assert case.scalar("SELECT count(*) FROM ingest_note WHERE code = 'no_timestamps'") == 1
    assert case.scalar("SELECT status FROM source") == "ok"
    assert case.scalar("SELECT n_elements FROM source") == int(row["n_samples"])


@pytest.mark.parametrize("row", _NO_SAMPLES, ids=lambda r: r["file"])
def test_what_has_no_samples_is_refused_with_the_reason(
    row: dict[str, str], read_files: Callable[..., Case], conformance: Path
) -> None:
    path = conformance / "metrics" / row["file"]
    if row["file"] in ("query_vector_empty.json", "alerts.json"):  # sound, and empty
        case = read_files(path)
        assert case.scalar("SELECT status FROM source") == "empty"
        assert case.scalar("SELECT count(*) FROM ingest_note") == 1
        return
    reasons = {
        "aspenmesh_prometheus_metrics.json": "list of metric names",
        "query_error_400.json": "unclosed left parenthesis",
        "query_string.json": "a string",
        "rules.json": "rules",
        "series.json": "label sets",
        "targets.json": "scrape targets",
    }
    with pytest.raises(BundleError, match=reasons.get(row["file"], "no samples")):
        read_files(path)


_PARITY = "SELECT s.labels['le'] AS le, p.ts_ns, p.value FROM sample p JOIN series s ON s.id = p.series_id JOIN source o ON o.id = s.source_id WHERE o.path = '{}'"
_RAW = "SELECT id, labels['le'] AS le FROM series WHERE name = 'vllm:time_to_first_token_seconds_bucket'"


@pytest.mark.parametrize(
    "name", ["range_ttft_bucket_rate.json", "query_vector_ttft_bucket_rate.json"]
)
def test_rates_are_those_of_the_server(
    name: str, read_files: Callable[..., Case], conformance: Path
) -> None:
    folder = conformance / "metrics"
    case = read_files(folder / "promtool_tsdb_dump_vllm.txt", folder / name)
    found = case.sql(
        f"""WITH told AS ({_PARITY.format(name)}), raw AS ({_RAW})
        SELECT told.value, prom_rate(raw.id, told.ts_ns, 20_000_000_000) AS rate
        FROM told JOIN raw USING (le)"""
    )
    assert len(found) == (1633 if name.startswith("range") else 23)
    assert found["rate"].null_count() == 0
    worst = ((found["rate"] - found["value"]).abs() / found["value"].abs().clip(1e-12)).max()
    assert worst < 1e-9


@pytest.mark.parametrize("name", ["range_ttft_p99.json", "query_vector_ttft_p99.json"])
def test_quantiles_are_those_of_the_server(
    name: str, read_files: Callable[..., Case], conformance: Path
) -> None:
    folder = conformance / "metrics"
    case = read_files(folder / "promtool_tsdb_dump_vllm.txt", folder / name)
    found = case.sql(
        f"""WITH told AS ({_PARITY.format(name)}), raw AS ({_RAW}),
        bucket AS (
            SELECT told.ts_ns, told.value, prom_bound(raw.le) AS le,
                prom_rate(raw.id, told.ts_ns, 20_000_000_000) AS count
            FROM told CROSS JOIN raw
        )
        SELECT value, prom_histogram_quantile(0.99, list({{'le': le, 'count': count}})) AS p99
        FROM bucket GROUP BY ts_ns, value"""
    )
    assert len(found) == (71 if name.startswith("range") else 1)
    assert ((found["p99"] - found["value"]).abs() / found["value"]).max() < 1e-9


def test_quantiles_of_native_histograms_are_those_of_the_server(
    read_files: Callable[..., Case], conformance: Path
) -> None:
    folder = conformance / "metrics"
    case = read_files(
        folder / "range_native_histogram_rate.json", folder / "range_native_p99.json"
    )
    found = case.sql("""
        SELECT s.value, prom_native_quantile(0.99, h.count, h.buckets) AS p99
        FROM sample AS s JOIN histogram_sample AS h ON h.ts_ns = s.ts_ns""")
    assert len(found) == 8
    assert ((found["p99"] - found["value"]).abs() / found["value"]).max() < 1e-12


def test_labels_and_types_survive(read_files: Callable[..., Case], conformance: Path) -> None:
    case = read_files(conformance / "metrics" / "federate.txt")
    path = case.scalar("SELECT labels['path'] FROM series WHERE name = 'demo_escapes'")
    assert path == 'C:\\x\n"q"'


def test_a_block_is_read_by_promtool_or_says_how(
    read_files: Callable[..., Case], conformance: Path
) -> None:
    import shutil

    [meta] = (conformance / "metrics" / "tsdb_block").glob("*/meta.json")
    if shutil.which("promtool"):
        case = read_files(meta)
        assert case.scalar("SELECT count(*) FROM series") == 1356
        assert case.scalar("SELECT count(*) FROM sample") == 175_962
    else:
        with pytest.raises(BundleError, match="promtool tsdb dump"):
            read_files(meta)
