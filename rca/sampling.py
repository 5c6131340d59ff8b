"""Whether traces are a sample of the requests: as metrics count them, else as the samplers' own tags say.

Counts, shares and high quantiles of sampled spans are biased, by a tail sampler most of all.
"""

from __future__ import annotations

from typing import NamedTuple

from rca.case import Case
from rca.plain import percent, printable

_ALL = 0.9
"""Share of the requests from which on traces count as all of them."""
_MARKED = 0.5
"""Part of the traces that must carry a sampler's tag for it to speak of all."""


class Sampling(NamedTuple):
    """How many of the requests the incident's traces have.

    Attributes:
        share: Share of the requests, 0 to 1; None when nothing tells.
        why: What says that they are a sample; None when they are taken for all.
    """

    share: float | None = None
    why: str | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether figures of the traces are biased."""
        return self.why is not None


def read(case: Case) -> Sampling:
    """What is known of the sampling of the incident's traces; metrics before tags."""
    counted = case.scalar(
        "SELECT min(least(1.0, spans / requests)) FROM traced_share WHERE requests > 0"
    )
    if counted is None:
        return _marked(case)
    sampled = counted < _ALL
    return Sampling(
        counted, f"traces have {percent(counted)} of the requests" if sampled else None
    )


def told(case: Case) -> str | None:
    """What says that the traces are a sample, with the numbers of the service that is traced least; None when nothing does."""
    rows = case.rows(
        "SELECT service, requests, spans FROM traced_share WHERE spans < ? * requests "
        "ORDER BY CAST(spans AS DOUBLE) / requests, service LIMIT 1",
        (_ALL,),
    )
    if not rows:
        return read(case).why
    service, requests, spans = rows[0]
    of = f" of {printable(service, 60)}" if service else ""
    share = percent(spans / requests)
    return f"traces have {spans:,} of the {requests:,} requests{of} that the metrics count ({share})"


def _marked(case: Case) -> Sampling:
    rows = case.rows(
        "SELECT traces, marked, kept_share, chosen FROM sampler_mark WHERE part = 'incident'"
    )
    if not rows:
        return Sampling()
    traces, marked, kept, chosen = rows[0]
    if chosen >= _MARKED * traces:
        return Sampling(None, "a sampler chose the traces, as their tags say")
    if kept is None or marked < _MARKED * traces:
        return Sampling()
    why = f"samplers kept {percent(kept)} of the traces, as their tags say"
    return Sampling(kept, why if kept < _ALL else None)
