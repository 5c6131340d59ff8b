"""An answer as it was meant: JSON of the agreed form, or not readable."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

import msgspec

_FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_Text = Annotated[str, msgspec.Meta(max_length=2000)]
_Id = Annotated[str, msgspec.Meta(max_length=200)]
_MOST = 100


class Unreadable(Exception):  # noqa: N818 - not an error: the answer is left unscored
    """Why an answer cannot be read, in a few words."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement about one row of evidence."""

    evidence: _Id
    direction: _Id
    statement: _Text


class RuledOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate that is not the cause, and what speaks against it."""

    cause: _Id
    evidence: Annotated[list[_Id], msgspec.Meta(max_length=_MOST)]
    reason: _Text


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One judgement as a model gives it; nothing in it is checked yet."""

    claims: Annotated[list[Claim], msgspec.Meta(max_length=_MOST)]
    ruled_out: Annotated[list[RuledOut], msgspec.Meta(max_length=_MOST)]
    missing: Annotated[list[_Id], msgspec.Meta(max_length=_MOST)]
    cls: _Id = msgspec.field(name="class")
    cause: _Id
    cited: Annotated[list[_Id], msgspec.Meta(max_length=_MOST)]
    reason: _Text


class Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence of a postmortem and the ids of what it rests on."""

    text: _Text
    evidence: Annotated[list[_Id], msgspec.Meta(max_length=_MOST)]


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sentences for a postmortem as a model gives them; nothing in them is checked yet."""

    summary: Annotated[list[Sentence], msgspec.Meta(max_length=_MOST)]
    lessons: Annotated[list[Sentence], msgspec.Meta(max_length=_MOST)]


_T = TypeVar("_T")


def read(text: str, form: type[_T]) -> _T:
    """What stands in an answer, in the form that was asked for; a fence around it or a thought before it is passed over.

    Raises:
        Unreadable: Anything else than one JSON object of the agreed form.
    """
    bare = _THOUGHT.sub("", text, count=1).strip()
    fenced = _FENCED.fullmatch(bare)
    try:
        return msgspec.json.decode(fenced.group(1) if fenced else bare, type=form)
    except msgspec.ValidationError as error:
        raise Unreadable(f"JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable("prose or broken JSON") from error
