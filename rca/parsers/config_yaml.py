"""Configuration in YAML: Kubernetes objects, Docker Compose, or any settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from rca.errors import ParseError
from rca.parsers.config_rows import ConfigRows, flags, words_of
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import Sketch, mapping, sketch
from rca.parsers.stream import HEAD_BYTES, read_all

_LIMIT_BYTES = 16_000_000
_MAX_NODES = 200_000
_SETTING = re.compile(
    r"(?i)(^|_|-)(max|min|num|size|enable|disable|model|dtype|parallel|replicas|limit|timeout|batch"
    r"|image|port|host|seed|tokenizer|quantization|cache|gpu|tp|pp|dp|backend|policy|threshold)(_|-|$)"
)
_KEY = re.compile(r"[A-Za-z_.-][\w./-]*")
_ENGINE = re.compile(r"(.*\b(?:engine_kwargs|engine_args|vllmConfig)\.)([\w.]+)")
"""Where Ray Serve and charts keep the arguments of an engine."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_SETTINGS = ("metadata", "status", "kind", "apiVersion")


def parse(text: str, path: Path) -> list[Any]:
    """The documents of a YAML text.

    Raises:
        ParseError: It is no YAML, or its aliases unfold to something enormous.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    documents = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None and _unfolded_size(node) > _MAX_NODES:
                raise ParseError("its aliases unfold without end", path=str(path))
            documents.append(loader.construct_document(node))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = " ".join(str(error).split())[:200]
        raise ParseError(f"is not valid YAML: {problem}", path=str(path)) from error
    finally:
        loader.dispose()
    return [d for d in documents if d is not None]


def _unfolded_size(root: yaml.Node) -> int:
    """How many nodes the document has once aliases are followed; endless ones count as too many."""
    sizes: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) in sizes and sizes[id(node)] > 0:
            stack.pop()
            continue
        inner = _inner(node)
        waiting = [n for n in inner if sizes.get(id(n), -1) < 0]
        if id(node) not in sizes and waiting:
            sizes[id(node)] = 0
            stack += waiting
            continue
        if any(not sizes.get(id(n)) for n in inner):
            return _MAX_NODES + 1  # a node inside itself
        sizes[id(node)] = 1 + sum(sizes[id(n)] for n in inner)
        stack.pop()
    return sizes[id(root)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested settings, keys joined by dots; a list of plain values is one leaf.

    The flags in a list of arguments are settings of their own, called as they are on a command line.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        for index, inner in enumerate(value):
            name = mapping(inner).get("name", index)
            yield from flat(inner, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list) and any(str(v).startswith("--") for v in value):
        yield from flags(words_of(value))
    elif isinstance(value, list):
        yield prefix, ",".join(str(v) for v in value)
    else:
        yield prefix, value


def _kubernetes(document: dict[str, Any], rows: ConfigRows) -> None:
    name = mapping(document.get("metadata")).get("name", "")
    subject = f"{document['kind']}/{name}" if name else str(document["kind"])
    pods = _pods(document)
    if not pods:
        grouped = ("spec", "data", *_NOT_SETTINGS)
        settings = {k: v for k, v in document.items() if k not in grouped}
        settings |= mapping(document.get("spec")) | mapping(document.get("data"))
        rows.add_all(subject, unfold(settings))
        return
    spec = mapping(document.get("spec"))
    for key in ("replicas", "minReplicas", "maxReplicas"):
        if key in spec:
            rows.add(subject, key, spec[key])
    for key, value in flat(
        {k: v for k, v in pods[0].items() if k not in ("containers", "initContainers")}
    ):
        rows.add(subject, key, value)
    containers = [c for p in pods for c in p["containers"] if isinstance(c, dict)]
    for container in containers:
        one = container is containers[0]
        _container(container, subject if one else f"{subject}/{container.get('name')}", rows)


def _pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The specs of pods, wherever the kind of object has them; the leader's before the workers'."""
    found, waiting = [], [mapping(document.get("spec"))]
    while waiting:
        inner = waiting.pop(0)
        if isinstance(inner.get("containers"), list):
            found.append(inner)
        else:
            waiting += [v for v in inner.values() if isinstance(v, dict)]
    return found


def _container(container: dict[str, Any], subject: str, rows: ConfigRows) -> None:
    if "image" in container:
        rows.add(subject, "image", container["image"])
    words = [*words_of(container.get("command")), *words_of(container.get("args"))]
    rows.add_all(subject, flags(words))
    for one in map(mapping, _listed(container.get("env"))):
        if "name" in one:
            rows.add(subject, str(one["name"]), one.get("value"))
    rows.add_all(subject, flat(container.get("resources") or {}, "resources"))


