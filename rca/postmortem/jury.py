"""What language models said beside the rules: their label, and the claims that hold."""

from __future__ import annotations

import json

from rca.answer import Answer, wording
from rca.case import Case
from rca.plain import printable
from rca.postmortem.chronicle import Said

_MOST_CLAIMS = 6


def jurors_of(case: Case, answer: Answer) -> list[Said]:
    """One sentence a model, and after it the grounded claims of the first sample of its majority."""
    said = []
    for juror in answer.jurors:
        rows = case.rows(
            "SELECT reason, cited, claims, ruled_out, len(struck::JSON[]) FROM judge_opinion "
            "WHERE model = ? AND cause = ? AND status = 'scored' ORDER BY sample LIMIT 1",
            (juror.model, juror.cause),
        )
        reason, cited, claims, ruled_out, n_struck = (
            rows[0] if rows else (None, "[]", "[]", "[]", 0)
        )
        told = f": {printable(reason, 240)}" if reason else ""
        said.append(Said(f"{wording.juror(juror, answer)}{told}.", tuple(json.loads(cited))))
        said += [
            Said(printable(c["statement"], 300), (c["evidence"],))
            for c in json.loads(claims)[:_MOST_CLAIMS]
        ]
        said += [
            Said(
                f"Not {printable(r['cause'], 60)}: {printable(r['reason'], 300)}",
                tuple(r["evidence"]),
            )
            for r in json.loads(ruled_out)[:_MOST_CLAIMS]
        ]
        if n_struck:
            said.append(
                Said(f"{n_struck} claims of this answer were struck; judge_opinion has them.")
            )
    return said
