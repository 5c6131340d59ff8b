-- Spans of distributed traces.
CREATE TABLE span (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Trace id, lower-case hex where it is hex, else as it stands.
    trace_id VARCHAR NOT NULL,
    -- Span id, lower-case hex where it is hex, else as it stands.
    span_id VARCHAR NOT NULL,
    -- Parent's span id; NULL for a root.
    parent_id VARCHAR,
    -- Service that recorded it (service.name); NULL when unknown.
    service VARCHAR,
    -- Operation name.
    name VARCHAR NOT NULL,
    -- 'internal', 'server', 'client', 'producer' or 'consumer'; NULL when the source does not say.
    kind VARCHAR,
    -- Start, ns since the Unix epoch; NULL when the source does not say (a damaged span).
    start_ns BIGINT,
    -- Duration in ns; NULL when the source does not say.
    dur_ns BIGINT,
    -- 'ok', 'error' or 'unset'.
    status VARCHAR NOT NULL,
    -- Attributes of the span and its resource, a JSON object; resource attributes have the prefix 'resource.'.
    attributes JSON NOT NULL
);

-- Events inside spans.
CREATE TABLE span_event (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Trace id of the span.
    trace_id VARCHAR NOT NULL,
    -- Span id of the span.
    span_id VARCHAR NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Name of the event.
    name VARCHAR NOT NULL,
    -- Attributes, a JSON object.
    attributes JSON NOT NULL
);

-- Links from a span to others that are not its parent.
CREATE TABLE span_link (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Trace id of the span that has the link.
    trace_id VARCHAR NOT NULL,
    -- Span id of the span that has the link.
    span_id VARCHAR NOT NULL,
    -- Trace id of the span linked to.
    linked_trace_id VARCHAR NOT NULL,
    -- Span id of the span linked to.
    linked_span_id VARCHAR NOT NULL,
    -- Attributes, a JSON object.
    attributes JSON NOT NULL
);
