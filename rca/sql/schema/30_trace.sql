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
    -- Duration in ns; NULL when the source does not say. A damaged value is kept as it stands, and `flaw` says so.
    dur_ns BIGINT,
    -- 'ok', 'error' or 'unset'.
    status VARCHAR NOT NULL,
    -- Attributes of the span and its resource, a JSON object; resource attributes have the prefix 'resource.'.
    attributes JSON NOT NULL,
    -- NULL when the duration is sound; else why no view counts it: 'no_duration', 'negative_duration' or 'absurd_duration' (longer than a week: its start or its end is wrong).
    flaw VARCHAR
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

-- Pieces of traces that several sources have: one row for each piece that is filed under another source.
CREATE TABLE trace_home (
    -- The source that holds the piece.
    source_id INTEGER NOT NULL,
    -- Trace id.
    trace_id VARCHAR NOT NULL,
    -- The source that the whole trace is filed under: the first of the same part that holds a piece.
    home_id INTEGER NOT NULL
);

-- Corrections of the clocks of single hosts within a source, beside source.shift_ns.
CREATE TABLE host_clock (
    -- The source.
    source_id INTEGER NOT NULL,
    -- Host, else service, as span_host has it.
    host VARCHAR NOT NULL,
    -- What is added to the times of its spans, ns.
    shift_ns BIGINT NOT NULL,
    -- Half the width of what calls between the hosts allow, ns.
    error_ns BIGINT NOT NULL
);
