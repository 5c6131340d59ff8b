"""Errors that a person can act on.

RcaError
├── BundleError      a path that is missing, empty, or holds nothing readable
├── ParseError       a file that is not what it seems, or is damaged beyond use
├── CaseError        a case file that cannot be opened, or is of another version
├── QueryError       SQL that DuckDB refuses
├── CauseError       a cause file that does not hold together
├── FixError         a fix that the model cannot try
├── JudgeError       the language model's endpoint failed; the offline verdict stands
├── TemplateError    a form for a document that cannot be read or filled in
├── NsysError        the nsys program is missing or did not do its work
├── EngineError      vLLM is missing, did not start or did not answer
└── MissingExtra     an optional package is needed

Libraries raise these; only `cli.py` prints them and sets the exit code.
"""

from __future__ import annotations


class RcaError(Exception):
    """An expected failure: which file, where in it, what is wrong, what to do next.

    The parts are joined to one line. Attributes: path, place, problem, hint.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.path, self.place, self.problem, self.hint = path, place, problem, hint
        where = ": ".join(part for part in (path, place) if part)
        line = f"{where}: {problem}" if where else problem
        super().__init__(f"{line}; {hint}" if hint else line)


class BundleError(RcaError):
    """A path that is missing, empty, or holds nothing readable."""


class ParseError(RcaError):
    """A file that is not what it seems, or is damaged beyond use."""


class CaseError(RcaError):
    """A case file that cannot be opened, or is of another version."""


class QueryError(RcaError):
    """SQL that DuckDB refuses."""


class CauseError(RcaError):
    """A cause file that does not hold together."""


class FixError(RcaError):
    """A fix that the model cannot try."""


class JudgeError(RcaError):
    """The language model's endpoint failed; the offline verdict stands."""


class TemplateError(RcaError):
    """A form for a document that cannot be read or filled in."""


class NsysError(RcaError):
    """The nsys program is missing or did not do its work."""


class EngineError(RcaError):
    """vLLM is missing, did not start or did not answer."""


class MissingExtra(RcaError):  # noqa: N818 - the extra is missing, not an error
    """An optional package is needed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs {package}, which is not installed",
            hint=f"run: pip install 'trace-rca[{extra}]'",
        )
