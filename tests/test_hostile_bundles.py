"""Bundles made to harm: each is read within 1 GB and 20 s of CPU time, or refused in one line.

Each runs in a process of its own, whose peak memory and CPU time are measured.
"""

from __future__ import annotations

from pathlib import Path

import hostile_files as hostile
import pytest
from hostile_files import DEEP, DIGITS, GOOD, Make, sqlite, text
from measured import rca

from rca.case import Case

_DEEP_LIST, _DEEP_MAP = "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP
_EVENT = '{"ph": "X", "name": "k", "cat": "kernel", "pid": 0, "tid": 7, "dur": 1, "args": {"device": 0, "stream": 7}, "ts": %s}'  # fmt: skip
_TRACE = '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [%s]}'
_QUERY = '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up"},"values":[[%s,"%s"]]}]}}'  # fmt: skip
_OTLP = '{"resourceSpans":[{"resource":%s,"scopeSpans":[{"spans":[{"traceId":"01","spanId":"02","name":"x","startTimeUnixNano":"%s","endTimeUnixNano":"5"}]}]}]}'  # fmt: skip

READ_ALONE: dict[str, Make] = {
    "deep list": text("a.json", _DEEP_LIST),
    "deep map": text("a.json", _DEEP_MAP),
    "deep, never closed": text("a.json", "[" * DEEP),
    "deep profiler": text("a.json", _TRACE % _DEEP_LIST),
    "deep arguments": text("a.json", _TRACE % ('{"ph":"X","ts":1,"args":' + _DEEP_MAP + "}")),
    "deep jaeger": text("a.json", '{"data":[{"traceID":"1","spans":[' + _DEEP_LIST + "]}]}"),
    "deep otlp": text("a.json", _OTLP % (_DEEP_MAP, 1)),
    "deep query_range": text("a.json", _QUERY.replace('{"__name__":"up"}', _DEEP_MAP) % (1, 1)),
    "deep log line": text("a.log", '{"time":"2026-03-01T10:00:00Z","msg":' + _DEEP_LIST + "}\n"),
    "deep yaml": text("a.yaml", "apiVersion: v1\nkind: Pod\nspec: " + _DEEP_LIST),
    "yaml that multiplies": text(
        "a.yaml",
        "a0: &a0 [x, x]\n"
        + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
        + "kind: Pod\napiVersion: v1\n",
    ),
    "deep bundle.toml": text("bundle.toml", "a = " + _DEEP_LIST),
    "number of 10 MB as time": text("a.json", _TRACE % (_EVENT % DIGITS)),
    "number of 10 MB as start": text(
        "a.json", hostile.CYCLE.replace(str(hostile.NOW), DIGITS, 1)
    ),
    "number of 10 MB as OTLP time": text("a.json", _OTLP % ("{}", DIGITS)),
    "number of 10 MB as value": text("a.json", _QUERY % (1_700_000_000, DIGITS)),
    "number of 10 MB as sample time": text("a.json", _QUERY % (DIGITS, 1)),
    "number of 10 MB in text": text("m.txt", f"# TYPE load gauge\nload {DIGITS} 1700000000\n# EOF\n"),
    "time of 10 MB in text": text("m.txt", f"# TYPE load gauge\nload 1 {DIGITS}\n# EOF\n"),
    "name of 10 MB in text": text("m.txt", f"# TYPE load gauge\nl{DIGITS} 1 1700000000\n# EOF\n"),
    "exponent": text("a.json", _TRACE % (_EVENT % "1e999999999")),
    "change in year 1e9": text("c.jsonl", GOOD.replace(b"2026-03-01T10:00:00Z", b"1e999999999")),
    "keys repeated": text("a.json", '{"traceEvents":[' + "{" + '"ts":1,' * 1_000_000 + '"ts":2}]}'),
    "lists repeated": text("a.json", "{" + '"traceEvents":[{"ph":"X"}],' * 100_000 + '"x":1}'),
    "endless view": sqlite(hostile.ENDLESS_VIEW),
    "value of 800 MB": sqlite(hostile.HUGE_VALUE),
    "pages of noise": hostile.cut_pages,
    "database that is written to": hostile.locked,
    "spans in cycles": text("t.json", hostile.CYCLE),
    "chain of 20,000 spans": text("t.json", hostile.CHAIN),
    "year 2500": text("t.json", hostile.YEAR_2500),
    "year 2200": text("t.json", hostile.YEAR_2200),
    "message that claims 2 GB": hostile.varint_bomb,
    "tar that leads out": hostile.tar_of_members_that_lead_out,
    "zip that leads out": hostile.zip_of_members_that_lead_out,
    "nested archives": hostile.nested_archives,
    "bomb": hostile.zip_bomb,
    "overlapping members": hostile.zip_of_overlapping_members,
    "too many members": hostile.tar_with_too_many_members,
    "list of members without end": hostile.zip_that_lists_members_without_end,
    "tar passed over without end": hostile.tar_that_is_passed_over_without_end,
    "links without end": hostile.tar_of_links_without_end,
    "packed bomb": hostile.packed_bomb,
    "label sets without end": hostile.label_sets,
}  # fmt: skip


CASES = [  # a process each: a fifth of them is enough while one works
    name if number % 5 == 1 else pytest.param(name, marks=pytest.mark.slow)
    for number, name in enumerate(READ_ALONE)
]


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_or_refused_within_limits(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    made = READ_ALONE[name](folder)
    (folder / "changes.jsonl").write_bytes(GOOD)
    done = rca("analyze", folder, "--out", tmp_path / "out", "--no-trial", "--quiet")
    print(
        f"{name}: {done.peak_bytes / 1e6:.0f} MB, {done.cpu_s:.1f} s, {done.err.strip()[:200]}"
    )
    assert done.code in (0, 1), done.err
    if done.code:
        (line,) = done.err.strip().splitlines()
        assert made.name in line
        return
    with Case.open(tmp_path / "out" / "case.duckdb") as case:  # the file beside it is not lost
        assert case.scalar("SELECT count(*) FROM change WHERE id = 'c1'") == 1
        assert not list(tmp_path.parent.glob("*up.json"))
