"""Jaeger spans as Elasticsearch keeps them: one document, JSON lines, a list, or a search answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.jaeger import Span, SpanReader, Tag, values
from rca.parsers.json_text import first, mapping, read_lines, read_whole, sketch
from rca.parsers.span_rows import resource_json
from rca.parsers.stream import Blocks, read_head


class _Document(Span, gc=False):
    """A span with its process; `tag` holds tags as an object when Jaeger stores them so."""

    tag: dict[str, Any] | None = None


class _Hit(msgspec.Struct):
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw(b""))


class _Hits(msgspec.Struct):
    hits: list[_Hit] = []


class _Answer(msgspec.Struct):
    hits: _Hits


_decode_document = msgspec.json.Decoder(_Document, strict=False).decode


def _parts(data: bytes) -> list[msgspec.Raw]:
    if data.lstrip()[:1] == b"[":
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except msgspec.ValidationError:
        return [msgspec.Raw(data)]
    return [hit.source for hit in answer.hits.hits]


def _documents(path: Path, sink: Sink) -> Iterator[bytes]:
    head = read_head(path)
    if sketch(head).more:
        blocks = Blocks(path)
        yield from read_lines(blocks)
        if blocks.damage:
            sink.note("warning", "truncated", blocks.damage, lost=True)
        return
    parts, whole = read_whole(path, 3, _parts)
    if whole.damage:
        sink.note("warning", "truncated", f"cut short: {whole.damage}", lost=True)
    yield from (bytes(part) for part in parts)


def _read(path: Path, sink: Sink) -> None:
    reader = SpanReader(sink)
    bad, problem = 0, ""
    for raw in _documents(path, sink):
        try:
            document = _decode_document(raw)
        except msgspec.DecodeError as error:
            if b'"index"' not in raw[:20]:  # the action lines of a bulk file
                bad, problem = bad + 1, str(error)
            continue
        document.tags = [
            *(document.tags or ()),
            *(Tag(key.replace("@", "."), value) for key, value in (document.tag or {}).items()),
        ]
        process = document.process
        service = process.serviceName if process else None
        resource = resource_json(values(process.tags)) if process else b"{}"
        reader.add([document], [(service, resource)])
    reader.flush()
    if bad:
        sink.count_elements(bad)
        sink.note(
            "warning",
            "bad_span",
            f"documents that are no spans: {problem}",
            count=bad,
            lost=True,
        )
    if bad and not reader.rows.count:
        raise ParseError(f"not one span can be read: {problem}", path=str(path))


def _recognise(head: Head) -> bool:
    found = sketch(head).value
    document = mapping(first(found) if isinstance(found, list) else found)
    hits = mapping(document.get("hits")).get("hits")
    document = mapping(mapping(first(hits)).get("_source")) if hits else document
    return {"traceID", "spanID", "startTime"} <= set(document)


FORMAT = Format("jaeger_es", "trace", _recognise, _read)
