"""Latency histograms of the metrics: which of them tells what users feel."""

from __future__ import annotations

from rca.case import Case


def felt(case: Case, role: str) -> tuple[str, frozenset[str]]:
    """The role whose histograms tell of a latency, and the services whose they are; none where no buckets are.

    From end to end that is the one of the service where requests come in, as traces show it; without
    them the engine's, and where no engine is the one of the service in which most time goes by.
    """
    if role != "e2e_latency":
        return role, _with_buckets(case, role)
    gateways, engines = (_with_buckets(case, r) for r in ("gateway_latency", "e2e_latency"))
    roots = {s for (s,) in case.rows("SELECT DISTINCT service FROM request")}
    if gateways & roots:
        return "gateway_latency", gateways & roots
    if engines or not gateways:
        return "e2e_latency", engines
    longest = case.rows(
        "SELECT service FROM role_point WHERE part = 'incident' AND role = 'gateway_latency' "
        "GROUP BY service ORDER BY sum(num) DESC, service"
    )
    return "gateway_latency", frozenset([next(s for (s,) in longest if s in gateways)])


def _with_buckets(case: Case, role: str) -> frozenset[str]:
    rows = case.rows(
        "SELECT DISTINCT service FROM latency_count WHERE part = 'incident' AND role = ? AND NOT isinf(up_to)",
        (role,),
    )
    return frozenset(service for (service,) in rows)
