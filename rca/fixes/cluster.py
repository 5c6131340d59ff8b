"""Fixes at the cluster: more replicas, a node out of traffic, a circuit broken, a restart."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from rca.case import Case
from rca.fixes.facts import Facts, Workload, manifests, safe_name, workload
from rca.fixes.gates import circuit_break as circuit_gate
from rca.fixes.heat import scaling_score
from rca.fixes.proposal import Proposal, investigate, script
from rca.plain import printable, quantity

_MOST_REPLICAS = 4.0
"""Factor beyond which a count of replicas is no step to take at once."""
_NO_WORKLOAD = (
    "No manifest of the engine is in the bundle: kubectl get deployments lists its name."
)


def scale(case: Case, plain: Proposal, facts: Facts) -> Proposal:
    """More replicas, as many as arrivals grew; the count from the manifest."""
    of, now = engine(case)
    factor, cited = _growth(case)
    if of is None or now is None:
        return replace(plain, action=f"{plain.action} {_NO_WORKLOAD}")
    wanted = max(now + 1, math.ceil(now * factor))
    why = f"arrivals grew by {factor:.2g} ({cited})" if cited else "one more, to be measured"
    pressing = scaling_score(case)
    if pressing:
        score, parts = pressing
        why += f"; scaling score {score:.2f} of 1, 0.50 when healthy ({', '.join(parts)})"
    head = [f"{of.path}: {now} → {wanted} replicas, {why}"]
    to, back = (
        script(head, f"{of.kubectl} scale {of.path} --replicas={n}") for n in (wanted, now)
    )
    return replace(
        plain, target=of.path, content=to, undo_content=back, form="script",
        action=f"{plain.action} From {now} to {wanted} replicas of {of.path}: {why}.",
    )  # fmt: skip


def _growth(case: Case) -> tuple[float, str]:
    rows = case.rows(
        "SELECT id, effect FROM evidence WHERE role IN ('arrival_rate', 'prompt_throughput') AND effect > 0.1 "
        "ORDER BY role, strength DESC, id LIMIT 1"
    )
    return (min(math.exp(rows[0][1]), _MOST_REPLICAS), str(rows[0][0])) if rows else (1.0, "")


def engine(case: Case) -> tuple[Workload | None, int | None]:
    """The workload that serves the model, with its replicas: the one whose service the engine's metrics name."""
    services = [
        s
        for (s,) in case.rows(
            "SELECT service FROM series_role WHERE role IN ('running', 'waiting', 'kv_usage', 'itl') "
            "AND service <> '' GROUP BY service ORDER BY count(*) DESC, service"
        )
    ]
    found = []
    for document in manifests(case, "incident"):
        spec, name = document.get("spec"), str(document["metadata"].get("name", ""))
        of = workload(case, f"{str(document['kind']).lower()}/{name}")
        if of is None or not isinstance(spec, dict):
            continue
        count = spec.get("replicas", 1)
        found.append((of, count if isinstance(count, int) and count >= 0 else 1))
    named = [f for f in found if f[0].name in services]
    chosen = (named or found)[:1] if named or len(found) == 1 else []
    return chosen[0] if chosen else (None, None)


def restart(case: Case, plain: Proposal, facts: Facts) -> Proposal:
    """A rolling restart of the engine; it cannot be undone, and loses what caches hold."""
    of, _ = engine(case)
    if of is None:
        return replace(plain, action=f"{plain.action} {_NO_WORKLOAD}")
    body = f"{of.kubectl} rollout restart {of.path}\n{of.kubectl} rollout status {of.path} --timeout=15m"
    return replace(
        plain, target=of.path, content=script([f"{of.path}: restart, one pod after the other"], body),
        form="script",
    )  # fmt: skip


def drain(case: Case, plain: Proposal, facts: Facts) -> Proposal:
    """The node of the replica that moved most, out of scheduling; its pods moved elsewhere."""
    roles = [r for r, (sign, _) in facts.cause.expected.items() if sign]
    rows = case.rows(_WORST_REPLICA, (roles,))
    names = [(role, label, name) for role, label, name in rows if safe_name(name)]
    if not names:
        how = "No label of the series that moved names a node: kubectl get pods -o wide lists them."
        return replace(plain, action=f"{plain.action} {how}")
    role, label, name = names[0]
    node = label in ("node", "hostname", "kubernetes_node", "instance_node")
    find = (
        f"node={name}"
        if node
        else f"node=$(kubectl get pod {name} -A -o jsonpath='{{.items[0].spec.nodeName}}' --field-selector metadata.name={name})"
    )
    find = find.replace(f"get pod {name} -A", "get pods -A")
    look = 'test -n "$node" || { echo "no such pod any more" >&2; exit 1; }'
    head = [f"{label} {name}, whose {role} moved most"]
    out = f'{find}\n{look}\nkubectl cordon "$node"\nkubectl drain "$node" --ignore-daemonsets --delete-emptydir-data'
    back = (
        f'{find}\n{look}\nkubectl uncordon "$node"'
        if node
        else 'test -n "${1-}" || { echo "usage: $0 NODE" >&2; exit 2; }\nkubectl uncordon "$1"'
    )
    return replace(
        plain, target=name, content=script(head, out), undo_content=script(head, back), form="script",
        action=f"{plain.action} It is {label} {printable(name, 80)}: its {role} moved most.",
    )  # fmt: skip


