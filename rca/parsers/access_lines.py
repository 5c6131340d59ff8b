"""Access logs: Envoy's and Istio's default text, and records of requests as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec

from rca.parsers.times import iso_ns, point_ns

# [2026-01-31T02:17:00.310Z] "POST /v1/chat HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "agent" "id" "host" "10.0.2.1:80"
# Istio's has the details of the answer before the bytes, and the cluster and addresses at the end.
_ENVOY = re.compile(
    r'\[(?P<start_time>[^\]\s]+)\] "(?P<request>[^"]*)" (?P<response_code>\d+) (?P<response_flags>[A-Za-z,]+|-)'
    r'(?: (?P<response_code_details>[^\s"]+) (?P<connection_termination_details>[^\s"]+))?'
    r'(?: "(?P<upstream_transport_failure_reason>[^"]*)")?(?: "[^"]*")?'
    r" (?P<bytes_received>\d+) (?P<bytes_sent>\d+) (?P<duration>\d+|-) (?P<upstream_service_time>\d+|-)"
    r' "(?P<x_forwarded_for>[^"]*)" "(?P<user_agent>.*?)" "(?P<request_id>[^"]*)" "(?P<authority>[^"]*)"'
    r' "(?P<upstream_host>[^"]*)"'
    r"(?: (?P<upstream_cluster>\S+) \S+ \S+ \S+ (?P<requested_server_name>\S+) (?P<route_name>\S+))?.*"
)
_TEXT = {
    "method": ("method", "request_method", "RequestMethod"),
    "path": ("path", "x_envoy_origin_path", "x_envoy_original_path", "uri", "request_uri", "RequestPath"),
    "protocol": ("protocol", "server_protocol", "RequestProtocol"),
    "flags": ("response_flags",),
    "details": ("response_code_details",),
    "termination": ("connection_termination_details",),
    "failure": ("upstream_transport_failure_reason",),
    "client": ("x_forwarded_for", "downstream_remote_address", "remote_addr", "ClientHost"),
    "user_agent": ("user_agent", "http_user_agent"),
    "request_id": ("request_id", "x_request_id"),
    "authority": ("authority", "host", "http_host", "RequestHost"),
    "upstream_host": ("upstream_host", "upstream_addr"),
    "upstream_cluster": ("upstream_cluster", "ServiceName"),
    "route": ("route_name",),
}  # fmt: skip
_TEXT_OF = {key: (name, rank) for name, keys in _TEXT.items() for rank, key in enumerate(keys)}
_NUMBERS = {
    "status": ("response_code", "status", "status_code", "DownstreamStatus"),
    "bytes_received": ("bytes_received", "request_length"),
    "bytes_sent": ("bytes_sent", "body_bytes_sent", "DownstreamContentSize"),
}
_MILLISECONDS = {
    "duration_ms": (
        ("duration_ms", "1"), ("duration", "1"), ("request_time", "1e3"), ("Duration", "1e-6"),
    ),
    "upstream_ms": (
        ("upstream_service_time", "1"), ("x_envoy_upstream_service_time", "1"),
        ("upstream_response_time", "1e3"), ("OriginDuration", "1e-6"),
    ),
}  # fmt: skip
"""Keys of durations, and what makes milliseconds of them."""
_TIME = ("start_time", "time", "timestamp", "ts", "@timestamp", "time_iso8601", "StartUTC")
_NOTHING = (None, "", "-")
_MAX_JSON = 65_536
_MOST_DIGITS = 19
_ID = re.compile(
    r"\d+|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?=\S*\d)[\w-]*[0-9A-Fa-f]{8,}[\w-]*|\S{40,}"
)
_ISTIO = re.compile(r"outbound(?:\|\d*\|[^|]*\||_\.\d*_\.[^.]*_\.)(?P<host>[^|]+)")
"""Istio's name of an upstream, in its cluster and in the server name of its connections."""
_ADDRESS = re.compile(r"[\d.]+|\[?[0-9a-fA-F:]*:[0-9a-fA-F:.]*\]?")
_INSIDE = re.compile(r"(?P<name>[\w-]+)(?:\.[\w-]+)?(?:\.svc(?:\.[\w.-]+)?)?")


class Access(NamedTuple):
    """One request as an access log has it.

    Attributes:
        ts_ns: When it came, ns since the Unix epoch; None when the record does not say.
        service: What was asked; None when neither the upstream nor the host says.
        level: 'error' for answers of 500 and above and for none, 'warning' for those of 400 to 499.
        message: The request and its answer.
        template: The message without the query and with ids in the path replaced by '<*>'.
        fields: What else is known; durations in ms.
    """

    ts_ns: int | None
    service: str | None
    level: str
    message: str
    template: str
    fields: dict[str, Any]


