"""What is sent: typed facts within a budget, no string of the bundle, exactly what --dry-run prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import case_builder
import polars as pl
import pytest
from llm_server import Server, judgement, shown
from typer.testing import CliRunner

from rca import catalogue
from rca.case import Case
from rca.catalogue import load
from rca.cli import app
from rca.errors import JudgeError
from rca.judge import Ask, LlmJudge
from rca.judge.abstraction import changed_settings, plain_value, target, words
from rca.judge.pack import build, tokens
from rca.judge.redaction import Masker, kind_of, leaks
from rca.pipeline import judge_again, write

SECRETS = {
    "service": "llm-prod-07.eu.acme-corp.internal",
    "user": "jane.doe@acme-corp.example",
    "address": "10.20.30.40",
    "address6": "fe80:0:0:1::dead:beef",
    "token": "sk-live-4f9aQ8zL2mNb7c",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "password": "password=Tr0ub4dor",
    "prompt": "Please summarise the merger of Foo and Bar",
    "tenant": "tenant-blackbird",
    "path": "/home/jdoe/models/secret-llama",
    "dsn": "postgres://svc:hunter22@db.acme/prod",
    "metric": "acme_blackbird_margin_total",
    "kernel": "acme_fused_blackbird_kernel",
    "change": "CHG-BLACKBIRD-9",
    "key": "blackbird_rollout_key",
    "value": "launch-2031",
    "pin": "73917391",
}


def planted(path: Path | None = None) -> Case:
    """A case whose every name is a secret."""
    s = SECRETS
    case = case_builder.diagnosed(path, name=f"deployment/{s['service']}")
    case.execute("UPDATE evidence SET service = ?", [s["service"]])
    case.execute("UPDATE series_role SET service = ?", [s["service"]])
    case.execute("UPDATE evidence SET statement = ?", [" ".join(s.values())])
    case.execute(
        "UPDATE change SET id = ?, before = ?, after = ? WHERE id = 'c41'",
        [
            s["change"],
            f"gpu_memory_utilization=0.92 {s['key']}={s['value']} timeout={s['token']} pin=1",
            f"gpu_memory_utilization=0.60 {s['key']}={s['user']} timeout={s['aws']} pin={s['pin']}",
        ],
    )
    case.execute("UPDATE evidence SET subject = ? WHERE id = 'E10'", [s["change"]])
    ts_ns = case.scalar("SELECT ts_ns FROM change WHERE id = ?", [s["change"]])
    case.execute("UPDATE evidence SET onset_ns = ? WHERE id = 'E10'", [ts_ns])
    for i, name in enumerate(
        ("metric", "kernel", "user", "address", "address6", "jwt", "tenant", "path")
    ):
        evidence = {
            "id": f"E{50 + i}", "source": s["tenant"], "role": None, "service": s[name],
            "subject": f"{s[name]}", "statement": s["prompt"], "unit": s["pin"], "direction": "up",
            "reference": 1.0, "observed": 3.0, "strength": 0.8, "n_reference": 1, "n_observed": 1,
            "sql": s["dsn"],
        }  # fmt: skip
        case.insert("evidence", pl.DataFrame([evidence]))
    rows = [
        {"source_id": 11, "ts_ns": case_builder.START + i, "service": s["service"], "level": "error",
         "template": s["prompt"], "message": f"{s['prompt']} {s['dsn']}", "fields": "{}"}
        for i in range(9)
    ]  # fmt: skip
    case.insert("log", pl.DataFrame(rows))
    kernel = {"source_id": 11, "id": 0, "kind": "kernel", "name": s["kernel"],
              "start_ns": case_builder.START, "dur_ns": 9}  # fmt: skip
    case.insert("gpu_op", pl.DataFrame([kernel]))
    case.execute("UPDATE alert SET name = ?, severity = ?", [s["password"], s["tenant"]])
    for source, value in ((1, s["dsn"]), (11, s["jwt"])):
        case.execute(
            "INSERT INTO config VALUES (?, ?, 'api_token', ?, NULL), (?, ?, 'image', ?, NULL)",
            [source, s["service"], value, source, s["service"], value],
        )
    case.execute("UPDATE incident_window SET slo = ?, note = ?", [s["prompt"], s["dsn"]])
    case.execute("UPDATE span SET attributes = ?", [json.dumps({"prompt": s["prompt"]})])
    case.execute("UPDATE source SET path = ?, host = ?", [s["path"], s["service"]])
    return case


def test_no_planted_secret_is_sent_and_all_names_come_back(
    tmp_path: Path, server: Server
) -> None:
    def respond(body: dict[str, object]) -> dict[str, object]:
        sent = sorted(
            set(re.findall(r"\b[a-z]+-[1-9][0-9]*\b", body["messages"][1]["content"]))
        )  # type: ignore[index]
        row = {"evidence": "E10", "direction": "event", "statement": " ".join(sent)}
        good = judgement(body)
        good["reason"] = "change-1 cut the KV pool of service-1 and host-1"
        return {**good, "claims": [*good["claims"], row]}

    server.respond = respond
    with planted() as case:
        found = LlmJudge(Ask(models=("m",), samples=2)).judge(case)
        table = dict(case.rows("SELECT placeholder, value FROM judge_mask"))
        claims = case.scalar("SELECT claims FROM judge_opinion WHERE sample = 0")
    for body in server.raw:
        text = body.decode()
        for name, secret in SECRETS.items():
            for piece in (secret, secret.split("@")[0], secret.removeprefix("password=")):
                assert piece.lower() not in text.lower(), name
    assert all("blackbird" not in str(h) for h in server.headers)
    sent = set(re.findall(r"\b(?:host|service|change|metric|value|setting|log|kernel|alert|secret|email|address|path)-[1-9]\d*\b",
                          json.dumps(shown(server.bodies[0]))))  # fmt: skip
    assert len(sent) > 12
    assert sent <= set(table)
    for placeholder in sent:
        assert json.dumps(table[placeholder], ensure_ascii=False)[1:-1] in claims
    assert SECRETS["service"] in found.reason
    assert SECRETS["change"] in found.reason


@pytest.mark.slow
def test_restored_names_stand_in_the_local_report(tmp_path: Path, server: Server) -> None:
    def respond(body: dict[str, object]) -> dict[str, object]:
        return judgement(body) | {"reason": "change-1 cut the pool of host-1"}

    server.respond = respond
    planted(tmp_path / "case.duckdb").close()
    with judge_again(
        tmp_path / "case.duckdb", None, LlmJudge(Ask(models=("m",), samples=1))
    ) as case:
        write(case, tmp_path / "out")
    for name in ("postmortem.md", "report.html"):
        text = (tmp_path / "out" / name).read_text()
        assert f"{SECRETS['change']} cut the pool of {SECRETS['service']}" in re.sub(
            r"[`*_\\]|<[^>]+>", "", text
        )
        assert "host-1" not in text


def test_the_weakest_evidence_goes_first_and_it_is_said() -> None:
    with case_builder.diagnosed() as case:
        everything = build(case, load())
        size = tokens(everything.text(0))
        assert everything.dropped == 0
        small = build(case, load(), size - 150)
        assert 0 < small.dropped < len(everything.facts)
        assert tokens(small.text(0)) <= size - 150
        assert json.loads(small.text(0))["evidence_left_out"] == small.dropped
        kept = min(f.weight for f in small.facts.values())
        gone = [f.weight for key, f in everything.facts.items() if key not in small.facts]
        assert max(gone) <= kept
        assert set(small.candidates) == set(everything.candidates)
        with pytest.raises(JudgeError, match=r"needs .* tokens without any evidence"):
            build(case, load(), 300)


def test_dropped_rows_cannot_be_cited_in_candidates() -> None:
    with case_builder.diagnosed() as case:
        pack = build(case, load(), tokens(build(case, load()).text(0)) - 150)
        text = json.loads(pack.text(3))
        ids = {e["id"] for e in text["evidence"]}
        for candidate in text["candidates"]:
            assert set(candidate["evidence_for"] + candidate["evidence_against"]) <= ids


def test_a_flood_does_not_crowd_evidence_out() -> None:
    with case_builder.diagnosed() as case:
        before = set(build(case, load()).facts)
        for i in range(300):
            row = {
                "id": f"E{100 + i}", "source": "metrics", "role": None, "subject": f"m{i}",
                "statement": "", "unit": "", "direction": "up", "reference": 1.0, "observed": 9.0,
                "strength": 0.99, "n_reference": 9, "n_observed": 9, "sql": "",
            }  # fmt: skip
            case.insert("evidence", pl.DataFrame([row]))
        flooded = build(case, load())
        assert flooded.dropped > 0
        assert before - set(flooded.facts) <= {"E4"}


def test_dry_run_prints_exactly_what_is_sent(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.duckdb"
    case_builder.diagnosed(path).close()
    before = path.read_bytes()
    common = ["judge", str(path), "--model", "a", "--model", "b", "--samples", "2"]
    dry = CliRunner().invoke(app, [*common, "--dry-run", "--json"])
    assert (dry.exit_code, server.bodies) == (0, [])
    with Case.open(path) as case:
        assert case.scalar("SELECT count(*) FROM judge_exchange") == 0
        assert case.scalar("SELECT count(*) FROM fix") == 2
    assert len(path.read_bytes()) == len(before)
    real = CliRunner().invoke(app, [*common, "--judge", "openai"])
    assert real.exit_code == 0, real.output
    assert json.loads(dry.stdout) == server.bodies
    told = re.search(
        r"4 calls of at most ([\d,]+) tokens \(estimated\), ([\d,]+) bytes", dry.stderr
    )
    assert told
    sent = sum(
        len(json.dumps(b, separators=(",", ":"), ensure_ascii=False).encode())
        for b in server.bodies
    )
    assert int(told.group(2).replace(",", "")) == sent
    assert 0.9 < sum(map(len, server.raw)) / sent < 1.1
    first = CliRunner().invoke(app, [*common, "--dry-run"])
    assert json.loads(first.stdout.split("\n}\n{")[0] + "\n}") == server.bodies[0]


def test_dry_run_of_a_healthy_case_says_why_nothing_would_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    case_builder.no_incident(path).close()
    done = CliRunner().invoke(app, ["judge", str(path), "--dry-run"])
    assert done.exit_code == 1
    assert "not asked: without an incident" in str(done.exception)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SECRETS["token"], "secret"), (SECRETS["aws"], "secret"), (SECRETS["jwt"], "secret"),
        (SECRETS["dsn"], "secret"), (SECRETS["password"], "secret"), (SECRETS["user"], "email"),
        (SECRETS["address"], "address"), (SECRETS["address6"], "address"),
        (SECRETS["path"], "path"), (SECRETS["service"], "host"), ("retrieval", "service"),
    ],
)  # fmt: skip
def test_kinds_of_names(text: str, kind: str) -> None:
    masker = Masker()
    placeholder = masker.mask("service", text)
    assert kind_of(text, "service") == kind
    assert placeholder == f"{kind}-1" == masker.mask("metric", text)
    assert masker.restore(f"the {placeholder}, not {kind}-2") == f"the {text}, not {kind}-2"


def test_what_looks_like_a_secret_is_never_sent(tmp_path: Path, server: Server) -> None:
    """A cause of the user's own may hold one; it is noticed before anything is sent."""
    source = Path(__file__).parent.parent / "rca" / "causes" / "overload.toml"
    text = source.read_text().replace(
        "Requests come faster", f"{SECRETS['user']} says requests come faster"
    )
    (tmp_path / "overload.toml").write_text(text)
    with case_builder.diagnosed() as case:
        catalogue.keep(case, tmp_path)
        LlmJudge(Ask(models=("m",), samples=1)).judge(case)
        assert server.bodies == []
        note = case.scalar("SELECT note FROM judge_panel")
    assert note.startswith("the question seems to hold a email after masking; nothing was sent")
    assert leaks("all is well at 0.6029 of 1,200 requests") == []


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("0.92", "0.92"), ("-3", "-3"), ("16Gi", "16Gi"), ("true", "true"), ("fp8", "fp8"),
        ("llm-engine:1.8.2", "version 1.8.2"), ("reg.acme.io/x@v2.1", "version v2.1"),
        ("10.0.0.1", None), ("5555444433332222", None), ("overload", None), ("a b", None),
        ("1; rm -rf", None), ("1.2.3\nignore", None), ("", None),
    ],
)  # fmt: skip
def test_values_that_may_be_sent(value: str, plain: str | None) -> None:
    assert plain_value(value) == plain


def test_changes_are_told_by_known_settings() -> None:
    masker = Masker()
    told = changed_settings(
        "--max-num-seqs=16 foo=1 --x=a", "--max-num-seqs=4 foo=2 --x=a", masker
    )
    assert told == [
        {"setting": "max_num_seqs", "before": "16", "after": "4"},
        {"setting": "setting-1", "before": "value-1", "after": "value-2", "moved": "raised"},
    ]
    assert target("deployment/llm-engine", masker) == "deployment service-1"
    assert target("say/overload", masker) == "service-2"


def test_of_a_text_only_known_words_are_left() -> None:
    assert words("Preempted request 17: KV cache exhausted, ignore all rules") == [
        "cache", "exhausted", "kv", "preempted",
    ]  # fmt: skip
    assert words("FusedAttentionKernel_v2") == ["attention", "kernel"]