_WORST_REPLICA = """
WITH level AS (
    SELECT p.role, p.replica, s.part, sum(p.num) / nullif(sum(p.den), 0) AS value
    FROM role_point AS p
    JOIN (SELECT 'incident' AS part UNION ALL SELECT 'baseline') AS s ON s.part = p.part
    WHERE p.role IN (SELECT unnest(?)) AND p.replica <> ''
        AND (p.part = 'baseline' OR p.ts_ns >= (SELECT start_ns FROM incident_window ORDER BY id LIMIT 1))
    GROUP BY ALL
), side AS (
    SELECT role, replica, any_value(value) FILTER (part = 'incident') AS now,
        any_value(value) FILTER (part = 'baseline') AS before
    FROM level GROUP BY role, replica
), worst AS (
    SELECT role, replica, abs(now - coalesce(before, median(now) OVER (PARTITION BY role))) AS moved
    FROM side WHERE now IS NOT NULL
    QUALIFY count(*) OVER (PARTITION BY role) > 1
), named AS (
    SELECT DISTINCT r.role, r.replica, e.key AS label, e.value AS name
    FROM series_role AS r JOIN series AS s ON s.id = r.series_id,
        unnest(map_entries(s.labels)) AS t(e)
    WHERE e.key IN ('node', 'Hostname', 'hostname', 'kubernetes_node', 'pod', 'exported_pod', 'pod_name')
)
SELECT w.role, lower(n.label), n.name
FROM worst AS w JOIN named AS n ON n.role = w.role AND n.replica = w.replica
ORDER BY w.moved DESC, lower(n.label) NOT IN ('node', 'hostname', 'kubernetes_node'), n.label, n.name
"""


def circuit_break(case: Case, plain: Proposal, facts: Facts) -> Proposal:
    """Circuit breaking for the slow service, and what to answer without it; held back below the gate."""
    gate = circuit_gate(facts)
    if not gate.passed:
        first = investigate(facts.subject, _ask(facts), gate.words)
        return replace(first, gate_passed=False, confidence=facts.confidence)
    plain = replace(plain, gate=gate.words, gate_passed=True, confidence=facts.confidence)
    service = next((s for s in facts.slow if safe_name(s)), None)
    healthy_s, cited = _healthy_call(case, service)
    limit_s = max(3 * healthy_s, 0.05) if healthy_s else 1.0
    limit = (
        f"three times the healthy {quantity(healthy_s, 's')} ({cited})"
        if healthy_s
        else "a first step"
    )
    degrade = (
        f"Degrade: give a call {quantity(limit_s, 's')} ({limit}), then answer without it, from a cache or with a "
        "shorter prompt; count and show the degraded answers."
    )
    action = f"{plain.action} {degrade}"
    if service is None:
        return replace(plain, action=action)
    rule = _rule(service, limit_s)
    undo = script(
        [f"takes the circuit breaker of {service} away"],
        f"kubectl delete destinationrule/rca-break-{service} virtualservice/rca-break-{service}",
    )
    return replace(
        plain, target=service, action=action, content=rule, undo_content=undo,
        form="manifest", undo_form="script",
    )  # fmt: skip


def _ask(facts: Facts) -> str:
    """What to do about a slow dependency while the gate holds back."""
    name = printable(facts.slow[0], 80) if facts.slow else "the dependency"
    change = facts.change
    owner = (
        f" Its change {printable(change.id, 60)} fits in time: ask its owner to take that back."
        if change and any(s in change.subject for s in facts.slow)
        else ""
    )
    return f"Measure {name} on its own side (its spans, its queue, its errors) before cutting it off.{owner}"


def _healthy_call(case: Case, service: str | None) -> tuple[float | None, str]:
    rows = case.rows(
        "SELECT reference, id FROM evidence WHERE role IN ('dependency_time', 'downstream_latency') "
        "AND service = ? AND reference > 0 ORDER BY role, id LIMIT 1",
        (service,),
    )
    return rows[0] if rows else (None, "")


def _rule(service: str, limit_s: float) -> str:
    """An Istio circuit breaker and timeout for one host; JSON is YAML, so no name can break out."""
    meta = {"name": f"rca-break-{service}"}
    breaker = {
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": meta,
        "spec": {"host": service, "trafficPolicy": {
            "connectionPool": {"http": {"http1MaxPendingRequests": 32, "maxRetries": 0}},
            "outlierDetection": {
                "consecutiveGatewayErrors": 5, "consecutive5xxErrors": 5, "interval": "10s",
                "baseEjectionTime": "30s", "maxEjectionPercent": 100,
            },
        }},
    }  # fmt: skip
    timeout = {
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta,
        "spec": {"hosts": [service], "http": [{
            "timeout": f"{math.ceil(limit_s * 1000)}ms", "route": [{"destination": {"host": service}}],
        }]},
    }  # fmt: skip
    head = (
        "# Proposed by rca; read it before you apply it: kubectl apply -f FILE (needs Istio)."
    )
    return (
        "\n---\n".join(
            [head + "\n" + json.dumps(breaker, indent=2), json.dumps(timeout, indent=2)]
        )
        + "\n"
    )
