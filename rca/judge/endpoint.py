"""An OpenAI-compatible endpoint: one question, one answer, or one line that says why not.

Every call ends within its deadline: it runs in a thread that is left behind when name lookup, a
dead host or a server that sends a byte a second would hold it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from rca.errors import JudgeError
from rca.plain import printable

OPENAI_URL = "https://api.openai.com/v1"
_MOST_BYTES = 4_000_000
_RETRIES = 2
"""Repeated calls for each model, over all its samples: an endpoint in trouble is left alone."""
_MOST_WAIT_S = 8.0
_OPTIONAL = ("temperature", "top_p", "seed", "max_tokens", "response_format")
"""Parameters that some models refuse; they are left out when the endpoint says so."""


class Failed(Exception):  # noqa: N818 - expected; the rules' verdict stands
    """Why there is no answer, in one line. `again` tells whether the same call may work later."""

    def __init__(self, line: str, *, again: bool = False, wait_s: float = 0.5) -> None:
        super().__init__(line)
        self.again, self.wait_s = again, wait_s


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        text: The model's words; None when there are none to be read.
        problem: Why it cannot be read; None when it can.
        prompt_tokens: As the endpoint counts; None when it does not say.
        body: What was sent in the end: an endpoint may have refused parameters.
    """

    text: str | None
    problem: str | None
    prompt_tokens: int | None
    reply_tokens: int | None
    body: dict[str, Any]
    dur_ns: int


class Endpoint:
    """One address and its key."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key
        self._client: Any = None
        self._left: dict[str, int] = {}
        self._without: dict[str, set[str]] = {}

    @classmethod
    def from_environment(cls) -> Endpoint:
        """The endpoint that OPENAI_BASE_URL and OPENAI_API_KEY name.

        Raises:
            JudgeError: The address is empty or no http address, or OpenAI's own has no key.
        """
        url = os.environ.get("OPENAI_BASE_URL", OPENAI_URL).strip()
        if not url:
            raise JudgeError(
                "OPENAI_BASE_URL is set but empty",
                hint=f"unset it for {OPENAI_URL}, or set it to your endpoint",
            )
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise JudgeError(
                f"OPENAI_BASE_URL is no http address: {printable(without_login(url), 80)}",
                hint="write for example http://localhost:8000/v1",
            )
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not key and url.startswith(OPENAI_URL):
            raise JudgeError(
                "OPENAI_API_KEY is not set",
                hint="set it, or set OPENAI_BASE_URL to an endpoint of your own",
            )
        return cls(url, key or "none")  # the client wants a key; a local server ignores it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def _open(self) -> Any:
        """The client, made at the first call: importing it takes most of a second."""
        if self._client is None:
            import openai

            # A redirect would send the question to whom it was not meant for.
            http = openai.DefaultHttpxClient(follow_redirects=False)
            self._client = openai.OpenAI(
                api_key=self._key, base_url=self._url, max_retries=0, http_client=http
            )
        return self._client

    @property
    def address(self) -> str:
        """The address as it may be shown."""
        return printable(without_login(self._url), 120)

    def ask(self, body: dict[str, Any], deadline: float) -> Answer:
        """The answer to one question, until `deadline` (of time.monotonic).

        Raises:
            Failed: There is none; retried where that may help, at most twice a model.
        """
        model, started = str(body["model"]), time.monotonic_ns()
        left = self._left.setdefault(model, _RETRIES)
        while True:
            refused = self._without.setdefault(model, set())
            sent = {k: v for k, v in body.items() if k not in refused}
            if "max_tokens" in refused:
                sent["max_completion_tokens"] = body["max_tokens"]
            try:
                raw = self._call(sent, deadline)
                return _answer(raw, sent, time.monotonic_ns() - started)
            except _Refused as error:
                refused.add(error.parameter)
            except Failed as error:
                wait_s = min(error.wait_s, _MOST_WAIT_S)
                if not error.again or left <= 0 or time.monotonic() + wait_s >= deadline:
                    raise
                left = self._left[model] = left - 1
                time.sleep(wait_s)

    def _call(self, body: dict[str, Any], deadline: float) -> bytes:
        found: list[bytes | BaseException] = []

        def work() -> None:
            try:
                found.append(self._post(body, deadline))
            except BaseException as error:  # noqa: BLE001 - handed over to the caller's thread
                found.append(error)

        thread = threading.Thread(target=work, daemon=True, name="rca-judge")
        thread.start()
        thread.join(max(deadline - time.monotonic(), 0.0))
        if not found:
            raise Failed(f"{self.address} did not answer in time")
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _post(self, body: dict[str, Any], deadline: float) -> bytes:
        import openai

        left_s = max(deadline - time.monotonic(), 0.001)
        try:
            with (
                self._open()
                .with_options(timeout=left_s)
                .chat.completions.with_streaming_response.create(**body) as response
            ):
                return _limited(response.iter_bytes(), deadline, self.address)
        except openai.APITimeoutError:
            raise Failed(f"{self.address} did not answer in time") from None
        except openai.APIStatusError as error:
            raise self._status(error, body) from None
        except openai.APIConnectionError as error:
            cause = printable(error.__cause__ or error, 100)
            raise Failed(
                f"{self.address} cannot be reached: {cause}", again=_may_pass(error)
            ) from None
        except _transport_errors() as error:  # while the body is read the client wraps none
            if "Timeout" in type(error).__name__:
                raise Failed(f"{self.address} did not answer in time") from None
            raise Failed(
                f"{self.address} broke off: {printable(error, 100)}", again=True
            ) from None
        except openai.OpenAIError as error:
            raise Failed(f"{self.address}: {self._told(error)}") from None  # fmt: skip

    def _status(self, error: Any, body: dict[str, Any]) -> Exception:
        """The failure that an HTTP status stands for."""
        status, told = error.status_code, self._told(error)
        if status in {400, 422}:
            named = str(getattr(error, "param", None) or "")
            for parameter in _OPTIONAL:
                if parameter in body and (
                    named.partition(".")[0] == parameter or _names(told, parameter)
                ):
                    return _Refused(parameter)
            return Failed(f"{self.address} refused the question (400): {told}")
        if status == 429:
            if getattr(error, "code", None) == "insufficient_quota":
                return Failed(f"{self.address}: the account's quota is used up (429)")
            return Failed(
                f"{self.address} is over its rate limit (429): {told}",
                again=True,
                wait_s=_retry_after(error),
            )
        if status >= 500:
            return Failed(
                f"{self.address} is in trouble ({status}): {told}",
                again=True,
                wait_s=_retry_after(error),
            )
        words = {
            401: "does not take the key in OPENAI_API_KEY",
            403: "does not permit this",
            404: "has no such path or model; see OPENAI_BASE_URL and --model",
        }
        word = words.get(
            status,
            "redirects; set OPENAI_BASE_URL to where it leads"
            if 300 <= status < 400
            else "gave an unexpected status",
        )
        return Failed(f"{self.address} {word} ({status}): {told}")  # fmt: skip

    def _told(self, error: Any) -> str:
        """The server's own words, short, without the key."""
        body = getattr(error, "body", None)
        message = body.get("message") if isinstance(body, dict) else None
        text = str(message or getattr(error, "message", None) or error)
        return printable(text.replace(self._key, "[key]") if len(self._key) > 4 else text, 120)