def unfold(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings, with YAML inside text (as ConfigMaps hold it) opened."""
    for key, value in settings.items():
        inner = None
        if isinstance(value, str) and "\n" in value and ":" in value:
            with suppress(ParseError):
                inner = next(iter(parse(value, Path(key))), None)
        yield from flat(inner if isinstance(inner, dict) else value, str(key))


def _compose(services: dict[str, Any], rows: ConfigRows) -> None:
    for name, service in services.items():
        subject, one = f"service/{name}", dict(mapping(service))
        rows.add_all(
            subject,
            flags(
                [*words_of(one.pop("entrypoint", None)), *words_of(one.pop("command", None))]
            ),
        )
        environment = one.pop("environment", None)
        if isinstance(environment, list):
            environment = dict(str(e).partition("=")[::2] for e in environment)
        rows.add_all(subject, ((str(k), v) for k, v in mapping(environment).items()))
        rows.add_all(subject, flat(one))


def add_documents(documents: list[Any], path: Path, rows: ConfigRows) -> None:
    """The settings of parsed documents; `path` names those that have no name of their own."""
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            add_documents(_listed(document.get("items")), path, rows)
        elif isinstance(document, dict) and {"kind", "apiVersion"} <= set(document):
            _kubernetes(document, rows)
        elif isinstance(document, dict) and _is_compose(document):
            _compose(document["services"], rows)
        elif isinstance(document, list) and all(isinstance(w, str) for w in document):
            rows.add_all(subject_of(path), flags(words_of(document)))
        elif isinstance(document, dict | list):
            pairs = [(k.lstrip("-").replace("-", "_"), v) for k, v in flat(document)]
            rows.add_all(subject_of(path), _as_the_engine_calls_them(pairs))


def _as_the_engine_calls_them(pairs: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Settings of an engine under the engine's own names, where a file configures one engine."""
    groups = {_ENGINE.sub(r"\g<1>", key) for key, _ in pairs if _ENGINE.match(key)}
    for key, value in pairs:
        found = _ENGINE.match(key) if len(groups) == 1 else None
        yield (_CAMEL.sub("_", found[2]).lower() if found else key), value


def subject_of(path: Path) -> str:
    """The file's name without its endings: what it configures, when it does not say."""
    return path.name.split(".")[0] or path.name


def _is_compose(document: dict[str, Any]) -> bool:
    services = document.get("services")
    return isinstance(services, dict) and any(
        {"image", "command", "build"} & set(mapping(s)) for s in services.values()
    )


def _read(path: Path, sink: Sink) -> None:
    data, damage = read_all(path, _LIMIT_BYTES)
    documents = parse(data.decode("utf-8-sig", "replace"), path)
    if damage:
        sink.note("warning", "truncated", damage, lost=True)
    rows = ConfigRows()
    add_documents(documents, path, rows)
    sink.count_elements(len(rows.rows))
    rows.write(sink)


def _recognise(head: Head) -> bool:
    """Mappings that are settings, not prose with colons, and not any JSON."""
    text = head.data.decode("utf-8", "replace").lstrip("\ufeff")
    if text.lstrip()[:1] in ("{", "["):
        return _is_json_settings(sketch(head))
    if "\x00" in text:
        return False
    lines = _first_document(text)
    if len(head.data) >= HEAD_BYTES and len(lines) == text.count("\n") + 1:
        while lines and (not lines[-1].strip() or lines[-1][0] in " -\t"):
            lines.pop()
        lines = lines[:-1]  # the last top-level entry may be cut
    try:
        found = parse("\n".join(lines), head.path)
    except ParseError:
        return False
    return bool(found) and _is_settings(found[0])


def _is_settings(document: Any) -> bool:
    """Whether a document holds settings rather than sentences with a colon in them."""
    if isinstance(document, list):
        return bool(document) and all(
            isinstance(w, str) and w.startswith("--") for w in document[:1]
        )
    if not isinstance(document, dict):
        return False
    if not all(isinstance(k, str) and _KEY.fullmatch(k) for k in document):
        return False
    leaves = [str(value) for _, value in flat(document)]
    return sum(len(leaf.split()) > 4 for leaf in leaves) * 2 < len(leaves)


def _is_json_settings(found: Sketch) -> bool:
    """Whether JSON is a Kubernetes object or one flat object with names that settings have."""
    document = mapping(found.value)
    if found.more or not document:
        return False
    if {"kind", "apiVersion"} <= set(document):
        return True
    records = any(
        isinstance(v, list) and any(isinstance(x, dict) for x in v) for v in document.values()
    )
    named = sum(_SETTING.search(str(key)) is not None for key in document)
    return not records and len(document) > 1 and named * 2 >= len(document)


def _first_document(text: str) -> list[str]:
    lines = text.split("\n")
    start = next((i for i, x in enumerate(lines) if x.strip() and x.strip() != "---"), 0)
    end = next((i for i in range(start, len(lines)) if lines[i].rstrip() == "---"), len(lines))
    return lines[start:end]


FORMAT = Format("config_yaml", "config", _recognise, _read)
