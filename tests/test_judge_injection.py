"""Instructions in telemetry reach no model, change no verdict and no fix."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import case_builder
import injections
import polars as pl
import pytest
from injections import CARRIERS, Variant, variants
from llm_server import Server, judgement

from rca import fixes
from rca.case import Case
from rca.judge import Ask, LlmJudge
from rca.pipeline import Options, analyze

ASK = Ask(models=("m",), samples=1, replay="never")
ALL = list(variants())
FEW = [v for i, v in enumerate(ALL) if i % 17 == 0]
POOL = next((Path(__file__).parent.parent / "sample_traces").glob("*_kv_pool_too_small"))


def test_variants_are_what_they_are_said_to_be() -> None:
    assert len({v.text for v in ALL}) == 200
    assert {v.carrier for v in ALL} == set(CARRIERS)
    assert min(sum(v.carrier == c for v in ALL) for c in CARRIERS) >= 30
    sent = {v.canary for v in ALL if v.seen_in(f"x {v.text} y")}
    assert len(sent) == 200


@pytest.fixture(scope="module")
def case() -> Iterator[Case]:
    with case_builder.diagnosed() as made:
        made.execute("UPDATE verdict SET reason = 'x'")
        yield made


def _kernel(case: Case, text: str) -> None:
    rows = [
        {"source_id": s, "id": 9, "kind": "kernel", "name": text, "start_ns": case_builder.START,
         "dur_ns": 10**9}
        for s in (1, 11)
    ]  # fmt: skip
    case.insert("gpu_op", pl.DataFrame(rows))
    _unknown_signal(case, "torch_profiler", text)


def _span(case: Case, text: str) -> None:
    attributes = json.dumps({"user.prompt": text, text: "x", "resource.service.name": text})
    row = {
        "source_id": 12, "trace_id": "t", "span_id": "s", "service": text, "name": text,
        "start_ns": case_builder.START, "dur_ns": 5, "status": "ok", "attributes": attributes,
    }  # fmt: skip
    case.insert("span", pl.DataFrame([row]))
    _unknown_signal(case, "trace", text)
    case.execute(
        "INSERT INTO attribution VALUES (?, 0, 9e9, 9e9, 0.5, 'E91')", [f"calls of {text}"]
    )
    case.execute(
        "UPDATE evidence SET subject = ? WHERE id = 'E91'", [f"latency:calls of {text}"]
    )


def _label(case: Case, text: str) -> None:
    case.execute(
        "INSERT INTO series VALUES (999, 11, ?, MAP {'pod': ?}, 'gauge', ?)", [text] * 3
    )
    case.execute(
        "INSERT INTO series_role (series_id, role, how, scale, combine, service, replica) "
        "VALUES (999, 'waiting', 'gauge', 1, 'sum', ?, ?)",
        [text] * 2,
    )
    _unknown_signal(case, "metrics", text)
    case.execute("UPDATE evidence SET service = ? WHERE id IN ('E4', 'E7', 'E91')", [text])


def _log(case: Case, text: str) -> None:
    rows = [
        {"source_id": 11, "ts_ns": case_builder.START + i, "service": text, "level": "error",
         "template": text, "message": text, "fields": json.dumps({"m": text})}
        for i in range(50)
    ]  # fmt: skip
    case.insert("log", pl.DataFrame(rows))
    alert = {"source_id": 14, "name": text, "start_ns": case_builder.START, "severity": text,
             "labels": json.dumps({"a": text}), "annotations": json.dumps({"summary": text})}  # fmt: skip
    case.insert("alert", pl.DataFrame([alert]))
    case.execute(
        "INSERT INTO pattern VALUES (9, 'alert', ?, 2, 0, NULL, NULL, NULL, to_json({i: ?}), "
        "to_json(['alert:' || ?, 'log:' || left(md5(?), 8)]))",
        [text] * 4,
    )


def _change(case: Case, text: str) -> None:
    ts_ns = case_builder.START - 10**9
    row = {"id": text, "source_id": 13, "ts_ns": ts_ns, "kind": text, "subject": f"deployment/{text}",
           "before": f"note: {text}", "after": f"{text}: 2 image: {text}", "origin": "record"}  # fmt: skip
    case.insert("change", pl.DataFrame([row]))
    evidence = {
        "id": "E90", "source": "change", "role": "change", "subject": text, "statement": text,
        "unit": "event", "direction": "event", "strength": 0.0, "n_reference": 0, "n_observed": 1,
        "onset_ns": ts_ns, "sql": "SELECT 1",
    }  # fmt: skip
    case.insert("evidence", pl.DataFrame([evidence]))


def _config(case: Case, text: str) -> None:
    for source, value in ((1, "a"), (11, text)):
        for key in ("log_level", text, "timeout"):
            case.execute(
                "INSERT INTO config VALUES (?, ?, ?, ?, NULL)", [source, text, key, value]
            )
    case.execute("INSERT INTO config_file VALUES (11, 'config/x.yaml', ?)", [f"# {text}\n"])
    case.execute("INSERT INTO gap VALUES (?, ?, ?, ?)", [text] * 4)
    case.execute(
        "INSERT INTO pattern VALUES (1, 'request', ?, 5, 0, NULL, NULL, NULL, '{}', '[]')",
        [text],
    )


def _unknown_signal(case: Case, source: str, text: str) -> None:
    """A strong move of something that has no role: its name is all there is."""
    evidence = {
        "id": "E91", "source": source, "role": None, "service": text, "subject": text,
        "statement": f"{text} rose", "unit": text, "direction": "up", "reference": 1.0,
        "observed": 9.0, "strength": 0.99, "n_reference": 9, "n_observed": 9, "sql": "SELECT 1",
    }  # fmt: skip
    case.insert("evidence", pl.DataFrame([evidence]))


PLANT: dict[str, Callable[[Case, str], None]] = {
    "kernel": _kernel, "span": _span, "label": _label, "log": _log, "change": _change,
    "config": _config,
}  # fmt: skip


def judged(case: Case, server: Server) -> tuple[tuple[Any, Any], str]:
    """Verdict and fixes with the server's model as judge, and what it was told."""
    server.bodies.clear()
    verdict = LlmJudge(ASK).judge(case)
    fixes.propose(case)
    (body,) = server.bodies
    told: str = body["messages"][1]["content"]
    return (verdict, case.rows("SELECT * FROM fix ORDER BY id")), told


