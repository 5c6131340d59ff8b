"""Every way in which an endpoint can fail ends in one line, with the rules' verdict kept."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import case_builder
import pytest
from llm_server import Raw, completion, elapsed, error, judgement, serving, use

from rca.case import Case
from rca.judge import Ask, LlmJudge, RulesJudge, outcome

ONE = Ask(models=("m",), samples=1, timeout_s=10)
HTML = Raw(b"<!doctype html><title>Sign in</title>", headers={"x": "y"})


@pytest.fixture(scope="module")
def shared() -> Iterator[Case]:
    with case_builder.diagnosed() as made:
        yield made


@pytest.fixture
def case(shared: Case) -> Case:
    """A case that was never asked about."""
    shared.clear(["judge_exchange"])
    return shared


def asked(case: Case, ask: Ask = ONE) -> list[str]:
    """Judge; the verdict must be that of the rules. Returns the lines that say why."""
    rules = RulesJudge().judge(case)
    assert LlmJudge(ask).judge(case) == rules
    return outcome(case)


FAILURES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "prose": (lambda b: "The cause is surely the network.", "prose or broken JSON"),
    "prose around JSON": (lambda b: f"Here: {json.dumps(judgement(b))}", "prose or broken JSON"),
    "fenced prose": (lambda b: "```json\nI think so\n```", "prose or broken JSON"),
    "other JSON": (lambda b: '{"answer": 42}', "JSON of another form"),
    "one field more": (lambda b: json.dumps({**judgement(b), "confidence": 1}), "another form"),
    "a field of another type": (lambda b: json.dumps({**judgement(b), "cited": "E1"}), "another form"),
    "deep JSON": (lambda b: "[" * 5000 + "]" * 5000, "do not count"),
    "cut off": (lambda b: completion('{"claims": [', finish="length"), "cut off after 2000 tokens"),
    "filtered": (lambda b: completion(None, finish="content_filter"), "content filter"),
    "refusal": (lambda b: completion(None, refusal="I can't help"), "refused: I can't help"),
    "empty text": (lambda b: completion("  "), "an empty answer"),
    "no text": (lambda b: completion(None), "an empty answer"),
    "empty choices": (lambda b: Raw(b'{"choices": []}'), "without choices"),
    "odd choices": (lambda b: Raw(b'{"choices": [null]}'), "without choices"),
    "no choices": (lambda b: Raw(b'{"object": "list"}'), "something else than a chat completion"),
    "HTML": (lambda b: HTML, "something else than a chat completion: <!doctype html>"),
    "no bytes": (lambda b: Raw(b""), "something else than a chat completion"),
    "not UTF-8": (lambda b: Raw(b"\xff\xfe{"), "something else than a chat completion"),
    "cut connection": (lambda b: Raw(b'{"cho', cut=True), "broke off"),
    "400": (lambda b: error(400, "bad thing"), "refused the question (400): bad thing"),
    "401": (lambda b: error(401, "Incorrect API key: test-key-1"), "does not take the key"),
    "403": (lambda b: error(403, "region"), "does not permit this (403): region"),
    "404": (lambda b: error(404, "no model m"), "no such path or model"),
    "418": (lambda b: error(418), "unexpected status (418)"),
    "429": (lambda b: error(429, "slow down"), "over its rate limit (429): slow down"),
    "quota": (lambda b: error(429, "x", code="insufficient_quota"), "quota is used up"),
    "500": (lambda b: error(500, "oops"), "in trouble (500): oops"),
    "503 in HTML": (lambda b: Raw(b"<html>\n<h1>503</h1>", 503), "in trouble (503)"),
    "redirect": (lambda b: Raw(b"", 307, {"location": "http://127.0.0.1:9/"}), "redirects"),
    "too much": (lambda b: Raw(b" " * 4_100_000), "more than 4,000,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_failure_ends_in_one_line(
    name: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond, words = FAILURES[name]
    with serving(respond) as server:
        use(server, monkeypatch)
        (line,) = asked(case)
        assert words in line
        assert line.endswith("the rules' verdict stands")
        assert "\n" not in line
        assert "test-key-1" not in line
        assert len(server.bodies) <= 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_no_storm_of_retries(status: int, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: error(status)) as server:
        use(server, monkeypatch)
        asked(case, Ask(models=("m",), samples=20, timeout_s=20))
        assert len(server.bodies) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_will_not_pass_is_asked_once(
    status: int, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: error(status)) as server:
        use(server, monkeypatch)
        asked(case, Ask(models=("m",), samples=20))
        assert len(server.bodies) == 1


def test_a_passing_fault_is_got_over(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [error(500), Raw(b'{"cho', cut=True)]
    with serving(lambda b: faults.pop() if faults else judgement(b)) as server:
        use(server, monkeypatch)
        LlmJudge(ONE).judge(case)
        assert outcome(case) == []
        assert len(server.bodies) == 3


def test_a_long_wait_is_not_waited_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = error(429)
    answer.headers = {"retry-after": "3600"}
    with serving(lambda _: answer) as server:
        use(server, monkeypatch)
        lines, took = elapsed(lambda: asked(case, Ask(models=("m",), timeout_s=2)))
        assert took < 2
        assert "(429)" in lines[0]


def test_silent_endpoint_ends_in_time(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: Raw(b"{}", hang_s=30)) as server:
        use(server, monkeypatch)
        (line,), took = elapsed(lambda: asked(case, Ask(models=("m", "n"), timeout_s=1))[:1])
        assert "did not answer in time" in line
        assert took < 3


def test_endpoint_that_sends_a_byte_at_a_time_ends_in_time(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _: Raw(b" " * 1000, drip_s=0.2)) as server:
        use(server, monkeypatch)
        (line,), took = elapsed(lambda: asked(case, Ask(models=("m",), timeout_s=1)))
        assert "did not answer in time" in line
        assert took < 3


def test_endpoint_that_takes_no_connection_ends_in_time(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        held = [socket.socket() for _ in range(3)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        use(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", monkeypatch)
        (line,), took = elapsed(lambda: asked(case, Ask(models=("m",), timeout_s=1)))
        for one in held:
            one.close()
    assert "did not answer in time" in line
    assert took < 3


def test_refused_connection(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    use(f"http://user:hunter2@127.0.0.1:{port}/v1?key=hunter2", monkeypatch)
    (line,), took = elapsed(lambda: asked(case))
    assert "cannot be reached: [Errno 111] Connection refused" in line
    assert "hunter2" not in line
    assert took < 3


@pytest.mark.parametrize(
    ("url", "key", "models", "words"),
    [
        ("", "k", ("m",), "OPENAI_BASE_URL is set but empty"),
        ("localhost:8000/v1", "k", ("m",), "OPENAI_BASE_URL is no http address"),
        ("file:///etc/passwd", "k", ("m",), "OPENAI_BASE_URL is no http address"),
        ("https://api.openai.com/v1", "", ("m",), "OPENAI_API_KEY is not set"),
        ("https://api.openai.com/v1", "k", (), "no model is named; name one with --model"),
    ],
)
def test_wrong_settings(
    url: str,
    key: str,
    models: tuple[str, ...],
    words: str,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(url, monkeypatch, key)
    (line,) = asked(case, Ask(models=models))
    assert words in line


def test_no_settings_at_all(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    use("", monkeypatch)
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    (line,) = asked(case)
    assert "OPENAI_API_KEY is not set" in line


def test_a_local_server_needs_no_key(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        use(server, monkeypatch, key="")
        LlmJudge(ONE).judge(case)
        assert outcome(case) == []
        assert server.headers[0]["authorization"] == "Bearer none"


@pytest.mark.parametrize(
    ("refused", "instead"),
    [("temperature", None), ("seed", None), ("max_tokens", "max_completion_tokens")],
)
def test_refused_parameters_are_left_out(
    refused: str, instead: str | None, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(body: Any) -> Any:
        told = f"Unsupported parameter: '{refused}' is not supported with this model."
        return error(400, told, param=refused) if refused in body else judgement(body)

    with serving(respond) as server:
        use(server, monkeypatch)
        LlmJudge(Ask(models=("m",), samples=3)).judge(case)
        assert case.rows("SELECT scored FROM judge_panel") == [(3,)]
        assert len(server.bodies) == 4
        assert refused not in server.bodies[-1]
        assert instead is None or server.bodies[-1][instead] == 2000
        sent = json.loads(case.scalar("SELECT parameters FROM judge_exchange LIMIT 1"))
        assert refused not in sent


def test_the_call_is_what_the_seeds_ask_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        use(server, monkeypatch)
        LlmJudge(Ask(models=("m",), samples=2)).judge(case)
    first, second = server.bodies
    assert (first["temperature"], first["top_p"]) == (0, 0.1)
    assert (first["seed"], second["seed"]) == (0, 1)
    form = first["response_format"]["json_schema"]
    assert form["strict"] is True
    fields = list(form["schema"]["properties"])
    assert fields.index("claims") < fields.index("class") < fields.index("cause")
    assert form["schema"]["required"] == fields
    classes = form["schema"]["properties"]["class"]["enum"]
    assert sorted(classes) == [
        "code-regression", "config", "dependency", "infra", "traffic-spike",
    ]  # fmt: skip
    assert server.headers[0]["authorization"] == "Bearer test-key-1"


@pytest.mark.parametrize("wrap", ["```json\n{}\n```", "```\n{}\n```", "<think>Hm.</think>\n{}"])
def test_a_fence_or_a_thought_is_passed_over(
    wrap: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda b: wrap.replace("{}", json.dumps(judgement(b)))) as server:
        use(server, monkeypatch)
        LlmJudge(ONE).judge(case)
        assert outcome(case) == []
