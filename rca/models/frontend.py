"""What an API server does beside the model: text to tokens and back, JSON, a log.

All of it is real work, so that a slow path costs what it costs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from rca import scratch
from rca.models.settings import Plan
from rca.models.workload import VOCABULARY

DETOKENISE = "detokenize"
"""What the range around it is called where a profiler looks on."""
_STOCK_WORDS = 12_000  # the file is larger than the model's vocabulary, as real ones are


class Frontend:
    """Tokenizer, detokenizer, serialiser and log of one process; use it as a context."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loads = 0
        self.grammars = 0
        self.written_bytes = 0
        self._ends = ExitStack()
        folder = self._ends.enter_context(scratch.folder())
        self._path = folder / "vocabulary.json"
        self._path.write_text(json.dumps({f"w{n}": n for n in range(_STOCK_WORDS)}))
        self._load()
        self._log = (folder / "engine.log").open("a", encoding="utf-8")

    def __enter__(self) -> Frontend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log and remove the folder."""
        self._log.close()
        self._ends.close()

    def _load(self) -> None:
        self.loads += 1
        self._ids: dict[str, int] = json.loads(self._path.read_text())
        self._words = list(self._ids)

    def tokenise(self, tokens: Sequence[int], loads: int) -> list[int]:
        """Token numbers by way of their text; the vocabulary is read again `loads` times."""
        for _ in range(loads):
            self._load()
        text = " ".join(self._words[token] for token in tokens)
        return [self._ids[word] for word in text.split()]

    def build_grammar(self, states: int) -> int:
        """States of an automaton for a schema; returns how many transitions there are."""
        self.grammars += 1
        table = [
            {(state * 31 + step) % VOCABULARY for step in range(64)} for state in range(states)
        ]
        return sum(len(row) for row in table)

    def detokenise(self, output: Sequence[int]) -> str:
        """The text of the newest token; a slow build makes the whole output's again."""
        window = self.plan.args.detokenizer_window
        text: str = self._words[output[-1]]
        for _ in range(self.plan.build.detokenize_repeats):
            text = " ".join(
                self._words[token] for token in (output[-window:] if window else output)
            )
        return text

    def emit(self, text: str, number: int, logprobs: Sequence[float]) -> int:
        """Write the chunk of an answer's token of this number; returns its size in bytes."""
        if not logprobs:
            return len(json.dumps({"text": text[-16:], "index": number}))
        if self.plan.args.response_format == "packed":
            return len(bytes(int(255 * min(1.0, -p / 32)) for p in logprobs[:32])) + len(text)
        return len(json.dumps({"text": text[-16:], "logprobs": _named(self._words, logprobs)}))

    def log(self, request: str, token: int) -> None:
        """One line a token; unless buffered it is on the disk before this returns."""
        self.written_bytes += self._log.write(
            f"DEBUG request={request} token={token} {'state ' * 20}\n"
        )
        if not self.plan.args.log_buffered:
            self._log.flush()
            os.fsync(self._log.fileno())


def _named(words: Sequence[str], logprobs: Sequence[float]) -> dict[str, float]:
    return {words[index % VOCABULARY]: value for index, value in enumerate(logprobs)}