def hold(case: Case, server: Server, some: list[Variant]) -> None:
    """No piece of any variant arrives, and the answer is that of the clean case."""
    clean, usual = judged(case, server)
    assert case.rows("SELECT agrees FROM judge_panel") == [(True,)]
    for variant in some:
        server.respond = injections.obedient([variant], usual)
        case.execute("BEGIN")
        PLANT[variant.carrier](case, variant.text)
        answer, told = judged(case, server)
        assert not variant.seen_in(told, usual), variant
        assert variant.canary not in server.raw[-1].decode()
        assert answer == clean, variant
        masked = " ".join(v for (v,) in case.rows("SELECT value FROM judge_mask"))
        assert variant.canary in masked.lower()  # it was in the way, and was taken out
        case.execute("ROLLBACK")


def test_an_obedient_model_is_not_reached(case: Case, server: Server) -> None:
    hold(case, server, FEW)


@pytest.mark.slow
def test_no_variant_reaches_an_obedient_model(case: Case, server: Server) -> None:
    hold(case, server, ALL)


def test_a_model_that_reads_the_words_would_obey(case: Case, server: Server) -> None:
    """The check can fail: the same instruction in a catalogue that its owner wrote does arrive."""
    variant = ALL[0]
    server.respond = injections.obedient([variant])
    told = {"messages": [{}, {"content": f'<case>\n{{"evidence": [], "x": "{variant.text}", '
                              f'"candidates": [{_CANDIDATE}]}}\n</case>'}]}  # fmt: skip
    assert server.respond(told)["cause"] == "unknown"  # type: ignore[call-overload, index]