def of_text(line: str) -> Access | None:
    """A line of Envoy's or Istio's default text, or a record as JSON; None for any other."""
    if line.startswith("{"):
        return _of_json(line)
    found = _ENVOY.fullmatch(line) if line.startswith("[") else None
    if found is None or (ts_ns := iso_ns(found["start_time"])) is None:
        return None
    record = found.groupdict()
    method, _, rest = record.pop("request").partition(" ")
    path, _, protocol = rest.rpartition(" ")
    told = _access({**record, "method": method, "path": path, "protocol": protocol})
    return told and told._replace(ts_ns=ts_ns, message=line.partition("] ")[2])


def _of_json(line: str) -> Access | None:
    if len(line) > _MAX_JSON:
        return None
    try:
        return of_record(msgspec.json.decode(line, type=dict[str, Any]))
    except msgspec.DecodeError:
        return None


def of_record(record: Mapping[str, Any]) -> Access | None:
    """A record that has a time, a status and a duration; None for any other, such as a span."""
    if {"trace_id", "span_id"} <= record.keys():
        return None
    plain = {k.lstrip(":").replace("-", "_"): v for k, v in record.items()}
    told = _access(plain)
    if told is None or "duration_ms" not in told.fields:
        return None
    time = next((plain[n] for n in _TIME if plain.get(n) not in _NOTHING), None)
    ts_ns = None if time is None else point_ns(str(time))
    return None if ts_ns is None else told._replace(ts_ns=ts_ns)


def _access(record: Mapping[str, Any]) -> Access | None:
    """What a record says, its keys without dashes; None when it has no status."""
    fields = _texts(record)
    for name, keys in _NUMBERS.items():
        fields |= _number(name, ((k, "1") for k in keys), record, int)
    for name, units in _MILLISECONDS.items():
        fields |= _number(name, units, record, float)
    status = fields.get("status")
    if status is None or not 0 <= status < 1000:
        return None
    query = fields.get("path", "").find("?")
    if query >= 0:
        fields["path"] = fields["path"][:query]
    said = [fields.get("method", "-"), fields.get("path", "-"), str(status), *_flags(fields)]
    return Access(
        None, _service(fields, record), _level(status, fields), " ".join(said),
        " ".join([said[0], _without_ids(said[1]), *said[2:]]), fields,
    )  # fmt: skip


def _texts(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are text; of several keys for one the first that its list has."""
    found: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    for key, value in record.items():
        known = _TEXT_OF.get(key)
        if known and isinstance(value, str) and value not in _NOTHING:
            name, rank = known
            if rank <= ranks.get(name, rank):
                found[name], ranks[name] = value, rank
    return found


def _number(
    name: str, units: Any, record: Mapping[str, Any], kind: Callable[[Any], int | float]
) -> dict[str, int | float]:
    """The first of the keys that has a number, times its factor."""
    for key, factor in units:
        value = record.get(key)
        if value in _NOTHING or isinstance(value, bool):
            continue
        if factor == "1" and str(value).isdecimal() and len(str(value)) < _MOST_DIGITS:
            return {name: kind(value)}
        try:
            number = Decimal(str(value)) * Decimal(factor)
        except InvalidOperation:
            continue
        if number.is_finite() and 0 <= number < 2**63:
            return {name: kind(number)}
    return {}


def _flags(fields: Mapping[str, Any]) -> list[str]:
    return [fields["flags"]] if "flags" in fields else []


def _without_ids(path: str) -> str:
    return "/".join("<*>" if _ID.fullmatch(part) else part for part in path.split("/"))


def _level(status: int, fields: Mapping[str, Any]) -> str:
    """Status 0 is no answer: the client went away (DC), or the flags say what failed."""
    if status >= 500 or (status == 0 and _flags(fields) not in ([], ["DC"])):
        return "error"
    return "warning" if status >= 400 or (status == 0 and _flags(fields)) else "info"


def _service(fields: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """The upstream's name inside the cluster, else the host that was asked for, else the upstream."""
    cluster = fields.get("upstream_cluster", "")
    for told in (cluster, record.get("requested_server_name")):
        if found := _ISTIO.fullmatch(str(told)):
            return _named(found["host"])
    return _named(fields.get("authority", "")) or (
        cluster if cluster and "|" not in cluster else None
    )


def _named(host: str) -> str | None:
    """A host without its port, and without the ending of names inside a cluster; None for an address."""
    name = host if host.count(":") > 1 else host.partition(":")[0]
    if not name or _ADDRESS.fullmatch(name):
        return None
    inside = ".svc" in name or name.count(".") == 0
    found = _INSIDE.fullmatch(name) if inside else None
    return found["name"] if found else name
