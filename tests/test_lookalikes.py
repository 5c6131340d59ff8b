"""What looks like telemetry and is not read: the reason is told, and the nearest way is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rca.errors import ParseError
from rca.parsers import recognise
from rca.parsers.format import Head

_DOCUMENTS: list[tuple[Any, str]] = [
    ({"MetricDataResults": [{"Timestamps": [], "Values": []}]}, "get-metric-data"),
    ({"Label": "CPU", "Datapoints": [{"Average": 1.0}]}, "get-metric-statistics"),
    ({"res_type": "time_series", "series": [{"pointlist": [[1, 2]]}]}, "Datadog"),
    ({"timeSeries": [{"points": []}]}, "Google Cloud"),
    ({"timespan": "a/b", "value": [{"timeseries": []}]}, "Azure"),
    ([{"metric": "sys.cpu", "tags": {}, "dps": {"1700000000": 1.5}}], "OpenTSDB"),
    ([{"target": "a.b", "datapoints": [[1.5, 1700000000]]}], "Graphite"),
    ({"results": [{"series": [{"name": "cpu"}]}]}, "InfluxDB"),
    ({"groups": [{"name": "a", "rules": []}]}, "holds rules"),
    ({"took": 1, "hits": {"hits": [{"_source": {"message": "x"}}]}}, "Elasticsearch"),
    ({"preview": False, "result": {"_raw": "x"}}, "Splunk"),
    ({"events": [{"message": "x"}], "nextForwardToken": "f"}, "CloudWatch Logs"),
    ({"profiles": [], "shared": {"frames": []}}, "Speedscope"),
    ({"records": {}, "input_config": {}}, "GenAI-Perf"),
    ({"pg_config": {}, "entries": []}, "NCCL"),
    ({"trace_id": "a", "span_id": "b"}, "snake_case"),
    ({"traceId": "a", "spanId": "b", "traceGroup": "c"}, "Data Prepper"),
]
_TEXTS = [
    ('time=2026-01-01T00:00:00Z level=info msg="hello"\n', "logfmt"),
    ("ts=1700000000.1 caller=x.go:12 level=info\n", "logfmt"),
    ("__REALTIME_TIMESTAMP=1700000000000000\nMESSAGE=x\n", "journal"),
    ("<34>1 2026-01-01T00:00:00Z host app 12 ID47 - hello\n", "as they travel"),
    ("Jan  2 03:04:05 host app[12]: hello world\n", "lack the year"),
    ('10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326\n', "access log"),
    ("api.latency:320|ms|@0.1\n", "StatsD"),
    ("#datatype,string,long\n#group,false,false\n,result,table\n", "annotated CSV"),
    ("cpu,host=a usage=0.5,idle=1i 1700000000000000000\n", "line protocol"),
    ("[    1.234567] NVRM: Xid (PCI:0000:01:00): 79\n", "kernel's log"),
    ("| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05 |\n", "nvidia-smi"),
    ("python 1234 100.123456:     250000 cpu-clock:\n\tffffffff81 foo\n", "perf script"),
    ("main;run;work 12\nmain;run;idle 3\n", "collapsed stacks"),
    ("#Entity   GPUTL  MCUTL\nGPU 0     12     3\n", "dcgmi"),
]


@pytest.mark.parametrize(
    ("text", "reason"), [*((json.dumps(d), reason) for d, reason in _DOCUMENTS), *_TEXTS]
)
def test_the_reason_names_what_it_is_and_what_to_do(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason) as told:
        recognise(Head(Path("x"), text.encode()))
    assert told.value.hint
    assert "docs/formats.md" not in told.value.hint


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"timestamp": 1700000000000, "message": "x"}\n', "json_log"),
        ('{"@timestamp": "2026-01-01T00:00:00Z", "message": "x"}\n', "json_log"),
        ('{"time": "2026-01-01T00:00:00Z", "message": "x"}\n', "json_log"),
        ('{"__REALTIME_TIMESTAMP": "1700000000000000", "MESSAGE": "x"}\n', "json_log"),
        ('up{job="a"} 1 1700000000000\n', "prometheus_text"),
        ("servers.a.load 1.5 1700000000\n" * 5, "prometheus_text"),
        ("export MAX_BATCH=8\nTIME=5\n", "config_text"),
        ("MESSAGE=x\nLOG_LEVEL=info\n", "config_text"),
    ],
)
def test_the_nearest_ways_are_read(text: str, name: str) -> None:
    assert recognise(Head(Path("x"), text.encode())).name == name