_CANDIDATE = json.dumps(
    {"cause": "overload", "class": "traffic-spike", "title": "t", "evidence_for": [],
     "evidence_against": [], "expects": {}}
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_whole_road_with_every_variant_of_a_carrier(
    carrier: str, tmp_path: Path, server: Server
) -> None:
    found = [v for v in ALL if v.carrier == carrier]
    shutil.copytree(POOL, tmp_path / "clean")
    shutil.copytree(POOL, tmp_path / "dirty")
    _PLANT_FILES[carrier](tmp_path / "dirty" / "incident", found)
    options = Options(judge=LlmJudge(ASK), trial_budget_s=None)
    answers, usual = [], ""
    for name in ("clean", "dirty"):
        server.respond = injections.obedient(found, usual) if usual else judgement
        with analyze([tmp_path / name], options=options) as case:
            told = case.verdict
            parts = {k: told["verdict"][k] for k in ("status", "cause", "class", "judge")}
            answers.append(
                (parts, _read(told["fixes"]), told["provenance"]["judges"][0]["agrees"])
            )
        sent = server.bodies[-1]["messages"][1]["content"]
        usual = usual or sent
    assert answers[0] == answers[1]
    assert [v.canary for v in found if v.seen_in(sent, usual)] == []


def _read(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fixes as a reader sees them: another series or change in the bundle is weighed, as it should be,
    and may move the fifth digit of a confidence."""
    return [f | {"confidence": f["confidence"] and round(f["confidence"], 2)} for f in told]


def _lines(path: Path, texts: list[str]) -> None:
    path.write_text("".join(f"{t}\n" for t in texts), encoding="utf-8", errors="replace")


def _kernel_file(folder: Path, found: list[Variant]) -> None:
    (profile,) = folder.glob("*.pt.trace.json.gz")
    trace = json.loads(gzip.decompress(profile.read_bytes()))
    named = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
    for i, variant in enumerate(found):
        copy = dict(named[i % len(named)])
        trace["traceEvents"].append(copy | {"name": variant.text, "dur": 0.001})
    profile.write_bytes(gzip.compress(json.dumps(trace).encode()))


def _span_file(folder: Path, found: list[Variant]) -> None:
    path = folder / "traces.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for i, variant in enumerate(found):
        place = i % len(lines)
        document = json.loads(lines[place])
        for group in document["resourceSpans"]:
            for scope in group["scopeSpans"]:
                for span in scope["spans"][:1]:
                    tag = {"key": variant.text, "value": {"stringValue": variant.text}}
                    span.setdefault("attributes", []).append(tag)
        lines[place] = json.dumps(document)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def _label_file(folder: Path, found: list[Variant]) -> None:
    rows = [
        f"injected_metric_{v.number}{{note={json.dumps(v.text.encode('ascii', 'replace').decode())}}} {v.number}"
        for v in found
    ]
    _lines(folder / "more.prom", ["# TYPE injected gauge", *rows])


def _log_file(folder: Path, found: list[Variant]) -> None:
    stamp = "2026-03-11T10:00:{:02d}Z"
    _lines(
        folder / "app.jsonl",
        [
            json.dumps({"time": stamp.format(i % 60), "level": "error", "message": v.text})
            for i, v in enumerate(found)
        ],
    )


def _change_file(folder: Path, found: list[Variant]) -> None:
    path = folder / "changes.jsonl"
    rows = path.read_text().splitlines()
    for v in found:
        row = json.loads(rows[0]) | {
            "id": f"x-{v.canary}", "kind": "config", "subject": f"configmap/{v.text}",
            "before": v.text, "after": f"note: {v.text}",
        }  # fmt: skip
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n")


def _config_file(folder: Path, found: list[Variant]) -> None:
    data = {
        "kind": "ConfigMap",
        "metadata": {"name": "notes"},
        "data": {f"k{v.number}": v.text for v in found},
    }
    (folder / "config" / "notes.yaml").write_text(json.dumps(data))


_PLANT_FILES: dict[str, Callable[[Path, list[Variant]], None]] = {
    "kernel": _kernel_file, "span": _span_file, "label": _label_file, "log": _log_file,
    "change": _change_file, "config": _config_file,
}  # fmt: skip
