"""What vLLM is given: a small Llama's sizes, a vocabulary of words, and a middleware.

No weights are needed (`--load-format dummy` draws them), nothing is downloaded. A word is a
token, so lengths of prompts are exact; characters of JSON are tokens too, for grammars.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path

NAME = "tiny-llama"
_SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
_VOCABULARY = 4096
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": _VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "unk_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}

# Code of an operator's own in the one process of the API server, as --middleware names it.
_MIDDLEWARE = '''"""Looks through each request, as slowly as it is told to."""

import os
import time

_SECONDS = float(os.environ["AUDIT_SCAN_MS"]) / 1000


async def scan(request, call_next):
    if request.url.path.startswith("/v1/"):
        until = time.perf_counter() + _SECONDS
        while time.perf_counter() < until:
            pass
    return await call_next(request)
'''


def write_model(folder: Path) -> None:
    """Write config.json, tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", _CONFIG)
    _write(folder / "tokenizer.json", _tokenizer())
    named = dict(zip(("unk", "bos", "eos", "pad"), _SPECIAL, strict=True))
    tokens = {f"{key}_token": token for key, token in named.items()}
    tokens["tokenizer_class"] = "PreTrainedTokenizerFast"
    _write(folder / "tokenizer_config.json", tokens)


def write_middleware(folder: Path, name: str) -> None:
    """Write the module of a middleware `module.function`."""
    (folder / f"{name.partition('.')[0]}.py").write_text(_MIDDLEWARE, encoding="utf-8")


def words(tokens: Sequence[int]) -> str:
    """A prompt of exactly these tokens."""
    return " ".join(f"w{token}" for token in tokens)


def _tokenizer() -> dict[str, object]:
    pieces = [*_SPECIAL, *string.punctuation, *string.digits, *string.ascii_letters]
    pieces += [f"w{number}" for number in range(_VOCABULARY - len(pieces))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number, "content": token, "special": True, "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": False,
            }
            for number, token in enumerate(_SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {piece: number for number, piece in enumerate(pieces)},
            "unk_token": "<unk>",
        },
    }  # fmt: skip


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