def _transport_errors() -> type[Exception]:
    """The root of the errors of the HTTP package that this openai is built on."""
    import importlib

    import openai

    package = openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]
    found: type[Exception] = importlib.import_module(package).HTTPError
    return found


class _Refused(Exception):  # noqa: N818 - handled here
    """The endpoint refuses one parameter."""

    def __init__(self, parameter: str) -> None:
        super().__init__(parameter)
        self.parameter = parameter


def without_login(url: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else parts.path


def _limited(chunks: Any, deadline: float, address: str) -> bytes:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) > _MOST_BYTES:
            raise Failed(f"{address} sent more than {_MOST_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise Failed(f"{address} did not answer in time")
    return bytes(held)


def _may_pass(error: BaseException) -> bool:
    """Whether a connection broke that had been made; nobody listening is final."""
    return "ConnectError" not in type(error.__cause__ or error).__name__


def _names(told: str, parameter: str) -> bool:
    """Whether a refusal speaks of one parameter, as OpenAI and vLLM word it."""
    low = told.lower()
    return parameter in low and any(w in low for w in ("unsupported", "not support", "unknown", "unrecognized", "extra"))  # fmt: skip


def _retry_after(error: Any) -> float:
    try:
        return max(float(error.response.headers.get("retry-after", "1")), 0.0)
    except ValueError:
        return 1.0


def _answer(raw: bytes, sent: dict[str, Any], dur_ns: int) -> Answer:
    """The answer in the bytes of a 200.

    Raises:
        Failed: They are no answer of a chat endpoint.
    """
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("choices"), list):
        start = printable(raw[:40].decode("utf-8", "replace"), 60)
        raise Failed(
            f"the endpoint answered with something else than a chat completion: {start}"
        )
    text, problem = _content(data["choices"], sent)
    usage = data.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        text, problem, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")),
        sent, dur_ns,
    )  # fmt: skip


def _content(choices: list[Any], sent: dict[str, Any]) -> tuple[str | None, str | None]:
    first = choices[0] if choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    if not isinstance(message, dict):
        return None, "an answer without choices"
    text = message.get("content")
    text = text if isinstance(text, str) and text.strip() else None
    if message.get("refusal"):
        return text, f"the model refused: {printable(message['refusal'], 100)}"
    if first.get("finish_reason") == "length":
        limit = sent.get("max_tokens") or sent.get("max_completion_tokens")
        return text, f"cut off after {limit} tokens"
    if first.get("finish_reason") == "content_filter":
        return text, "cut by the endpoint's content filter"
    return text, None if text else "an empty answer"


def _count(value: Any) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return value if sound else None
